"""What an account with only the editor's role cannot make a run's pods do for it."""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from tenants import EDITOR, STRONG, TRUSTED, Tenant, rented
from test_admission_fuzzed import MANIFESTS, differences, listed

from admission_cases import Manifest, changed

ECHO = "https://echo.example.com/v1"
REF = {"name": "theirs", "key": "token"}
RUN: Manifest = {
    "apiVersion": "combee.dev/v1alpha1",
    "kind": "PromptLearningRun",
    "metadata": {"name": "mine"},
    "spec": {
        "playbookRef": {"name": "p"},
        "task": {
            "type": "Formula",
            "data": {"train": {"uri": "s3://data/train"}, "heldOut": {"uri": "s3://data/heldout"}},
        },
        "method": {"type": "ACE"},
        "engines": [{"name": "main", "vllm": {"model": "m"}}],
        "models": {role: {"endpoint": {"url": ECHO, "model": "m"}} for role in ("task", "proposer")},
    },
}
DATA = "spec.task.data"
# Each place of a run that can name a Secret, and a change that names the one called theirs there.
PLACES: dict[str, dict[str, Any]] = {
    "train": {f"{DATA}.train.secretRef": {"name": "theirs"}},
    "heldOut": {f"{DATA}.heldOut.secretRef": {"name": "theirs"}},
    "test": {f"{DATA}.test": {"uri": "s3://data/test", "secretRef": {"name": "theirs"}}},
    "store": {"spec.store": {"uri": "s3://bucket/runs", "secretRef": {"name": "theirs"}}},
    "task": {"spec.models.task.endpoint.apiKeySecretRef": REF},
    "proposer": {"spec.models.proposer.endpoint.apiKeySecretRef": REF},
    "evaluator": {"spec.models.evaluator": {"endpoint": {"url": ECHO, "model": "m", "apiKeySecretRef": REF}}},
    "referee": {"spec.models.referee": {"endpoint": {"url": ECHO, "model": "m", "apiKeySecretRef": REF}}},
    "embedder": {"spec.models.embedder": {"endpoint": {"url": ECHO, "model": "m", "apiKeySecretRef": REF}}},
    "workers": {"spec.workers.template": {"spec": {"imagePullSecrets": [{"name": "theirs"}]}}},
    "engine": {"spec.engines.0.template": {"spec": {"imagePullSecrets": [{"name": "theirs"}]}}},
}
# The same of a Playbook, beside what its runs name.
EVALUATOR = {"url": ECHO, "model": "m", "apiKeySecretRef": REF}
GATEWAY = {"enabled": True, "upstream": {"url": ECHO}}
PARTS: dict[str, dict[str, Any]] = {
    "upstream": {"delivery": {"gateway": {**GATEWAY, "upstream": {"url": ECHO, "apiKeySecretRef": REF}}}},
    "keys": {"delivery": {"gateway": {**GATEWAY, "keys": {"secretRef": {"name": "theirs"}}}}},
    "capture": {
        "delivery": {
            "gateway": {
                **GATEWAY,
                "capture": {"store": {"uri": "s3://bucket/traffic", "secretRef": {"name": "theirs"}}},
            }
        }
    },
    "evaluator": {"delivery": {"gateway": GATEWAY}, "canary": {"mode": "Shadow", "evaluator": EVALUATOR}},
    "prometheus": {
        "canary": {
            "mode": "Prometheus",
            "prometheus": {
                "url": ECHO,
                "tokenSecretRef": REF,
                "score": {"query": "$(version)", "unit": "Ratio"},
            },
        }
    },
    "requests": {
        "delivery": {"gateway": GATEWAY},
        "canary": {
            "mode": "Replay",
            "evaluator": {"url": ECHO, "model": "m"},
            "replay": {"requests": {"uri": "s3://bucket/requests", "secretRef": {"name": "theirs"}}},
        },
    },
}
NO_SECRET = "SecretNotAllowed: you may not get the Secret theirs that is named here."
ONLY_OF_PLAYBOOKS = "the operator makes and deletes only runs of a Playbook"
NO_PODS = "PodsNotAllowed: a template or a Custom task shapes pods, and you may not create pods"


@pytest.fixture(scope="module")
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    """No operator runs: what is not refused at admission stays as it is."""
    with rented(cluster) as made:
        secret = changed(RUN, PLACES["task"])
        eventually("the policy is in force", lambda: made.create(secret, EDITOR).refused)
        yield made


