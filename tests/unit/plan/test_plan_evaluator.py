"""What a plan and a status say of an evaluator: its tokens, its calls, and whether it is calibrated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from combee.algo.calibration import Calibration
from combee.api.conditions import TABLE, ConditionType, Reason
from combee.api.run import RunSpec
from combee.api.status import Phase
from combee.assembly.manifest import read_run
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.standing import End, calibrated
from combee.plan.preview import DataShape, preview
from combee.plan.state import DataFacts, RunState
from combee.steps import KINDS

SPEC: RunSpec = read_run(Path(__file__).parents[3] / "examples" / "replies.yaml").spec
FACTS = DataFacts(train_rows=144, select_rows=80, gate_rows=80, test_rows=0, digests={})
LABELLED = DataShape(FACTS, 120.0, labelled=96)


def by_accuracy() -> RunSpec:
    task = SPEC.task.model_copy(update={"metric": "accuracy", "rubric": None})
    return SPEC.model_copy(update={"task": task})


def test_an_evaluator_is_in_use_for_a_rubric_alone_and_no_reduce_sees_its_key() -> None:
    assert "evaluator" in SPEC.roles_in_use() and "evaluator" not in by_accuracy().roles_in_use()
    assert {name for name, kind in KINDS.items() if "evaluator" in kind.roles} == {
        name for name, kind in KINDS.items() if "task" in kind.roles
    }
    assert [name for name, kind in KINDS.items() if "referee" in kind.roles] == ["profile"]


def test_a_preview_counts_the_verdicts_and_what_calibration_adds() -> None:
    scored, plain = preview(SPEC, LABELLED), preview(by_accuracy(), LABELLED)
    assert scored.rollouts == plain.rollouts and scored.likely_tokens > 1.3 * plain.likely_tokens
    refereed = preview(SPEC, DataShape(FACTS, 120.0))
    # 224 rows are there; up to 200 answers are compared, and 80 of them are those on select.
    assert refereed.rollouts.high == scored.rollouts.high + 120
    assert refereed.rollouts.low == scored.rollouts.low


@pytest.mark.parametrize("calibration", [None, Calibration(0.8, 0.71, 0.9, 60)])
def test_a_status_keeps_the_calibration_and_an_older_one_has_none(calibration: Calibration | None) -> None:
    memory = Memory(RunState(calibration=calibration))
    kept = memory.to_status()
    assert Memory.from_status(kept).run.calibration == calibration
    kept["run"].pop("calibration", None)
    assert Memory.from_status(kept) == replace(memory, run=RunState())


@pytest.mark.parametrize(
    ("calibration", "reason", "expected"),
    [
        (None, Reason.LEARNING, ("Unknown", Reason.NOT_EVALUATED)),
        (Calibration(0.8, 0.71, 0.9, 60), Reason.LEARNING, ("True", Reason.CALIBRATED)),
        (Calibration(0.8, 0.6, 0.9, 60), Reason.LEARNING, ("Unknown", Reason.INCONCLUSIVE)),
        (None, Reason.EVALUATOR_NOT_CALIBRATED, ("False", Reason.EVALUATOR_NOT_CALIBRATED)),
    ],
)
def test_a_condition_has_the_figures(
    calibration: Calibration | None, reason: Reason, expected: tuple[str, Reason]
) -> None:
    memory = Memory(RunState(calibration=calibration))
    status, why, message = calibrated(memory, End(Phase.LEARNING, reason, "the sentence"))
    assert (status, why) == expected and message
    assert why in TABLE[ConditionType.EVALUATOR_CALIBRATED, status]
