"""Status and conditions: the table, merging, and the size that etcd is spared from."""

from __future__ import annotations

import json

import pytest

from combee.api import conditions as c
from combee.api.conditions import TABLE, Condition, ConditionType, Reason, merge
from combee.api.status import (
    MAX_HISTORY,
    MAX_OBSERVATIONS,
    MAX_STATUS_BYTES,
    DelayObservation,
    IterationStatus,
    Phase,
    RunStatus,
    bounded,
    status_json,
)
from combee.generate.docs import reference_markdown


def condition(
    type: ConditionType = ConditionType.READY,
    status: c.Status = "False",
    reason: Reason = Reason.LEARNING,
    *,
    generation: int = 1,
    time: str = "t1",
    message: str = "",
) -> Condition:
    return Condition(
        type=type,
        status=status,
        reason=reason,
        message=message,
        observed_generation=generation,
        last_transition_time=time,
    )


def test_every_type_has_both_statuses_and_every_reason_a_use() -> None:
    for type in ConditionType:
        assert {"True", "False"} <= {status for t, status in TABLE if t == type}
    assert {reason for reasons in TABLE.values() for reason in reasons} == set(Reason)


def test_merging_is_by_type_in_a_fixed_order() -> None:
    failed = condition(ConditionType.FAILED, "False", Reason.IN_PROGRESS)
    assert [x.type for x in merge([failed], [condition()])] == ["Ready", "Failed"]


def test_the_transition_time_moves_only_with_the_status() -> None:
    before = condition(reason=Reason.PREPARING, time="t1")
    (same,) = merge([before], [condition(reason=Reason.LEARNING, time="t2")])
    assert (same.reason, same.last_transition_time) == (Reason.LEARNING, "t1")
    (changed,) = merge([before], [condition(status="True", reason=Reason.LEARNED, time="t2")])
    assert changed.last_transition_time == "t2"


def test_a_newer_generation_is_never_overwritten() -> None:
    newer = condition(generation=2)
    assert merge([newer], [condition(generation=1, reason=Reason.PENDING)]) == (newer,)


def test_long_messages_are_cut() -> None:
    assert len(condition(message="x" * 5000).message) == c.MAX_MESSAGE


def record(n: int, reason: str = "") -> IterationStatus:
    return IterationStatus(iteration=n, batch_size=84, batch_reason=reason, select=0.8)


@pytest.mark.parametrize("letter", ["x", "é", "😀", "\n", '"'])
def test_a_status_is_bounded_whatever_is_in_it(letter: str) -> None:
    long = letter * 5000
    status = RunStatus(
        message=long,
        batch_reason=long,
        resolved={f"k{n}{long}": long for n in range(80)},
        conditions=tuple(condition(type, "False", Reason.PENDING, message=long) for type in ConditionType),
    )
    history = tuple(record(n, long) for n in range(40)[-MAX_HISTORY:])
    observed = tuple(DelayObservation(batch_size=n + 1, seconds=1.5) for n in range(MAX_OBSERVATIONS))
    more = {"history": history, "delay_observations": observed, "best_digest": "d", "gain": 0.2}
    small = bounded(status.model_copy(update=more))
    assert len(status_json(small).encode()) <= MAX_STATUS_BYTES
    assert (small.best_digest, small.gain, len(small.conditions)) == ("d", 0.2, len(ConditionType))


def test_a_normal_status_is_not_touched_and_survives_a_round_trip() -> None:
    status = RunStatus(phase=Phase.LEARNING, usage={"task": {"calls": 3}}, history=(record(0), record(1)))  # type: ignore[dict-item]
    assert bounded(status) == status
    assert RunStatus.model_validate(json.loads(status_json(status))) == status
    assert "heldOut" in json.loads(status_json(status))


def test_a_status_of_a_newer_version_is_read() -> None:
    """By the operator after a rollback, and by a command line that is older than the operator."""
    ready = {"type": "Ready", "status": "False", "reason": "Learning", "message": "m"}
    conditions = [{**ready, "type": "Novel"}, ready, {**ready, "type": "Converging", "reason": "Novel"}]
    new = {"phase": "Dreaming", "novelty": 1, "spend": {"rollouts": 4, "new": 2}, "conditions": conditions}
    status = RunStatus.model_validate(new)
    assert (status.phase, status.phase.value, status.phase.over) == ("Dreaming", "Dreaming", False)
    assert (status.spend.rollouts, [one.type for one in status.conditions]) == (4, ["Ready"])
    assert status.dump()["phase"] == "Dreaming" and "Dreaming" not in list(Phase)


def test_phases_that_are_over() -> None:
    assert {p for p in Phase if p.over} == {
        "Learned",
        "Unsure",
        "NothingBetter",
        "BudgetExhausted",
        "Failed",
        "Stopped",
    }


def test_the_reference_names_every_field_and_is_up_to_date(pytestconfig: pytest.Config) -> None:
    text = reference_markdown()
    for word in (
        "| leafSize |",
        "| maxRounds |",
        "reflectionRounds",
        "callDeadlineSeconds",
    ):
        assert word in text
    assert (pytestconfig.rootpath / "docs" / "manifest.md").read_text() == text
