"""What discipline asks of a Playbook: the inputs of its template, and why heldOut was changed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from playbook_bench import HELD_OUT, World, gate
from test_playbook_learn import TEMPLATE

from combee.api.playbook import Learn
from combee.plan.cluster.hardware import EngineGpus
from combee.plan.engine import engine_digest
from combee.plan.playbook.datawatch import places
from combee.plan.playbook.learn import template_hash
from combee.plan.playbook.types import PlaybookPlan, RunSeen

OTHER = "f" * 64
STATED: dict[str, Any] = {
    **TEMPLATE,
    "task": {
        "type": "Formula",
        "data": {
            "train": {"uri": "s3://d/train.jsonl"},
            "heldOut": {"uri": "s3://d/heldout.jsonl", "steward": "data-platform", "usedForTuning": False},
        },
        "failureCost": "A wrong figure",
    },
    "models": {
        role: {"endpoint": {"url": "http://llm:8000/v1", "model": "m", "hardware": "8x H100"}}
        for role in ("task", "proposer")
    },
    "serialBaseline": {"method": "ACE", "waived": "a test"},
    "budget": {"rollouts": 1000},
}
MISSING = "spec.learn.template.task.failureCost (what happens if it gets worse in production?)"


def without_failure_cost() -> dict[str, Any]:
    task = {name: value for name, value in STATED["task"].items() if name != "failureCost"}
    return {**STATED, "task": task}


def told(plan: PlaybookPlan) -> list[str]:
    return [event.reason for event in plan.events]


def test_a_template_that_lacks_an_answer_makes_no_run_until_it_is_given() -> None:
    world = World(discipline="Strict").change(learn={"template": without_failure_cost()})
    plan = world.tick()
    assert (plan.runs, told(plan)) == ((), ["MissingInput"])
    (warning,) = [text for text in plan.status.warnings if text.startswith("no run is made: ")]
    assert MISSING in warning and "set spec.learn.template.discipline: Advisory" in warning
    assert told(world.tick()) == []  # it is said once
    world.change(learn={"template": STATED})
    plan = world.tick()
    assert len(plan.runs) == 1
    assert not [text for text in plan.status.warnings if "not stated" in text]


def test_a_template_with_gpus_waits_until_the_nodes_name_them_or_it_does() -> None:
    ref = {"engineRef": {"name": "main"}}
    engine = {"name": "main", "vllm": {"model": "m", "gpusPerReplica": 2}}
    template = {**STATED, "engines": [engine], "models": {"task": ref, "proposer": ref}}
    world = World(discipline="Strict").change(learn={"template": template})
    world.nodes = EngineGpus(unknown={"main": "Two kinds fit."})
    plan = world.tick()
    (warning,) = [text for text in plan.status.warnings if text.startswith("no run is made: ")]
    path = "spec.learn.template.engines[0].hardware"
    assert (
        plan.runs == ()
        and f"{path} (which GPUs or CPUs answer there, and how many? Two kinds fit.)" in warning
    )
    world.nodes = EngineGpus({"main": "1 x 2 H100"})
    (run,) = world.tick().runs
    assert run.spec.engines[0].hardware is None, "its own operator reads the nodes when it starts"


@pytest.mark.parametrize("where", ["the installation", "the template"])
def test_advisory_makes_the_run_and_says_what_is_not_stated(where: str) -> None:
    template = without_failure_cost()
    if where == "the template":
        template["discipline"] = "Advisory"
    world = World(discipline="Strict" if where == "the template" else "Advisory")
    plan = world.change(learn={"template": template}).tick()
    assert len(plan.runs) == 1
    assert f"not stated: {MISSING}" in plan.status.warnings


def test_a_run_is_made_as_soon_as_the_installation_is_advisory() -> None:
    world = World(discipline="Strict").change(learn={"template": without_failure_cost()})
    world.tick()
    world.discipline = "Advisory"
    plan = world.tick()
    assert len(plan.runs) == 1
    assert not [text for text in plan.status.warnings if text.startswith("no run is made")]


def test_what_nobody_said_in_the_template_nobody_said_in_its_run() -> None:
    (wish,) = World().change(learn={"template": TEMPLATE}).tick().runs
    held_out = wish.spec.task.data.held_out
    assert held_out is not None and held_out.used_for_tuning is None
    assert wish.spec.budget.primary is None


def lost(discipline: str = "Strict") -> World:
    """``a`` is active; ``b`` showed nothing on the same heldOut, and then the rows were changed."""
    world = World(discipline=discipline).add("a").settle()
    world.add("b", parent="a", better=0.0).settle()
    assert world.active == "a" and world.phases["b"] in ("Refused", "Inconclusive")
    return world.add("c", parent="a", scores=gate(0.3, held_out=OTHER))


def test_rows_that_were_changed_after_a_bad_result_wait_for_a_reason() -> None:
    world = lost().change(heldOut={"digest": OTHER}).settle()
    assert (world.active, world.phases["c"]) == ("a", "Candidate")
    assert world.why("HeldOutPassed", "c") == ("Unknown", "ChangeUnexplained")
    assert world.why("Promoted", "c") == ("False", "WaitingForDecision")
    message = world.says("HeldOutPassed", "c")
    assert f"the last look at heldOut {HELD_OUT[:12]} passed nothing" in message
    assert f"say in spec.heldOut.reason why they were changed, beside digest: {OTHER}" in message
    assert world.versions["c"].status.look is None  # it was not looked at
    world.change(heldOut={"digest": OTHER, "reason": "rows of this quarter"}).settle()
    assert world.active == "c"
    assert world.says("HeldOutPassed", "c").endswith("; heldOut was changed: rows of this quarter")


def test_it_is_told_once_and_a_later_version_takes_its_place() -> None:
    world = lost().change(heldOut={"digest": OTHER})
    assert told(world.tick()).count("HeldOutChanged") == 1
    assert "HeldOutChanged" not in told(world.tick())
    world.add("d", parent="a", scores=gate(0.3, held_out=OTHER)).settle()
    assert (world.phases["c"], world.phases["d"]) == ("Superseded", "Candidate")


def test_advisory_tells_of_the_change_and_goes_on() -> None:
    world = lost("Advisory").change(heldOut={"digest": OTHER})
    plan = world.tick()
    assert "HeldOutChanged" in told(plan)
    assert world.settle().active == "c"


def test_after_a_result_that_passed_new_rows_need_no_reason() -> None:
    world = World(discipline="Strict").add("a").settle()
    world.add("b", parent="a", scores=gate(0.3, held_out=OTHER)).change(heldOut={"digest": OTHER}).settle()
    assert world.active == "b"


def test_a_heldout_that_was_explained_once_is_asked_about_no_more() -> None:
    world = lost().change(heldOut={"digest": OTHER, "reason": "rows of this quarter"}).settle()
    world.change(heldOut={"digest": OTHER}).add("d", parent="c", scores=gate(0.3, held_out=OTHER, base=0.6))
    assert world.settle().active == "d"


def test_a_run_that_gained_nothing_is_a_bad_result_too() -> None:
    """No version was ever made, so no heldOut is pinned yet."""
    world = World(discipline="Strict").change(learn={"template": STATED})
    (wish,) = world.tick().runs
    world.runs = {wish.name: RunSeen(wish.name, "0000", over=True, looked_at=HELD_OUT)}
    world.tick()
    world.add("a", scores=gate(0.3, held_out=OTHER)).settle()
    assert (world.active, world.why("HeldOutPassed", "a")) == ("", ("Unknown", "ChangeUnexplained"))
    # A run on the new rows that gains nothing, too, does not make them the old ones.
    world.runs["again"] = replace(world.runs[wish.name], name="again", looked_at=OTHER)
    assert world.settle().active == ""
    world.change(heldOut={"digest": OTHER, "reason": "the first rows were wrong"}).settle()
    assert world.active == "a"


def test_an_upgrade_makes_no_other_run_and_forgets_no_mark_of_a_template_that_says_nothing() -> None:
    """Earlier releases named runs and places of data with usedForTuning false and primary rollouts."""
    said = {**TEMPLATE, "budget": {"primary": "rollouts"}}
    held_out = {**TEMPLATE["task"]["data"]["heldOut"], "usedForTuning": False}
    data = {**TEMPLATE["task"]["data"], "heldOut": held_out}
    said["task"] = {**TEMPLATE["task"], "data": data}
    learns = [Learn.model_validate({"template": template}) for template in (TEMPLATE, said)]
    assert len({template_hash(learn, "") for learn in learns}) == 1
    assert places(learns[0]).keys() == places(learns[1]).keys()
    plain = json.dumps([learns[1].template.dump(), ""], sort_keys=True, separators=(",", ":"))
    assert template_hash(learns[0], "") == hashlib.sha256(plain.encode()).hexdigest()[:8]


def test_what_people_say_of_hardware_discards_no_observation_of_a_run() -> None:
    """The digest is that of releases which knew no such field."""
    learns = [
        Learn.model_validate({"template": {**STATED, "models": one["models"]}}) for one in (TEMPLATE, STATED)
    ]
    silent, stated = (engine_digest(learn.template) for learn in learns)
    assert silent == stated == "1d4d921b7494"
