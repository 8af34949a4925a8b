"""The chart on a real API server: every object taken, the operator at work, and what stays at uninstall."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
import yaml
from cluster_tools import Cluster, eventually, everything, furnished, nothing_left
from playbooks import Playbooks
from releases import CHART, NAME, Release
from runs import Runs

pytestmark = pytest.mark.timeout(1500, func_only=True)

CRDS = [f"{plural}.combee.dev" for plural in ("promptlearningruns", "playbooks", "playbookversions")]
SMALL = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
AT_WORK: dict[str, Any] = {
    "operator": {"resources": SMALL},
    "gateway": {"replicas": 1, "resources": SMALL},
    "engineImages": ["localhost/combee-sim"],
    "engineArguments": ["--time-scale"],
}
FULL: dict[str, Any] = {
    "image": {"pullSecrets": ["registry"], "vllm": "docker.io/vllm/vllm-openai:v0.32.0"},
    "engineImages": ["localhost/combee-sim"],
    "engineArguments": ["--time-scale"],
    "operator": {
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "podAnnotations": {"example.com/team": "platform"},
    },
    "store": {"storageClassName": "shared"},
    "metrics": {"serviceMonitor": {"create": True, "labels": {"release": "prometheus"}}},
    "networkPolicy": {"create": True},
}


def test_the_server_takes_every_object_as_it_is(cluster: Cluster, namespace: str, team: str) -> None:
    """Of each form of the chart; what is the same in several is asked once."""
    asked: dict[str, dict[str, Any]] = {}
    for values, places in itertools.product(({}, FULL), ([], [namespace, team])):
        objects = _rendered(cluster, namespace, {**values, "namespaces": places})
        # Prometheus' operator is not there.
        known = [made for made in objects if made["kind"] != "ServiceMonitor"]
        assert len(objects) - len(known) == (2 if values else 0)
        assert len(known) > 15
        asked |= {json.dumps(made, sort_keys=True): made for made in known}
    cluster.kubectl(
        *("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict"),
        *("--warnings-as-errors", "-f", "-"),
        stdin=list(asked.values()),
    )


@pytest.mark.alone
def test_serves_the_whole_cluster_and_leaves_definitions_versions_and_data(
    cluster: Cluster, namespace: str, team: str
) -> None:
    release = Release(cluster, namespace)
    before = _all(cluster, namespace, team)
    accounts = {f"{team}/serviceaccount/combee-{name}" for name in ("worker", "publish", "gateway")}
    try:
        told = release.install(AT_WORK)
        assert "is installed for all namespaces" in told
        assert f"kubectl -n {namespace} rollout status deployment/combee-operator" in told
        assert release.may("list", "promptlearningruns.combee.dev", "-A")
        for place in (("-A",), ("-n", namespace), ("-n", team)):
            assert not release.may("get", "secrets", *place)
            assert not release.may("list", "secrets", *place)
        second = Release(cluster, team)
        with pytest.raises(
            AssertionError, match=r'ClusterRole "combee-(gateway|publish)".* exists and cannot'
        ):
            second.helm("install", "second", str(CHART), values={"crds": {"install": False}})
        _learns(cluster, team)
        _is_measured(cluster, namespace)
        cluster.kubectl("create", "-f", "-", namespace=team, stdin=VERSION)
        assert accounts <= _at_work(release, team, before)
        delivered = Playbooks(cluster, team).delivered_uid()
    finally:
        release.uninstall()
    data = (
        f"{team}/playbookversion.combee.dev/p-0123456789ab",
        f"{namespace}/persistentvolumeclaim/combee-store",
    )
    _left(release, team, before, *data)
    # What is installed next goes on with what stayed, and is taken away as well.
    try:
        release.install(AT_WORK)
        assert accounts <= _at_work(release, team, before)
    finally:
        release.uninstall()
    _left(release, team, before, *data)
    assert Playbooks(cluster, team).delivered_uid() == delivered, "what services mount was gone for a moment"
    # Runs are their users', and nothing holds them back when the operator is gone.
    uids = _uids(cluster, team)
    assert _of_runs(cluster, team, uids)
    cluster.kubectl("delete", "plr", "--all", "--timeout=180s", namespace=team)
    nothing_left(lambda: _of_runs(cluster, team, uids))


@pytest.mark.alone
def test_serves_listed_namespaces_for_one_who_has_no_rights_in_the_cluster(
    cluster: Cluster, namespace: str, team: str
) -> None:
    installer = f"system:serviceaccount:{namespace}:installer"
    cluster.kubectl("create", "serviceaccount", "installer", namespace=namespace)
    for place in (namespace, team):
        cluster.kubectl(
            *("create", "rolebinding", "installer", "--clusterrole=cluster-admin"),
            f"--serviceaccount={namespace}:installer",
            namespace=place,
        )
    release = Release(cluster, namespace, user=installer)
    off = {"install": False}
    values = {
        **AT_WORK,
        "namespaces": [team],
        "crds": off,
        "admissionPolicy": off,
        "userRoles": {"create": False},
        "networkPolicy": {"create": True},
    }
    before = _all(cluster, namespace, team)
    try:
        told = release.install(values)
        assert f"is installed for namespaces {team}" in told
        assert "Runs that name a Secret are refused" in told
        assert release.may("list", "promptlearningruns.combee.dev", "-n", team)
        for verb, resource in (("list", "promptlearningruns.combee.dev"), ("create", "jobs.batch")):
            assert not release.may(verb, resource, "-A")
            assert not release.may(verb, resource, "-n", namespace)
        for place in (("-A",), ("-n", namespace), ("-n", team)):
            assert not release.may("get", "secrets", *place)
        _learns(cluster, team)
        assert _judged(cluster, team, "second") == ("False", "SecretNotAllowed")
        # An administrator installs the policy; the upgrade replaces the operator and nothing of a run.
        steps = _steps(_made(cluster, team))
        cluster.kubectl("apply", "-f", "-", stdin=_policy(cluster, namespace, team))
        values["admissionPolicy"] = {"install": False, "present": True}
        release.helm("upgrade", NAME, str(CHART), "--wait", "--timeout", "240s", values=values)
        assert steps <= _steps(_made(cluster, team))
        assert _judged(cluster, team, "third")[0] == "True"
        _at_work(release, team, before)
    finally:
        release.uninstall()
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=_policy(cluster, namespace, team))
    _left(release, team, before)


def test_an_uninstall_whose_image_cannot_be_pulled_ends_and_leaves_nothing_of_its_own(
    cluster: Cluster, namespace: str
) -> None:
    furnished(cluster, namespace)
    before = everything(cluster, namespace)
    release, off = Release(cluster, namespace), {"install": False}
    release.install(
        {
            "namespaces": [namespace],
            "crds": off,
            "admissionPolicy": off,
            "userRoles": {"create": False},
            "store": {"create": False},
            "image": {"operator": "localhost/combee-operator:nowhere"},
            "operator": {"replicas": 0},
        }
    )
    with pytest.raises(AssertionError, match="uninstallation completed with 1 error"):
        release.helm("uninstall", NAME, "--timeout", "20s")
    nothing_left(lambda: everything(cluster, namespace) - before)
    assert NAME not in release.helm("list", "--all", "--short").split()


RUN: dict[str, Any] = {
    "apiVersion": "combee.dev/v1alpha1",
    "kind": "PromptLearningRun",
    "metadata": {"name": "first"},
    "spec": {
        "discipline": "Advisory",
        "playbookRef": {"name": "p"},
        "task": {
            "type": "Formula",
            "data": {
                "train": {"configMap": {"name": "rows", "key": "rows.jsonl"}},
                "heldOut": {"configMap": {"name": "rows", "key": "rows.jsonl"}},
            },
        },
        "method": {"type": "ACE"},
        "models": {
            role: {"endpoint": {"url": "http://192.0.2.1:9/v1", "model": "m"}}
            for role in ("task", "proposer")
        },
    },
}
VERSION = {
    "apiVersion": "combee.dev/v1alpha1",
    "kind": "PlaybookVersion",
    "metadata": {"name": "p-0123456789ab"},
    "spec": {"playbookRef": {"name": "p"}, "digest": "0" * 64, "configMapName": "p-0123456789ab"},
}


def _learns(cluster: Cluster, team: str) -> None:
    """A run is taken up: its first Job has a pod, of the worker's account and without a token."""
    if not cluster.try_kubectl("get", "pvc", "combee-store", namespace=team).stdout:
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        meta = {"name": "combee-store"}
        manifest = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim}
        cluster.kubectl("create", "-f", "-", namespace=team, stdin=manifest)
    rows = "\n".join(
        json.dumps({"id": str(k), "context": f"{k} + 1", "target": str(k + 1)}) for k in range(40)
    )
    cluster.kubectl("create", "configmap", "rows", f"--from-literal=rows.jsonl={rows}", namespace=team)
    cluster.kubectl("create", "-f", "-", namespace=team, stdin=RUN)

    def pods() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = cluster.get("pods", "-l", "combee.dev/run=first", namespace=team)[
            "items"
        ]
        return found

    found = eventually("the run has a pod", pods, seconds=120)
    for pod in found:
        assert pod["spec"]["serviceAccountName"] == "combee-worker"
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert not [volume for volume in pod["spec"]["volumes"] if "projected" in volume]
    eventually(
        "somebody is told of it",
        lambda: cluster.get("events", "--field-selector=involvedObject.name=first", namespace=team)["items"],
    )
    publish = f"--as=system:serviceaccount:{team}:combee-publish"
    for what, allowed in (("configmaps", "yes"), ("secrets", "no"), ("pods", "no")):
        asked = cluster.try_kubectl("auth", "can-i", "create", what, publish, namespace=team)
        assert asked.stdout.strip() == allowed, (what, asked.stderr)