def test_the_editor_may_make_runs_that_name_nothing(tenant: Tenant) -> None:
    made = tenant.create(RUN, EDITOR)
    assert not made.refused, made.text


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_of_the_namespace_is_refused_wherever_it_is_named(tenant: Tenant, place: str) -> None:
    refused = tenant.create(changed(RUN, PLACES[place]), EDITOR)
    assert refused.refused and NO_SECRET in refused.text


@pytest.mark.parametrize("place", PLACES)
def test_a_playbook_is_asked_the_same(tenant: Tenant, place: str) -> None:
    template = {k: v for k, v in changed(RUN, PLACES[place])["spec"].items() if k != "playbookRef"}
    refused = tenant.create(_playbook(template), EDITOR)
    assert refused.refused and NO_SECRET in refused.text
    plain = {k: v for k, v in RUN["spec"].items() if k != "playbookRef"}
    assert not tenant.create(_playbook(plain), EDITOR).refused


@pytest.mark.parametrize("part", PARTS)
def test_a_playbook_is_asked_what_its_gateway_and_its_judge_are_given(tenant: Tenant, part: str) -> None:
    playbook = {**_playbook({}), "spec": PARTS[part]}
    refused = tenant.create(playbook, EDITOR)
    assert refused.refused and NO_SECRET in refused.text
    made = tenant.create(playbook, TRUSTED)
    assert not made.refused, made.text


def _theirs(path: str, kind: str) -> dict[str, Any]:
    """A run that mounts what is called theirs."""
    named: dict[str, Any] = {"pvc": {"claimName": "theirs", "path": "rows.jsonl"}}
    named = named if kind == "claim" else {"configMap": {"name": "theirs", "key": "rows.jsonl"}}
    return changed(RUN, {path: named})


DATA_PLACES = {
    **{
        f"{split}-{kind}": _theirs(f"{DATA}.{split}", kind)
        for split in ("train", "heldOut", "test")
        for kind in ("claim", "configMap")
    },
    "store": changed(RUN, {"spec.store": {"pvc": {"claimName": "theirs"}}}),
    "cache": changed(RUN, {"spec.engines.0.vllm.modelCache": {"claimName": "theirs"}}),
    "initial": changed(
        RUN, {"spec.task.initialPlaybook": {"configMap": {"name": "theirs", "key": "prompt.md"}}}
    ),
}


@pytest.mark.parametrize("place", DATA_PLACES)
def test_a_claim_or_configmap_that_the_editor_may_not_get_is_refused_wherever_it_is_named(
    tenant: Tenant, place: str
) -> None:
    refused = tenant.create(DATA_PLACES[place], EDITOR)
    assert refused.refused and "DataNotAllowed: you may not get the" in refused.text, refused.text
    made = tenant.create(DATA_PLACES[place], TRUSTED)
    assert not made.refused, made.text


REQUESTS = {"mode": "Replay", "evaluator": {"url": ECHO, "model": "m"}}
DATA_PARTS: dict[str, dict[str, Any]] = {
    "capture": {"delivery": {"gateway": {**GATEWAY, "capture": {"store": {"pvc": {"claimName": "theirs"}}}}}},
    **{
        f"requests-{kind}": {
            "delivery": {"gateway": GATEWAY},
            "canary": {**REQUESTS, "replay": {"requests": {kind: named}}},
        }
        for kind, named in (
            ("pvc", {"claimName": "theirs", "path": "rows.jsonl"}),
            ("configMap", {"name": "theirs", "key": "rows.jsonl"}),
        )
    },
    **{
        f"template-{place}": {
            "learn": {"template": {k: v for k, v in run["spec"].items() if k != "playbookRef"}}
        }
        for place, run in DATA_PLACES.items()
    },
}


