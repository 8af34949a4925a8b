"""What a run loses on the way changes nothing: pods, finished pods, a whole Job, the operator, an engine."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from runs import ENDED, Runs, operating
from test_crowded import served_elsewhere
from test_life import blob, definitions, locally  # noqa: F401 - definitions installs the CRDs

pytestmark = pytest.mark.timeout(900)
SLOTS = 16
DAMAGES = ("worker pod", "a whole Job", "operator", "finished pods", "worker pod", "operator and a Job")


def answered(cluster: Cluster, namespace: str) -> Counter[str]:
    """How often the server answered each request, by the request's digest."""
    log = cluster.kubectl("exec", "deployment/llm", "--", "cat", "/tmp/requests.jsonl", namespace=namespace)
    rows = [json.loads(line) for line in log.splitlines()]
    return Counter(row["request"] for row in rows if row["status"] == 200)


def test_damage_at_random_moments_changes_no_byte(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    elsewhere = f"{namespace}-llm"
    url = served_elsewhere(cluster, elsewhere, "--log=/tmp/requests.jsonl", "--time-scale=0.3")
    runs, chance = Runs(cluster, namespace), random.Random(5)

    def from_outside(run: dict[str, Any]) -> None:
        spec = run["spec"]
        endpoint = {"endpoint": {"url": url, "model": "openai/gpt-oss-120b"}}
        spec["models"] = {"task": dict(endpoint), "proposer": {**endpoint, "sampling": {"temperature": 0.7}}}
        del spec["engines"]
        spec["batching"] = {"mode": "Fixed", "size": 40, "reason": "three iterations"}
        spec["workers"] = {"parallelism": 2, "concurrency": SLOTS}

    try:
        runs.apply(from_outside)
        broken = 0
        for damage in DAMAGES:
            with operating(cluster, namespace, tmp_path / "operator.log") as operator:
                pods = eventually("a step is at work", lambda: _at_work(runs), seconds=200)
                if pods[0]["kind"] == "PromptLearningRun":
                    break
                print(f"broke: {_break(damage, runs, operator, chance.choice(pods))}")
                broken += 1
        with operating(cluster, namespace, tmp_path / "operator.log"):
            status = runs.ended()
        assert status["phase"] == "Learned", status["message"]
        assert broken >= 4
        twice = {key: times - 1 for key, times in answered(cluster, elsewhere).items() if times > 1}
        print(f"{broken} damages, {sum(twice.values())} requests answered twice; {status['message']}")
        assert sum(twice.values()) <= SLOTS * broken
        locally(runs, tmp_path, from_outside)
        assert blob(tmp_path, runs.playbook()).exists(), "the laptop learned another playbook"
    finally:
        cluster.kubectl("delete", "namespace", elsewhere, "--wait=false")


def _at_work(runs: Runs) -> list[dict[str, Any]]:
    """Pods of steps that run now; the run itself, when it is over."""
    if (run := runs.get()).get("status", {}).get("phase") in ENDED:
        return [run]
    pods = runs.cluster.get("pods", "-l", "combee.dev/step", namespace=runs.namespace)["items"]
    return [
        {**pod, "kind": "Pod"}
        for pod in pods
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


def _break(damage: str, runs: Runs, operator: Any, pod: dict[str, Any]) -> str:
    """Do the damage to what ``pod`` belongs to; what was broken."""
    name, job = pod["metadata"]["name"], pod["metadata"]["labels"].get("job-name", "")
    delete = ("delete", "--wait=false", "--ignore-not-found")
    if "operator" in damage:
        operator.kill()
    if "pod" in damage and "finished" not in damage:
        runs.cluster.kubectl(*delete, "pod", name, "--grace-period=0", "--force", namespace=runs.namespace)
        return f"pod {name}"
    if "Job" in damage:
        runs.cluster.kubectl(*delete, "job", job, namespace=runs.namespace)
        return f"{damage}: {job}"
    if damage == "finished pods":
        chosen = "--field-selector=status.phase=Succeeded"
        return runs.cluster.kubectl(
            "delete", "pods", "--wait=false", chosen, "-o", "name", namespace=runs.namespace
        )
    return damage