def _judged(cluster: Cluster, team: str, name: str) -> tuple[str, str]:
    """What becomes of the plan of a run that names a Secret: status and reason."""
    named = json.loads(json.dumps(RUN))
    named["metadata"]["name"] = name
    named["spec"]["models"]["task"]["endpoint"]["apiKeySecretRef"] = {"name": "theirs", "key": "token"}
    cluster.kubectl("create", "-f", "-", namespace=team, stdin=named)

    def condition() -> dict[str, str] | None:
        status = cluster.get("plr", name, namespace=team).get("status", {})
        found = [c for c in status.get("conditions", ()) if c["type"] == "PlanAccepted"]
        return found[0] if found else None

    found: dict[str, str] = eventually("the plan is judged", condition)
    if found["status"] == "False":
        assert not cluster.get("jobs", "-l", f"combee.dev/run={name}", namespace=team)["items"]
    return found["status"], found["reason"]


def _policy(cluster: Cluster, namespace: str, team: str) -> list[dict[str, Any]]:
    """The admission policy alone, as docs/install.md has it rendered."""
    rendered = _rendered(cluster, namespace, {"namespaces": [team]}, "-s", "templates/policy.yaml")
    assert {made["kind"] for made in rendered} == {
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
    return rendered


def _rendered(cluster: Cluster, namespace: str, values: dict[str, Any], *flags: str) -> list[dict[str, Any]]:
    text = Release(cluster, namespace).helm("template", NAME, str(CHART), *flags, values=values)
    return [made for made in yaml.safe_load_all(text) if made]


def _is_measured(cluster: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services/combee-operator-metrics:metrics/proxy/metrics"
    assert "combee_" in cluster.kubectl("get", "--raw", path)


def _all(cluster: Cluster, namespace: str, team: str) -> set[str]:
    """Every object of every kind in both namespaces and in the cluster."""
    furnished(cluster, namespace, team)
    return everything(cluster, namespace, team, wide=True)


def _at_work(release: Release, team: str, before: set[str]) -> set[str]:
    """What there is since ``before``, once there is of everything that an operator makes: a run whose step
    and engine have pods, a gateway, what remembers its traffic, the Lease."""
    runs = Runs(release.cluster, team)
    runs.apply(_slow)
    upstream = {"url": "http://192.0.2.1:9/v1"}
    gateway = {"enabled": True, "upstream": upstream, "capture": {"enabled": True}}
    Playbooks(release.cluster, team).apply(delivery={"gateway": gateway})
    wanted = (
        rf"{release.namespace}/lease\.coordination\.k8s\.io/combee-operator",
        rf"{team}/job\.batch/quickstart-\w+-i\d+-\w+-a\d+",
        rf"{team}/pod/quickstart-\w+-i\d+-.+",
        rf"{team}/pod/quickstart-\w+-e0-main-.+",
        rf"{team}/(deployment\.apps|service)/quickstart-\w+-e0-main",
        rf"{team}/(deployment\.apps|service)/combee-gateway",
        rf"{team}/job\.batch/combee-sweep-.+",
        rf"{team}/configmap/formula-playbook",
    )

    def made() -> set[str]:
        found = everything(release.cluster, release.namespace, team, wide=True) - before
        there = (any(re.fullmatch(one, name) for name in found) for one in wanted)
        return found if all(there) else set()

    found: set[str] = eventually("all that an operator makes is there", made, seconds=300, every=2)
    print(f"made: {', '.join(sorted(found))}")
    return found


def _slow(run: dict[str, Any]) -> None:
    """A run that is met at work, again and again."""
    run["spec"]["engines"][0]["vllm"]["args"] = ["--time-scale=4"]


def _left(release: Release, team: str, before: set[str], *more: str) -> None:
    """Check that only CRDs, versions and data are left since ``before``, and that they are; ``more`` than
    others have."""
    cluster = release.cluster
    stays = _stays(cluster, team) | set(more) | _volumes(cluster, release.namespace, team)
    nothing_left(lambda: everything(cluster, release.namespace, team, wide=True) - before - stays)
    there = everything(cluster, release.namespace, team, wide=True)
    assert stays <= there, sorted(stays - there)
    print(f"stays: {', '.join(sorted(stays))}")


def _stays(cluster: Cluster, team: str) -> set[str]:
    """CRDs, all that users made, frozen plans, and the ConfigMap that services mount."""
    made = [f"customresourcedefinition.apiextensions.k8s.io/{name}" for name in CRDS]
    stays = {f"/{name}" for name in (*made, "apiservice.apiregistration.k8s.io/v1alpha1.combee.dev")}
    runs = {run["metadata"]["name"] for run in cluster.get("plr", namespace=team)["items"]}
    assert {"first", "quickstart"} <= runs
    stays |= {f"{team}/promptlearningrun.combee.dev/{name}" for name in runs}
    stays.add(f"{team}/playbook.combee.dev/formula")
    stays |= {f"{team}/configmap/{name}" for name in ("rows", "quickstart-rows", "formula-playbook")}
    stays |= {f"{team}/persistentvolumeclaim/{name}" for name in ("combee-store", "quickstart-store")}
    return stays | {name for name in _of_runs(cluster, team, _uids(cluster, team)) if "/configmap/" in name}


def _volumes(cluster: Cluster, *namespaces: str) -> set[str]:
    """What the claims there are on."""
    claims = [claim for namespace in namespaces for claim in cluster.get("pvc", namespace=namespace)["items"]]
    return {f"/persistentvolume/{name}" for claim in claims if (name := claim["spec"].get("volumeName"))}


def _uids(cluster: Cluster, team: str) -> set[str]:
    """Of runs, as in the names of what is made for them."""
    return {run["metadata"]["uid"][:8] for run in cluster.get("plr", namespace=team)["items"]}


def _of_runs(cluster: Cluster, team: str, uids: set[str]) -> set[str]:
    """All that was made for these runs, of every kind."""
    return {name for name in everything(cluster, team) if any(f"-{uid}-" in name for uid in uids)}


def _steps(names: set[str]) -> set[str]:
    """The names without their attempt: nothing listens at the run's endpoint, so a step may be at its next
    attempt."""
    return {re.sub(r"-a\d+$", "", name) for name in names}


def _made(cluster: Cluster, team: str) -> set[str]:
    kinds = "jobs,deployments,services,configmaps"
    return set(cluster.kubectl("get", kinds, "-l", "combee.dev/run", "-o", "name", namespace=team).split())