@pytest.mark.parametrize("part", DATA_PARTS)
def test_a_playbook_is_asked_the_same_of_claims_and_configmaps(tenant: Tenant, part: str) -> None:
    playbook = {**_playbook({}), "spec": DATA_PARTS[part]}
    refused = tenant.create(playbook, EDITOR)
    assert refused.refused and "DataNotAllowed: you may not get the" in refused.text, refused.text
    made = tenant.create(playbook, TRUSTED)
    assert not made.refused, made.text


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/v1", "http://127.1:8000/v1", "http://llm.other.svc/v1", "http://[::1]/v1"]
)
def test_no_pod_is_sent_to_the_node_to_metadata_or_to_another_namespace(tenant: Tenant, url: str) -> None:
    refused = tenant.create(changed(RUN, {"spec.models.task.endpoint.url": url}), TRUSTED)
    assert refused.refused and "AddressNotAllowed: " in refused.text, refused.text
    spec = {"delivery": {"gateway": {"enabled": True, "upstream": {"url": url}}}}
    refused = tenant.create({**_playbook({}), "spec": spec}, TRUSTED)
    assert refused.refused and "AddressNotAllowed: " in refused.text, refused.text


def test_nobody_but_a_judge_makes_pairs_of_a_canary(tenant: Tenant) -> None:
    meta = {"name": "forged", "labels": {"combee.dev/canary": "b-a-p0"}}
    forged = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"pairs.json": "{}"}}
    refused = tenant.cluster.try_kubectl("create", "-f", "-", namespace=tenant.namespace, stdin=forged)
    assert "only the service account combee-publish" in refused.stderr


def test_nobody_else_sends_a_token_for_prometheus_to_another_address(tenant: Tenant) -> None:
    playbook = {**_playbook({}), "metadata": {"name": "measured"}, "spec": PARTS["prometheus"]}
    assert not tenant.create(playbook, TRUSTED, keep=True).refused
    mine = {"spec": {"canary": {"prometheus": {"url": "https://mine.example.com"}}}}
    assert NO_SECRET in tenant.patch("measured", mine, EDITOR, kind="pb")


def test_nobody_else_sends_a_judges_key_to_another_address(tenant: Tenant) -> None:
    playbook = {**_playbook({}), "spec": PARTS["evaluator"]}
    assert not tenant.create(playbook, TRUSTED, keep=True).refused
    mine = {"spec": {"canary": {"evaluator": {"url": "https://mine.example.com/v1"}}}}
    assert NO_SECRET in tenant.patch("p", mine, EDITOR, kind="pb")
    assert tenant.patch("p", mine, TRUSTED, kind="pb") == ""
    assert tenant.patch("p", {"spec": {"version": {"policy": "Manual"}}}, EDITOR, kind="pb") == ""


SERVED: Manifest = {
    "apiVersion": "combee.dev/v1alpha1",
    "kind": "Playbook",
    "metadata": {"name": "served"},
    "spec": {
        "delivery": {
            "gateway": {
                "enabled": True,
                "upstream": {"url": ECHO, "apiKeySecretRef": REF},
                "keys": {"secretRef": {"name": "theirs"}},
                "capture": {
                    "enabled": True,
                    "store": {"uri": "s3://bucket/traffic", "secretRef": {"name": "theirs"}},
                },
            }
        },
        "failureCost": "Low",
        "canary": {"mode": "Shadow", "evaluator": EVALUATOR},
    },
}
ELSEWHERE = "https://mine.example.com/v1"
REQUESTS = {"uri": "s3://bucket/requests", "secretRef": {"name": "theirs"}}


