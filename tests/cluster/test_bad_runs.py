"""Every bad manifest, given to a cluster where the operator runs: refused by the server, or shown by the
operator with a reason and what to do; the operator never restarts, and a good run beside them learns."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from kubernetes import client, config
from runs import Operator, Runs, at_once, operating, quickstart
from test_admission import Server

from admission_cases import Case, bad

pytestmark = pytest.mark.timeout(1200, func_only=True)
MANY = 60
ROWS = "\n".join(json.dumps({"context": f"{k} + 1", "target": str(k + 1)}) for k in range(60))
OTHERS = "\n".join(json.dumps({"context": f"{k} + 2", "target": str(k + 2)}) for k in range(60))
DATA = {
    "rows.jsonl": ROWS,
    "others.jsonl": OTHERS,
    "few.jsonl": "\n".join(OTHERS.splitlines()[:2]),
    "broken.jsonl": ROWS + '\n{"context": ',
    "empty.jsonl": "",
}
BAD_DATA = {
    "broken": ("broken.jsonl", "others.jsonl", "InvalidData", "broken.jsonl:61: not valid JSON"),
    "empty": ("empty.jsonl", "others.jsonl", "InvalidData", "there is no row in it"),
    "overlap": ("rows.jsonl", "rows.jsonl", "DataOverlap", "rows are in train too"),
    "too-few": ("rows.jsonl", "few.jsonl", "HeldOutTooSmall", "heldOut"),
}
"""what only a pod can know: name -> train, heldOut, reason, words of the message."""
NOT_THERE = {
    "no-key": ("absent.jsonl", "absent.jsonl", "references non-existent config key"),
}


@pytest.fixture
def operator(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    """For one namespace, and without the policy that guards Secrets."""
    more = {"COMBEE_SECRET_POLICY": "false", "COMBEE_VLLM_IMAGE": cluster.image("sim")}
    with operating(cluster, namespace, tmp_path / "operator.log", **more) as started:
        yield started


def plan(cluster: Cluster, namespace: str) -> dict[str, dict[str, Any]]:
    """Run -> its condition PlanAccepted, of those that have one."""
    found: dict[str, dict[str, Any]] = {}
    for run in cluster.get("plr", namespace=namespace)["items"]:
        for one in run.get("status", {}).get("conditions", ()):
            if one["type"] == "PlanAccepted":
                found[run["metadata"]["name"]] = one
    return found


def with_data(name: str, train: str, held_out: str, url: str = "http://192.0.2.1:9/v1") -> dict[str, Any]:
    run = copy.deepcopy(next(o for o in quickstart() if o["kind"] == "PromptLearningRun"))
    run["metadata"]["name"] = name
    data = {"train": train, "heldOut": held_out}
    run["spec"]["task"]["data"] = {k: {"configMap": {"name": "data", "key": v}} for k, v in data.items()}
    run["spec"]["models"] = {role: {"endpoint": {"url": url, "model": "m"}} for role in ("task", "proposer")}
    del run["spec"]["engines"]
    return run


def refused_by_the_server(server: Server) -> int:
    """How many bad manifests the server refused, each with its message."""
    cases = [case for case in bad() if not case.operator]
    for case in cases:
        _, message = server.create(case.manifest, dry_run=False)
        assert case.says in message, case.name
    return len(cases)


def apply_for_the_operator(server: Server) -> dict[str, Case]:
    cases = {f"bad-{index}": case for index, case in enumerate(bad()) if case.operator}
    for name, case in cases.items():
        manifest = copy.deepcopy(case.manifest)
        manifest["metadata"]["name"] = name
        assert server.create(manifest, dry_run=False)[1] == "", case.name
    return cases


def test_all_bad_manifests_are_told_why_and_others_go_on(
    cluster: Cluster, namespace: str, team: str, operator: Operator
) -> None:
    api = client.CustomObjectsApi(config.new_client_from_config(cluster.environment["KUBECONFIG"]))
    server, runs = Server(api, namespace), Runs(cluster, namespace)
    once = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    beside: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "once"}, "spec": once},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "data"}, "data": DATA},
    ]
    cluster.kubectl("create", "-f", "-", namespace=namespace, stdin=beside)
    runs.apply(at_once)
    cases = apply_for_the_operator(server)
    for name, (train, held_out, *_) in {**BAD_DATA, **NOT_THERE}.items():
        assert server.create(with_data(name, train, held_out), dry_run=False)[1] == ""
    cluster.kubectl("create", "service", "clusterip", "llm", "--tcp=8000", namespace=team)
    elsewhere = with_data("elsewhere", "rows.jsonl", "others.jsonl", f"http://llm.{team}:8000/v1")
    assert server.create(elsewhere, dry_run=False)[1] == ""
    refused = refused_by_the_server(server)

    def judged() -> bool:
        found = plan(cluster, namespace)
        return all(found.get(name, {}).get("status") == "False" for name in (*cases, *BAD_DATA))

    try:
        eventually("all are judged", judged, seconds=300)
    except BaseException:
        print(json.dumps(plan(cluster, namespace), indent=1)[:6000])
        raise
    found = plan(cluster, namespace)
    for name, case in cases.items():
        assert (found[name]["reason"], case.says in found[name]["message"]) == (case.reason, True), found[
            name
        ]
        assert not cluster.get("pods", "-l", f"combee.dev/run={name}", namespace=namespace)["items"], name
    for name, (_, _, reason, says) in BAD_DATA.items():
        assert (found[name]["reason"], says in found[name]["message"]) == (reason, True), found[name]
    for one in (*cases, *BAD_DATA):
        # What is wrong, and then a sentence that says what to do.
        assert re.search(r"[.;] ", found[one]["message"]), found[one]
    for name, (*_, says) in NOT_THERE.items():
        _says_what_is_missing(runs, name, says)
    (failed,) = [c for c in runs.ended("elsewhere")["conditions"] if c["type"] == "Failed"]
    assert failed["reason"] == "AddressNotAllowed", failed
    assert f"llm.{team}: it leads to llm.{team}.svc.cluster.local, a name of" in failed["message"], failed
    assert refused + len(cases) + len(BAD_DATA) >= MANY
    print(f"{refused} refused by the server, {len(cases) + len(BAD_DATA)} by the operator")
    status = runs.ended()
    assert status["phase"] == "Learned", status["message"]
    assert operator.process.poll() is None, operator.log.read_text()[-2000:]


def _says_what_is_missing(runs: Runs, name: str, says: str) -> None:
    def placed() -> dict[str, Any] | None:
        found = [c for c in runs.status(name).get("conditions", ()) if c["type"] == "PodsPlaced"]
        return found[0] if found and found[0]["status"] == "False" else None

    one = eventually(f"{name} says what is missing", placed, seconds=120)
    assert one["reason"] == "Unschedulable" and says in one["message"], one
    assert "Create what it names, in the run's namespace." in one["message"]
