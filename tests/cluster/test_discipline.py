"""A run that does not state its inputs does not start on a cluster of discipline Strict, nor does a Playbook
make one; each goes on as soon as the answers are there. Each escalation of the strategist's brief is refused,
or waits, with its message."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from playbooks import Playbooks
from runs import FINISHED, Runs, at_once, operating, quickstart, template

from escalations import ESCALATIONS, escalated

pytestmark = pytest.mark.timeout(900, func_only=True)
ASKED = (
    "discipline Strict: not stated: spec.task.failureCost (what happens if it gets worse in production?), "
    "spec.budget (what may it use at most, of rollouts, tokens, gpuSeconds, wallClockSeconds, money?). "
    "Say it there, or set spec.discipline: Advisory to be warned instead"
)
TEMPLATE = "spec.learn.template.task.failureCost (what happens if it gets worse in production?)"


def silent(run: dict[str, Any]) -> None:
    """Take two answers out of the quickstart."""
    at_once(run)
    del run["spec"]["task"]["failureCost"]
    del run["spec"]["budget"]


def accepted(runs: Runs, name: str = "quickstart") -> dict[str, str]:
    """The condition PlanAccepted of a run."""

    def found() -> dict[str, str] | None:
        conditions = runs.status(name).get("conditions", ())
        return next((one for one in conditions if one["type"] == "PlanAccepted"), None)

    condition: dict[str, str] = eventually("the plan is judged", found, seconds=120)
    return condition


def test_a_run_waits_for_its_inputs_and_starts_when_they_are_stated(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    runs = Runs(cluster, namespace)
    with operating(cluster, namespace, tmp_path / "operator.log", COMBEE_DISCIPLINE="Strict"):
        runs.apply(silent)
        condition = accepted(runs)
        print(cluster.kubectl("get", "plr", "-o", "wide", namespace=namespace))
        told = (condition["status"], condition["reason"], condition["message"])
        assert told == ("False", "MissingInput", ASKED)
        assert runs.left() == []
        assert "startTime" not in runs.status()
        runs.apply(at_once)
        status = runs.ended()
        assert status["phase"] == "Learned", status["message"]
        assert "; the serial baseline is waived, so no speed-up is shown: " in accepted(runs)["message"]
        assert "not stated" not in accepted(runs)["message"]


def test_a_run_that_says_advisory_starts_and_shows_what_it_did_not_say(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    def advisory(run: dict[str, Any]) -> None:
        silent(run)
        run["spec"]["discipline"] = "Advisory"

    runs = Runs(cluster, namespace)
    with operating(cluster, namespace, tmp_path / "operator.log", COMBEE_DISCIPLINE="Strict"):
        runs.apply(advisory)
        assert runs.ended()["phase"] in FINISHED
        condition = accepted(runs)
        assert (condition["status"], condition["reason"]) == ("True", "Accepted")
        assert "not stated: spec.task.failureCost (" in condition["message"]


def test_a_playbook_makes_its_run_when_its_template_states_its_inputs(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    there = Playbooks(cluster, namespace)
    whole = template()
    lacks = copy.deepcopy(whole)
    del lacks["task"]["failureCost"]

    def made() -> list[str]:
        return [one["metadata"]["name"] for one in cluster.get("plr", namespace=namespace)["items"]]

    with operating(cluster, namespace, tmp_path / "operator.log", COMBEE_DISCIPLINE="Strict"):
        parts = [one for one in quickstart() if one["kind"] != "PromptLearningRun"]
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=parts)
        there.apply(learn={"trigger": "OnChange", "template": lacks})
        warning = there.tells("MissingInput")["MissingInput"]
        assert warning.startswith("no run is made: discipline Strict: not stated: ") and TEMPLATE in warning
        assert warning in there.status()["warnings"]
        assert made() == []
        there.apply(learn={"trigger": "OnChange", "template": whole})
        (name,) = eventually("its run is made", made, seconds=120)
        assert Runs(cluster, namespace).ended(name)["phase"] in FINISHED


def test_gpus_are_asked_for_until_the_labels_of_nodes_name_them(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """The quickstart's engine on one GPU, by an operator that may list nodes: first they have no label."""

    def on_a_gpu(run: dict[str, Any]) -> None:
        at_once(run)
        run["spec"]["engines"][0].pop("hardware", None)
        run["spec"]["engines"][0]["vllm"]["gpusPerReplica"] = 1

    product = "nvidia.com/gpu.product"
    runs = Runs(cluster, namespace)
    strict = {"COMBEE_DISCIPLINE": "Strict", "COMBEE_READ_NODES": "true"}
    with operating(cluster, namespace, tmp_path / "operator.log", COMBEE_RESYNC_SECONDS="5", **strict):
        runs.apply(on_a_gpu)
        condition = accepted(runs)
        assert (condition["status"], condition["reason"]) == ("False", "MissingInput")
        assert condition["message"].startswith(
            "discipline Strict: not stated: spec.engines[0].hardware (which GPUs or CPUs answer there, and "
            "how many? A node that its pods may use has no label that names its GPUs). "
        )
        cluster.kubectl("label", "node", "--all", f"{product}=NVIDIA-TEST")
        try:
            status = runs.ended()
        finally:
            cluster.kubectl("label", "node", "--all", f"{product}-")
        assert status["phase"] == "Learned", status["message"]
        (known,) = (value for name, value in status["resolved"].items() if name.endswith(".hardware"))
        assert known == "1 x 1 NVIDIA-TEST (labels of nodes)"
        assert "hardware (" not in accepted(runs)["message"]