@pytest.mark.parametrize(
    ("change", "asked"),
    [
        ({"spec.delivery.configMap": {"name": "elsewhere"}}, False),
        ({"spec.delivery.deletionPolicy": "Delete"}, False),
        ({"spec.delivery.gateway.limits": {"maxInFlight": 5}}, False),
        ({"spec.delivery.gateway.shadow": {"concurrency": 1}}, False),
        ({"spec.delivery.gateway.capture.percent": 50}, False),
        ({"spec.delivery.gateway.enabled": False, "spec.canary": None}, False),
        ({"spec.delivery.gateway": None, "spec.canary": None}, False),
        ({"spec.delivery.gateway.upstream.apiKeySecretRef": None, "spec.canary": None}, True),
        ({"spec.canary.trafficPercent": 50}, False),
        ({"spec.canary.durationSeconds": 60, "spec.canary.minSamples": 20}, False),
        ({"spec.canary": None}, False),
        ({"metadata.labels": {"a": "b"}}, False),
        ({"spec.delivery.gateway.upstream.url": ELSEWHERE}, True),
        ({"spec.delivery.gateway.upstream.apiKeySecretRef.key": "other"}, True),
        ({"spec.delivery.gateway.upstream.apiKeySecretRef.name": "another"}, True),
        ({"spec.delivery.gateway.keys": {"secretRef": None, "tokenReview": {}}}, True),
        ({"spec.delivery.gateway.keys": None}, True),
        ({"spec.delivery.gateway.capture.store.uri": "s3://mine/traffic"}, True),
        ({"spec.delivery.gateway.capture.retentionSeconds": 60}, True),
        ({"spec.canary.evaluator.url": ELSEWHERE}, True),
        ({"spec.canary.evaluator.model": "dearer"}, True),
        ({"spec.canary.mode": "Replay"}, True),
        ({"spec.canary.replay": {"requests": REQUESTS}}, True),
        ({"spec.delivery.gateway.limits": {"maxInFlight": 5}, "spec.canary.evaluator.url": ELSEWHERE}, True),
    ],
    ids=lambda value: "+".join(value).replace("spec.", "") if isinstance(value, dict) else str(value),
)
def test_who_may_not_get_a_secret_changes_what_does_not_reach_it_and_nothing_else(
    tenant: Tenant, change: dict[str, Any], asked: bool
) -> None:
    tenant.apply(SERVED)
    said = tenant.patch("served", _merged(change), EDITOR, kind="pb", keep=False)
    assert ("SecretNotAllowed: you may not get the Secret" in said) is asked, said
    assert asked or said == ""
    if asked and "another" not in json.dumps(change):
        assert tenant.patch("served", _merged(change), TRUSTED, kind="pb", keep=False) == ""


@pytest.mark.parametrize("part", ["gateway", "capture"])
def test_who_switches_on_what_uses_a_secret_is_asked(tenant: Tenant, part: str) -> None:
    path = {"gateway": "spec.delivery.gateway.enabled", "capture": "spec.delivery.gateway.capture.enabled"}[
        part
    ]
    off = changed(SERVED, {path: False, "metadata.name": f"off-{part}"}, "spec.canary")
    tenant.apply(off)
    again = _merged({"spec.delivery.gateway.limits": {"maxInFlight": 5}})
    assert tenant.patch(f"off-{part}", again, EDITOR, kind="pb", keep=False) == ""
    on = _merged({path: True})
    assert NO_SECRET in tenant.patch(f"off-{part}", on, EDITOR, kind="pb", keep=False)
    assert tenant.patch(f"off-{part}", on, TRUSTED, kind="pb", keep=False) == ""


def _merged(change: dict[str, Any]) -> dict[str, Any]:
    """A merge patch that sets values at dotted paths; None takes one away."""
    return changed({}, change)


def test_a_secret_of_another_namespace_cannot_even_be_said(tenant: Tenant) -> None:
    there = {**REF, "namespace": "kube-system"}
    refused = tenant.create(changed(RUN, {"spec.models.task.endpoint.apiKeySecretRef": there}), EDITOR)
    assert 'unknown field "spec.models.task.endpoint.apiKeySecretRef.namespace"' in refused.text


def test_who_may_get_the_secret_may_name_it_and_no_other(tenant: Tenant) -> None:
    for place in PLACES.keys() - {"workers", "engine"}:
        allowed = tenant.create(changed(RUN, PLACES[place]), TRUSTED)
        assert not allowed.refused, (place, allowed.text)
    both = changed(RUN, {**PLACES["task"], f"{DATA}.train.secretRef": {"name": "another"}})
    refused = tenant.create(both, TRUSTED)
    assert "SecretNotAllowed: you may not get the Secret another that is named here" in refused.text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"spec.workers.template": {"spec": {"nodeSelector": {"a": "b"}}}}, NO_PODS),
        ({"spec.workers.template": {"metadata": {"labels": {"a": "b"}}}}, NO_PODS),
        ({"spec.engines.0.template": {"spec": {"priorityClassName": "high"}}}, NO_PODS),
        ({"spec.workers.template": {"spec": {"serviceAccountName": "admin"}}}, NO_PODS),
        ({"spec.task.type": "Custom", "spec.task.custom": {"class": "thief:ReadsHeldOut"}}, NO_PODS),
        (
            {
                "spec.task.type": "Custom",
                "spec.task.custom": {"container": {"image": "thief", "command": ["read"]}},
            },
            NO_PODS,
        ),
        ({f"{DATA}.train.uri": "file:///etc/passwd"}, "on a cluster only s3://, gs://, az://, https://"),
        ({f"{DATA}.heldOut.uri": "simplecache::file:///etc/passwd"}, "'::' chains filesystems"),
        ({"spec.store": {"uri": "file:///"}}, "on a cluster only s3://, gs://, az://"),
    ],
)
def test_what_reaches_beyond_the_editors_rights_is_refused(
    tenant: Tenant, change: dict[str, Any], says: str
) -> None:
    refused = tenant.create(changed(RUN, change), EDITOR)
    assert refused.refused and says in refused.text


