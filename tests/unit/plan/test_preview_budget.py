"""What a preview says of a budget that pays for no iteration."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from combee.algo.budget import Spend
from combee.api.run import RunSpec
from combee.plan.decide import Identity, decide
from combee.plan.expected import ANSWER_TOKENS
from combee.plan.preview import DataShape, preview
from combee.plan.state import Best, DataFacts, RunState
from combee.plan.types import RoleUsage, Snapshot

ENDPOINT = {"endpoint": {"url": "http://h/v1", "model": "m"}}
FACTS = DataFacts(500, 150, 150, 0, {})
INPUT = 300.0


def spec(**budget: int) -> RunSpec:
    return RunSpec.model_validate(
        {
            "task": {
                "type": "Formula",
                "data": {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}},
            },
            "method": {"type": "ACE"},
            "models": dict.fromkeys(("task", "proposer"), ENDPOINT),
            "batching": {"mode": "Fixed", "size": 250, "reason": "test"},
            "stopping": {"targetGain": 0.12},
            "budget": budget,
        }
    )


def warnings(**budget: int) -> tuple[str, ...]:
    return preview(spec(**budget), DataShape(FACTS, INPUT)).warnings


def begins(**budget: int) -> bool:
    """Whether ``decide`` plans an iteration after a profile whose calls were as long as expected."""
    used = RoleUsage(150, 0, round(150 * INPUT), 150 * ANSWER_TOKENS)
    state = RunState(
        "Learning",
        FACTS,
        spend=Spend(150, used.tokens),
        usage={"task": used},
        best=Best("artifact", 0.5, -1),
    )
    plan = decide(
        spec=spec(**budget),
        who=Identity("run", "12345678"),
        state=state,
        snapshot=Snapshot(),
        elapsed_seconds=0.0,
    )
    return plan.freeze is not None


def test_it_names_the_field_and_what_would_do() -> None:
    (warning,) = warnings(rollouts=500)
    assert warning == (
        "spec.budget.rollouts is 500, which pays for no iteration: the run would end as BudgetExhausted "
        "(exit code 4) with nothing learned. One example takes about 604, with the scores on select and "
        "gate; the smallest useful value is about 1,600, for a first batch of 250"
    )
    (warning,) = warnings(rollouts=6000, tokens=100_000)
    assert warning.startswith("spec.budget.tokens is 100,000, ")
    assert warnings(rollouts=1600, tokens=10_000_000) == warnings() == ()


@given(st.integers(1, 1200), st.integers(1_000, 600_000))
def test_it_warns_of_just_those_budgets_with_which_no_iteration_is_begun(rollouts: int, tokens: int) -> None:
    assert bool(warnings(rollouts=rollouts, tokens=tokens)) != begins(rollouts=rollouts, tokens=tokens)


def test_it_warns_of_money_as_it_is_written() -> None:
    table = {"name": "m", "promptPerMillionTokens": 1.0, "completionPerMillionTokens": 4.0}
    prices = {"currency": "EUR", "models": [table]}

    def said(money: float) -> tuple[str, ...]:
        stated = RunSpec.model_validate({**spec().dump(), "budget": {"money": money}, "prices": prices})
        return preview(stated, DataShape(FACTS, INPUT)).warnings

    (warning,) = said(0.4)
    assert warning.startswith("spec.budget.money is 0.4, which pays for no iteration: ")
    least = float(warning.split("One example takes about ")[1].split(",")[0])
    assert 0.4 < least < 1
    assert said(least * 1.01) == ()


def test_the_least_that_is_named_is_the_least_that_begins_one() -> None:
    assert (begins(rollouts=603), begins(rollouts=604)) == (False, True)