def test_each_escalation_is_refused_with_its_message_and_starts_nothing(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """A judge that is the proposer is refused by the API server (bad.yaml); a Playbook without a canary waits
    for a person (test_playbook)."""
    names = {name: f"run-{number}" for number, name in enumerate(ESCALATIONS)}
    with operating(cluster, namespace, tmp_path / "operator.log", COMBEE_DISCIPLINE="Strict"):
        for name, (values, _, _) in ESCALATIONS.items():
            run = escalated(quickstart(), names[name], values)
            cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=run)
        for name, (_, reason, message) in ESCALATIONS.items():
            condition = accepted(Runs(cluster, namespace), names[name])
            said = (condition["status"], condition["reason"], condition["message"])
            assert said == ("False", reason, message), name
        assert Runs(cluster, namespace).left() == []


def test_a_run_on_rows_that_were_changed_after_a_bad_result_waits_until_somebody_says_why(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Its Playbook has had one look at other rows, which passed nothing, and nobody named the new ones."""
    old, runs = "a" * 64, Runs(cluster, namespace)
    there = Playbooks(cluster, namespace, "quickstart")
    there.apply()
    looks = json.dumps({"status": {"state": {"looks": [[old, 1]]}}})
    patch = ("patch", "pb", "quickstart", "--subresource=status", "--type=merge", "-p", looks)
    cluster.kubectl(*patch, namespace=namespace)
    strict = {"COMBEE_DISCIPLINE": "Strict", "COMBEE_RESYNC_SECONDS": "5"}
    with operating(cluster, namespace, tmp_path / "operator.log", **strict):
        runs.apply(at_once)

        def held() -> dict[str, Any] | None:
            status = runs.status()
            found = {one["type"]: one for one in status.get("conditions", ())}.get("PlanAccepted", {})
            return found if found.get("reason") == "ChangeUnexplained" else None

        condition = eventually("the run is held", held, seconds=240)
        message = condition["message"]
        assert condition["status"] == "False"
        assert message.startswith(f"the last look at heldOut {old[:12]} passed nothing, and this run's is ")
        digest = message.rpartition("beside digest: ")[2]
        assert digest == runs.status()["heldOut"]["digest"]
        assert runs.status().get("iteration", 0) == 0
        there.apply(heldOut={"digest": digest, "reason": "rows of this quarter"})
        status = runs.ended()
        assert status["phase"] == "Learned", status["message"]