def test_who_may_create_pods_still_needs_leave_to_use_an_account(tenant: Tenant) -> None:
    placed = changed(RUN, {"spec.workers.template": {"spec": {"nodeSelector": {"a": "b"}}}})
    assert not tenant.create(placed, STRONG).refused
    for place in ("spec.workers.template", "spec.engines.0.template"):
        refused = tenant.create(changed(RUN, {place: {"spec": {"serviceAccountName": "admin"}}}), STRONG)
        assert "PodsNotAllowed: you may not use the service account admin" in refused.text


def test_no_template_mounts_a_folder_of_the_node(tenant: Tenant) -> None:
    volumes = [{"name": "node", "hostPath": {"path": "/"}}]
    run = changed(RUN, {"spec.workers.template": {"spec": {"volumes": volumes, "hostNetwork": True}}})
    assert 'unknown field "spec.workers.template.spec.volumes"' in tenant.create(run, STRONG).text
    pruned = tenant.create(run, STRONG, fieldValidation="Ignore")
    assert not pruned.refused, pruned.text
    assert pruned.said["spec"]["workers"]["template"] == {"spec": {}}


def test_the_most_that_is_asked_can_be_afforded_and_more_is_refused(tenant: Tenant) -> None:
    """The server limits what the questions of one policy may cost."""
    change = {
        path: json.loads(json.dumps(value).replace("theirs", f"s{k}"))
        for k, place in enumerate(list(PLACES)[:8])
        for path, value in PLACES[place].items()
    }
    pulls = [{"name": f"s{k}"} for k in range(12)]
    change["spec.workers.template"] = {"spec": {"imagePullSecrets": pulls, "serviceAccountName": "a0"}}
    change["spec.engines"] = [
        {"name": f"e{k}", "vllm": {"model": "m"}, "template": {"spec": {"serviceAccountName": f"a{k}"}}}
        for k in range(4)
    ]
    run = changed(RUN, change)
    allowed = tenant.create(run)
    assert not allowed.refused, allowed.text
    for path, value, says in (
        ("spec.workers.template.spec.imagePullSecrets", [*pulls[:8], *({"name": f"t{k}"} for k in range(5))],
         "more than 12 different Secrets"),
        ("spec.workers.template.spec.serviceAccountName", "a4", "more than 4 different service accounts"),
    ):  # fmt: skip
        assert says in tenant.create(changed(run, {path: value})).text


def test_runs_that_the_operator_makes_for_a_playbook_are_exempt_and_no_others(tenant: Tenant) -> None:
    owner = {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "Playbook",
        "name": "p",
        "uid": "0",
        "controller": True,
    }
    named = changed(RUN, PLACES["task"])
    owned = changed(named, {"metadata.ownerReferences": [owner]})
    made = tenant.create(owned, tenant.release.account)
    assert not made.refused, made.text
    other = changed(named, {"metadata.ownerReferences": [{**owner, "apiVersion": "example.com/v1"}]})
    for run in (named, other):
        refused = tenant.create(run, tenant.release.account)
        # Two policies refuse it; which one is told is the server's choice.
        assert refused.refused and (NO_SECRET in refused.text or ONLY_OF_PLAYBOOKS in refused.text)
    assert NO_SECRET in tenant.create(owned, EDITOR).text


