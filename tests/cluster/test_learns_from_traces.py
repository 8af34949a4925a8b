"""Traces on a real cluster: a run without heldOut ends, and a person decides about its candidate."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from playbooks import Playbooks
from runs import FORMULA, Operator, Runs


def traces(count: int = 24) -> str:
    """Somebody answered rows of the Formula data wrongly, and wrote it down; the last line is torn."""
    lines = []
    for line in (FORMULA / "train.jsonl").read_text().splitlines()[:count]:
        row = json.loads(line)
        said = [
            {"role": "user", "content": row["context"]},
            {"role": "assistant", "content": "It is 3.14159."},
        ]
        outcome = {"success": False, "feedback": f"Expected {row['target']}, got 3.14159."}
        lines.append(json.dumps({"messages": said, "outcome": outcome}))
    return "\n".join([*lines, '{"messages": [']) + "\n"


@pytest.mark.timeout(900, func_only=True)
def test_what_traces_teach_is_a_candidate_that_no_gate_promotes_and_a_person_may(
    cluster: Cluster, namespace: str, operator: Operator
) -> None:
    there, runs = Playbooks(cluster, namespace, "quickstart"), Runs(cluster, namespace)
    there.apply()
    rows = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "traces"},
        "data": {"t.jsonl": traces()},
    }
    cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=rows)

    def learn_from_traces(run: dict[str, Any]) -> None:
        train = {"configMap": {"name": "traces", "key": "t.jsonl"}}
        run["spec"]["task"] = {"type": "Traces", "data": {"train": train}}
        run["spec"]["aggregation"] = {"verify": "Off"}
        run["spec"]["batching"] = {"mode": "Fixed", "size": 24, "reason": "one iteration"}

    runs.apply(learn_from_traces)
    status = runs.ended()
    print(cluster.kubectl("get", "plr,pb,pbv", namespace=namespace))
    assert status["phase"] == "Learned", status
    assert "learned from 24 traces, and scored on nothing" in status["message"]
    assert status["spend"]["rollouts"] == 0
    assert "task" not in status["usage"]
    (digest,) = eventually("its version is there", lambda: list(there.versions()))
    version = there.versions()[digest]
    assert "gate" not in version["spec"].get("scores", {})
    held = eventually(
        "the gate has spoken", lambda: there.versions()[digest].get("status", {}).get("heldOut"), seconds=180
    )
    assert (held["outcome"], held["reason"]) == ("Error", "NotMeasured")
    assert there.delivered() == ("", "")
    there.decide(digest, "Promote")
    there.serves(digest)
    assert there.delivered()[1] == runs.playbook()
