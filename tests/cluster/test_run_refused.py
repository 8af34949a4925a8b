"""A run of its own that learned something, but less than the version that is active: heldOut refuses it."""

from __future__ import annotations

import json

import pytest
from canaries import simulated, text_with
from cluster_tools import Cluster, eventually
from playbooks import Playbooks
from runs import Operator, Runs, quickstart, template

from combee.sim import keyfile

FEW = 60
"""rows that the second run learns from, in one iteration."""


@pytest.mark.timeout(900, func_only=True)
def test_a_run_that_rose_over_its_own_start_but_not_over_the_active_version_is_refused_by_held_out(
    cluster: Cluster, namespace: str, operator: Operator
) -> None:
    there, runs = Playbooks(cluster, namespace), Runs(cluster, namespace)
    prepare(cluster, namespace)
    there.apply()
    learn(cluster, namespace, "well", template())
    assert runs.ended("well")["phase"] == "Learned"
    (good,) = there.versions()
    there.serves(good)
    delivered, same = there.delivered(), there.delivered_uid()

    learn(cluster, namespace, "badly", planted())
    status = runs.ended("badly")
    assert status["phase"] == "Learned", status  # over the start that it was given
    (worse,) = there.versions().keys() - {good}
    eventually("what it learned is refused", lambda: there.phase(worse) == "Refused")
    print(cluster.kubectl("get", "pb,plr", "-o", "wide", namespace=namespace))
    print(shown := cluster.kubectl("get", "pbv", "-o", "wide", namespace=namespace))
    version = there.versions()[worse]
    gates = [there.versions()[digest]["spec"]["scores"]["gate"] for digest in (good, worse)]
    print("gates:", gates)
    # It rose over the start that it was given, which is why its run published it.
    assert gates[1]["best"] > gates[1]["baseline"] and gates[1]["best"] < gates[0]["best"]
    assert version["spec"]["runRef"]["name"] == "badly"
    told = version["status"]["heldOut"]
    print("heldOut:", told)
    assert told["outcome"] == "Failed" and told["reason"] == "NotBetter"
    assert told["gain"] == pytest.approx(gates[1]["best"] - gates[0]["best"], abs=1e-6) and told["high"] < 0
    assert told["samples"] == gates[0]["rows"] == gates[1]["rows"]
    condition = {one["type"]: one for one in version["status"]["conditions"]}["HeldOutPassed"]
    assert (condition["status"], condition["reason"]) == ("False", "NotBetter")
    assert f"{told['gain']:+.3f} [" in condition["message"] and "vs active" in condition["message"]
    there.shows(READY="True", HELD_OUT="Failed", ACTIVE=good, CANDIDATE="")
    assert there.condition("HeldOutPassed")["message"] == condition["message"]
    (line,) = [one for one in shown.splitlines() if worse in one]
    assert "Refused" in line and f"{told['gain']:+.3f}" in line
    assert worse[:12] in there.tells("Refused", of=worse)["Refused"]
    assert there.status()["activeDigest"] == good
    assert there.delivered() == delivered and there.delivered_uid() == same


def prepare(cluster: Cluster, namespace: str) -> None:
    """The quickstart's claim with a few of its rows, and a playbook with a wrong rule for everything the
    model knows."""
    parts = [one for one in quickstart() if one["kind"] != "PromptLearningRun"]
    (rows,) = [one for one in parts if one["kind"] == "ConfigMap"]
    lines, model = rows["data"]["train.jsonl"].splitlines(), simulated()
    topics = {keyfile.formula_row(json.loads(line)["context"], "")[0] for line in lines}
    # What the model does not know is left to be learned: that is what the run rises by.
    known = (topic for topic in topics if model.book.rule(topic).known)
    few = {
        "train.jsonl": "\n".join(lines[:FEW]) + "\n",
        "prompt.md": text_with(model, dict.fromkeys(known, "wrong")),
    }
    parts.append({**rows, "metadata": {"name": "planted"}, "data": few})
    cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=parts)


def planted() -> dict[str, object]:
    """A run that starts from the wrong rules and sees few rows; it is scored on the same heldOut."""
    spec = template(initialPlaybook={"configMap": {"name": "planted", "key": "prompt.md"}})
    spec["task"]["data"]["train"] = {"configMap": {"name": "planted", "key": "train.jsonl"}}
    spec["batching"] = {**spec["batching"], "size": FEW}
    return spec


def learn(cluster: Cluster, namespace: str, name: str, spec: dict[str, object]) -> None:
    run = {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": name},
        "spec": {"playbookRef": {"name": Playbooks.name}, **spec},
    }
    cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=json.dumps(run))