def test_a_run_that_has_not_started_is_checked_again_when_it_changes(tenant: Tenant) -> None:
    run = changed(RUN, {**PLACES["task"], "metadata.name": "bobs"})
    assert not tenant.create(run, TRUSTED, keep=True).refused
    mine = _url("mine")
    assert NO_SECRET in tenant.patch("bobs", mine, EDITOR)
    assert tenant.patch("bobs", mine, TRUSTED) == ""
    assert tenant.patch("bobs", {"metadata": {"labels": {"a": "b"}}}, EDITOR) == ""
    # Nobody but the operator says that a run has started.
    started = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
    asked = ("auth", "can-i", "patch", "promptlearningruns.combee.dev", "--subresource=status")
    assert tenant.cluster.try_kubectl(*asked, f"--as={EDITOR}", namespace=tenant.namespace).stdout == "no\n"
    tenant.cluster.kubectl(
        *("patch", "plr", "bobs", "--type=merge", "--subresource=status", "-p", json.dumps(started)),
        namespace=tenant.namespace,
    )
    assert "cannot be changed once the run has started" in tenant.patch("bobs", _url("other"), EDITOR)
    assert tenant.patch("bobs", {"spec": {"suspend": True}}, EDITOR) == ""


def test_the_garbage_collector_is_not_asked(tenant: Tenant) -> None:
    """It takes a finalizer off with rights of its own, which are not to create pods."""
    change = {"metadata.name": "carols", "spec.workers.template": {"spec": {"nodeSelector": {"a": "b"}}}}
    assert not tenant.create(changed(RUN, change), STRONG, keep=True).refused
    tenant.cluster.kubectl(
        *("delete", "plr", "carols", "--cascade=foreground", "--timeout=180s", f"--as={EDITOR}"),
        namespace=tenant.namespace,
    )


def test_the_server_finds_nothing_wrong_with_the_policies(tenant: Tenant) -> None:
    kind = "validatingadmissionpolicies"
    ours = f"combee-operator-{tenant.namespace}-"
    found = tenant.cluster.get(kind, "-l", "app.kubernetes.io/instance=combee")["items"]
    policies = [policy for policy in found if policy["metadata"]["name"].startswith(ours)]
    names = {policy["metadata"]["name"].removeprefix(ours) for policy in policies}
    by_kind = {f"{kind}-addresses" for kind in ("promptlearningruns", "playbooks")}
    by_kind |= {f"{kind}-data" for kind in ("runs", "playbooks")}
    assert names == {"canaries", "gateways", "own", "pairs", "playbooks", "runs"} | by_kind
    for policy in policies:
        # Copies without a binding, made now that the server knows the CRDs; the second with a mistake.
        name = f"{policy['metadata']['name']}-{secrets.token_hex(2)}"
        spec = copy.deepcopy(policy["spec"])
        spec["validations"].append({"expression": "object.notThere == 1"})
        try:
            assert _warnings(tenant.cluster, f"{name}-good", policy["spec"]) == []
            (warning,) = _warnings(tenant.cluster, f"{name}-bad", spec)
            assert "notThere" in warning["warning"]
        finally:
            tenant.cluster.kubectl("delete", kind, f"{name}-good", f"{name}-bad", "--ignore-not-found")


def _warnings(cluster: Cluster, name: str, spec: dict[str, Any]) -> list[dict[str, str]]:
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }
    cluster.kubectl("create", "-f", "-", stdin=policy)

    def checked() -> dict[str, Any] | None:
        status = cluster.get("validatingadmissionpolicy", name).get("status", {})
        return status if "typeChecking" in status else None

    found: list[dict[str, str]] = eventually("the types are checked", checked)["typeChecking"].get(
        "expressionWarnings", []
    )
    return found


def test_the_operator_may_not_get_secrets_anywhere(tenant: Tenant) -> None:
    for place in (("-A",), ("-n", tenant.namespace), ("-n", "kube-system")):
        for verb in ("get", "list", "watch"):
            assert not tenant.release.may(verb, "secrets", *place)


def _playbook(template: dict[str, Any]) -> Manifest:
    return {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "Playbook",
        "metadata": {"name": "p"},
        "spec": {"learn": {"template": template}},
    }


def _url(name: str) -> dict[str, Any]:
    return {"spec": {"models": {"task": {"endpoint": {"url": f"https://{name}.example.com/v1"}}}}}


def test_random_manifests_are_taken_and_refused_by_both_the_server_and_validate(tenant: Tenant) -> None:
    unlike = differences(tenant, range(MANIFESTS, MANIFESTS + 300))
    assert [str(one) for one in unlike if not listed(one)] == []
