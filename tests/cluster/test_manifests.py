"""The objects of a run, asked of a real API server and kubelet; the namespace admits restricted pods only."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_tools import REPOSITORY, Cluster, eventually

GOLDEN = REPOSITORY / "tests/unit/objects/golden"
FILES = sorted(path for path in GOLDEN.rglob("*.yaml") if not path.stem.startswith(("workload", "sandbox-")))
"""all but those of a kind of Kueue's and of agent-sandbox's, which test_kueue and test_warm_pools make."""
ACCOUNTS = ("combee-worker", "combee-publish", "bucket-reader")

LOOK = r"""
import json, os, pathlib
def writable(folder):
    try:
        (pathlib.Path(folder) / "probe").write_text("x")
        return True
    except OSError:
        return False
secrets = pathlib.Path("/etc/combee/secrets")
seen = {
    "user": [os.getuid(), os.getgid()],
    "groups": sorted(os.getgroups()),
    "secrets": {str(p.relative_to(secrets)): p.read_text() for p in secrets.glob("*/[a-zA-Z]*")},
    "run": sorted(os.listdir("/etc/combee/run")),
    "plan": json.loads(pathlib.Path("/etc/combee/plan/plan.json").read_text())["iteration"],
    "store": os.environ["COMBEE_STORE"],
    "step": json.loads(os.environ["COMBEE_STEP"])["name"],
    "index": os.environ["JOB_COMPLETION_INDEX"],
    "token": os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token"),
    "links": sorted(name for name in os.environ if name.startswith("VLLM_")),
    "writable": [
        f for f in ("/tmp", "/", "/etc/combee/run", "/etc/combee/secrets/store", "/home") if writable(f)
    ],
    "capabilities": next(l for l in open("/proc/self/status") if l.startswith("CapEff")).split()[1],
    "seccomp": next(l for l in open("/proc/self/status") if l.startswith("Seccomp:")).split()[1],
    "no_new_privileges": next(l for l in open("/proc/self/status") if l.startswith("NoNewPrivs")).split()[1],
}
open("/dev/termination-log", "w").write(json.dumps(seen))
"""


def _golden(path: Path, namespace: str) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    made["metadata"]["namespace"] = namespace
    # The run that owns it is not there, and the garbage collector would take what it finds without one.
    del made["metadata"]["ownerReferences"]
    return made


@pytest.fixture
def accounts(kubectl: Callable[..., str]) -> None:
    """The service accounts that the goldens name: a pod without its account is refused."""
    for name in ACCOUNTS:
        kubectl("create", "serviceaccount", name)


def test_goldens_are_there() -> None:
    assert len(FILES) > 20


def test_every_object_is_admitted_as_it_is(
    cluster: Cluster, namespace: str, kubectl: Callable[..., str], accounts: None
) -> None:
    made = [_golden(path, namespace) for path in FILES]
    # One after the other, as kubectl prints them.
    printed = kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=made)
    kept = json.loads("[" + printed.replace("\n}\n{", "\n},\n{") + "]")
    for path, asked, found in zip(FILES, made, kept, strict=True):
        assert _lacks(asked, found) == [], path
    kubectl("apply", "--dry-run=server", "--warnings-as-errors", "-f", "-", stdin=made)


def test_every_pod_is_admitted_at_the_restricted_level(
    cluster: Cluster, namespace: str, kubectl: Callable[..., str], accounts: None
) -> None:
    pods: list[dict[str, Any]] = []
    for path in FILES:
        template = _golden(path, namespace).get("spec", {}).get("template")
        if template is not None:
            meta = {**template["metadata"], "name": f"pod-{len(pods)}", "namespace": namespace}
            pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]})
    kubectl("create", "--dry-run=server", "-f", "-", stdin=pods)
    for pod in pods:
        del pod["spec"]["containers"][0]["securityContext"]["capabilities"]
    weaker = cluster.try_kubectl("create", "--dry-run=server", "-f", "-", namespace=namespace, stdin=pods)
    refused = [line for line in weaker.stderr.splitlines() if 'violates PodSecurity "restricted' in line]
    assert len(refused) == len(pods) > 10, weaker.stderr


def test_the_server_refuses_what_a_step_job_must_not_have(
    cluster: Cluster, namespace: str, accounts: None
) -> None:
    """Why jobs.py says what it says: these do not go together on this API server."""
    made = _golden(GOLDEN / "plain/step-map.yaml", namespace)
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    for change, complaint in (
        ({"podFailurePolicy": {"rules": [rule]}}, "podReplacementPolicy"),
        ({"maxFailedIndexes": made["spec"]["completions"] + 1}, "maxFailedIndexes"),
        ({"completionMode": "NonIndexed"}, "backoffLimitPerIndex"),
    ):
        bad = copy.deepcopy(made)
        bad["spec"].update(change)
        refused = cluster.try_kubectl("create", "--dry-run=server", "-f", "-", namespace=namespace, stdin=bad)
        assert refused.returncode != 0 and complaint in refused.stderr, refused.stderr


def test_a_step_pod_sees_its_share_and_writes_nowhere_else(
    cluster: Cluster, namespace: str, kubectl: Callable[..., str], accounts: None
) -> None:
    """A finish Job of the full run, with a program that reports what it finds instead of the worker."""
    job = _golden(GOLDEN / "full/step-finish.yaml", namespace)
    _make_runnable(job, cluster.image("worker"))
    for name, secret in (
        ("s3-store", "store"),
        ("s3-train", "train"),
        ("s3-heldout", "heldOut"),
        ("task-key", "task"),
    ):
        kubectl(
            "create", "secret", "generic", name, f"--from-literal=token={secret}", "--from-literal=more=x"
        )
    for name in ("full/run-config.yaml", "full/plan-config.yaml"):
        kubectl("create", "-f", "-", stdin=_golden(GOLDEN / name, namespace))
    kubectl("create", "service", "clusterip", "vllm", "--tcp=8000")
    kubectl("create", "-f", "-", stdin=job)
    seen = _said(cluster, namespace, job["metadata"]["name"])
    assert seen["user"] == [10001, 10001] and seen["groups"] == [10001]
    assert seen["secrets"] == {
        "store/token": "store",
        "store/more": "x",
        "train/token": "train",
        "train/more": "x",
        "heldOut/token": "heldOut",
        "heldOut/more": "x",
        "role-task/token": "task",
    }
    assert "run.json" in seen["run"] and seen["plan"] == 3
    assert seen["store"] == "s3://$(HOME)" and seen["step"].endswith("-finish-a0") and seen["index"] == "0"
    assert seen["token"] is False and seen["links"] == []
    assert seen["writable"] == ["/tmp"]
    assert int(seen["capabilities"], 16) == 0
    assert seen["seccomp"] == "2" and seen["no_new_privileges"] == "1"


def test_an_engine_comes_up_as_it_is_made_and_gives_its_place_back(
    cluster: Cluster, namespace: str, kubectl: Callable[..., str], accounts: None
) -> None:
    """The plain run's engine, with the simulated model's image: the restricted pod can serve, the
    probes find it, the headless Service names it, and none is left at 0."""
    service, deployment = (
        _golden(GOLDEN / f"plain/engine-main-{part}.yaml", namespace) for part in ("service", "deployment")
    )
    vllm = deployment["spec"]["template"]["spec"]["containers"][0]
    vllm["image"] = cluster.image("sim")
    vllm["resources"] = {"requests": {"cpu": "10m", "memory": "64Mi"}}
    kubectl("create", "-f", "-", stdin=service)
    kubectl("create", "-f", "-", stdin=deployment)
    name = deployment["metadata"]["name"]
    slices = ("-l", f"kubernetes.io/service-name={name}")

    def addresses() -> list[str]:
        found = cluster.get("endpointslices", *slices, namespace=namespace)["items"]
        ready = [e for part in found for e in part["endpoints"] or [] if e["conditions"]["ready"]]
        return [address for endpoint in ready for address in endpoint["addresses"]]

    pods = ("-l", f"combee.dev/engine={deployment['metadata']['labels']['combee.dev/engine']}")
    eventually("the engine is ready", addresses, seconds=120)
    (pod,) = cluster.get("pods", *pods, namespace=namespace)["items"]
    assert addresses() == [pod["status"]["podIP"]]
    assert kubectl("exec", pod["metadata"]["name"], "--", "id", "-u").strip() == "10001"
    kubectl("scale", "deployment", name, "--replicas=0")
    eventually("its pod is gone", lambda: not cluster.get("pods", *pods, namespace=namespace)["items"])
    eventually("nobody is sent there", lambda: not addresses())


def _make_runnable(job: dict[str, Any], image: str) -> None:
    """On any node, at once, with our program; and an address that looks like a variable."""
    pod = job["spec"]["template"]["spec"]
    del pod["nodeSelector"]
    worker = pod["containers"][0]
    worker.update(image=image, command=["python3", "-c", LOOK])
    worker["resources"] = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}
    next(v for v in worker["env"] if v["name"] == "COMBEE_STORE")["value"] = "s3://$$(HOME)"


def _said(cluster: Cluster, namespace: str, job: str) -> dict[str, Any]:
    def message() -> dict[str, Any] | None:
        pods = cluster.get("pods", "-l", f"batch.kubernetes.io/job-name={job}", namespace=namespace)["items"]
        for pod in pods:
            for status in pod["status"].get("containerStatuses", []):
                if (ended := status["state"].get("terminated")) is not None:
                    assert ended["exitCode"] == 0, ended
                    found: dict[str, Any] = json.loads(ended["message"])
                    return found
        return None

    found: dict[str, Any] = eventually("the step's pod ends", message, seconds=120)
    return found


def _lacks(wanted: Any, kept: Any, path: str = "") -> list[str]:
    """Paths of what was asked for and is not kept as it was: fields the server dropped or changed."""
    if isinstance(wanted, dict):
        if not isinstance(kept, dict):
            return [path]
        return [
            lost
            for key, value in wanted.items()
            # Empty and absent are the same to the server.
            if value not in ({}, [], False, "") or key in kept
            for lost in ([f"{path}.{key}"] if key not in kept else _lacks(value, kept[key], f"{path}.{key}"))
        ]
    if isinstance(wanted, list):
        if not isinstance(kept, list) or len(wanted) != len(kept):
            return [path]
        return [
            lost
            for i, (a, b) in enumerate(zip(wanted, kept, strict=True))
            for lost in _lacks(a, b, f"{path}[{i}]")
        ]
    return [] if wanted == kept else [path]
