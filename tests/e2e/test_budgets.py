"""No budget is exceeded by more than the calls in flight, whatever the server does and however often the run
is killed."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from bench import inprocess
from budget_world import DEADLINE_SECONDS, GPUS, World, few, manifest

from combee.local.clock import BEAT_SECONDS
from combee.sim.params import Faults, Law

pytestmark = pytest.mark.e2e

BUDGETS = 200
BAD_DAY = Faults(
    error_rate=0.05,
    rate_limit_rate=0.05,
    slow_one_in=20,
    slow_factor=10,
    hang_one_in=60,
    reset_rate=0.03,
    truncate_rate=0.03,
    malform_rate=0.02,
)
WHOLE = {
    "rollouts": 250,
    "tokens": 250_000,
    "wallClockSeconds": 120,
    "money": 0.7,
    "gpuSeconds": 120 * GPUS,
}
"""About what the whole run takes."""


SERIAL = {"serialBaseline": {"method": "ACE", "measure": True}}
"""What has a run diagnose serial learning first."""


def world(seed: int, budget: dict[str, Any], width: int, size: int, **spec: Any) -> World:
    """A run of 40 rows with a budget, at most ``width`` calls in flight, beside a server on a bad day."""
    run = manifest(
        f"budget-{seed}",
        budget=budget,
        workers={"concurrency": width, "callDeadlineSeconds": DEADLINE_SECONDS},
        batching={"mode": "Fixed", "size": size, "reason": "a test"},
        seed=seed,
        **spec,
    )
    train, held_out = inprocess.formula_splits()
    splits = few(train, 40), few(held_out, 30)
    return World(run, splits, BAD_DAY, seed, inprocess.simulated(seed, Law()))


def drawn(seed: int) -> tuple[World, list[float]]:
    """A random budget, and after how many seconds the run's sessions are killed."""
    draw = random.Random(seed)
    shares = {name: draw.uniform(0.1, 1) for name in WHOLE if draw.random() < 0.4} or {"rollouts": 0.5}
    budget = {name: share * WHOLE[name] for name, share in shares.items()}
    budget = {name: most if name == "money" else int(most) for name, most in budget.items()}
    kills = [draw.uniform(3, 60) for _ in range(draw.choice((0, 0, 1, 3)))]
    width, size = draw.choice((1, 4, 16)), draw.choice((5, 10, 20))
    return world(seed, budget, width, size, **(SERIAL if seed % 4 == 3 else {})), kills


def test_no_budget_is_exceeded_by_more_than_the_calls_in_flight() -> None:
    """Over 200 random budgets with faults and kills, every fourth with a diagnosis, by the server's own book.

    At its end a run has at most ``workers.concurrency`` requests in flight, and each of them may use more
    than was held for it, since only the server can count its tokens. Each kill loses as many answers, which
    are asked for again. Rollouts are exact but for those, and no request is made after the wall clock or the
    GPUs' seconds ran out. A call that fails for good is charged the most it may have used."""
    spent_all, killed, diagnosed, limits = 0, 0, 0, Counter[str]()
    for seed in range(BUDGETS):
        it, kills = drawn(seed)
        ends = [it.session(after) for after in kills if it.outcome is None]
        end = it.outcome or it.session()
        assert end is not None
        budget, book, width = it.run.spec.budget, it.book, it.run.spec.workers.concurrency
        lost = ends.count(None)
        more = (1 + lost) * width
        said = f"budget {seed}: {budget}, {lost} kills"
        if budget.rollouts is not None:
            assert len(book.rollouts) <= budget.rollouts + width * lost, said
            assert it.guard.rollouts <= budget.rollouts, said
        if budget.tokens is not None:
            assert book.tokens <= budget.tokens + more * book.largest, said
            assert it.guard.tokens <= budget.tokens + width * book.largest, said
        if budget.money is not None:
            assert book.money <= budget.money + more * book.dearest, said
            assert it.guard.money <= budget.money + width * book.dearest, said
        if budget.wall_clock_seconds is not None:
            assert book.last_request <= budget.wall_clock_seconds, said
            assert it.seconds <= budget.wall_clock_seconds + DEADLINE_SECONDS, said
        if budget.gpu_seconds is not None:
            assert book.last_request * GPUS <= budget.gpu_seconds, said
            assert it.seconds * GPUS <= budget.gpu_seconds + DEADLINE_SECONDS * GPUS, said
        limits.update(budget.dump().keys())
        spent_all += end.name == "BudgetExhausted"
        killed += lost
        diagnosed += any("-diagnose" in one for one in it.disk.objects.list("runs"))
    print(
        f"{BUDGETS} budgets ({dict(limits)}), {spent_all} spent, {killed} kills, {diagnosed} with a "
        "diagnosis under way: none overrun by more than calls in flight"
    )
    assert spent_all > BUDGETS / 3 and killed > BUDGETS / 10 and diagnosed > BUDGETS / 20
    assert all(limits[name] > BUDGETS / 4 for name in WHOLE)


@pytest.mark.parametrize("rollouts", [120, 125])
def test_a_budget_that_ends_an_iteration_leaves_the_look_at_gate(rollouts: int) -> None:
    """The second batch takes more than the first, which no plan could know."""
    it = world(5, {"rollouts": rollouts}, width=4, size=20)
    it.server_faults = Faults()
    end = it.session()
    assert end is not None and end.name == "BudgetExhausted"
    assert "gate" in end.reason and f"the budget of {rollouts} rollouts is spent" in end.reason
    assert it.guard.rollouts <= rollouts


@pytest.mark.parametrize("seed", [1, 14, 21, 28])
def test_a_run_that_the_clock_stops_says_what_it_learned_is_worth(seed: int) -> None:
    """On a server that keeps its pace there is time for the look at gate."""
    draw = random.Random(seed)
    budget = {"wallClockSeconds": int(draw.uniform(0.25, 0.9) * WHOLE["wallClockSeconds"])}
    it = world(seed, budget, draw.choice((4, 16)), draw.choice((5, 10)))
    it.server_faults = Faults()
    end = it.session()
    assert end is not None and end.name == "BudgetExhausted"
    assert "gate" in end.reason and "budget.wallClockSeconds" in end.reason
    assert it.seconds <= budget["wallClockSeconds"]


def test_a_kill_during_the_look_asks_nothing_more_of_the_iteration_that_a_budget_ended() -> None:
    """Gone through again, it would be granted rollouts that were refused while others were in flight."""

    def before() -> World:
        it = world(22, {"rollouts": 176}, width=4, size=20)
        it.server_faults = Faults()
        return it

    whole, killed = before(), before()
    end = whole.session()
    assert end is not None and "the budget of 176 rollouts is spent" in end.reason
    steps = whole.disk.folder.summaries()
    (look,) = (one for one in steps.values() if one.kind == "evaluate")
    assert killed.session(whole.seconds - look.seconds["wall"] / 2) is None
    assert killed.session() == end
    assert killed.book.rollouts == whole.book.rollouts
    assert killed.disk.folder.summaries().keys() == steps.keys()


def test_a_run_that_is_killed_again_and_again_still_ends_at_its_wall_clock() -> None:
    """Killed in each step, it never finishes one; what it took counts all the same."""
    it = world(1, {"wallClockSeconds": 30}, width=4, size=20)
    kills = 0
    while it.session(2.5) is None:
        kills += 1
        assert kills < 30 / 2.5
    assert it.outcome is not None and it.outcome.name == "BudgetExhausted"
    assert "wallClockSeconds" in it.outcome.reason
    assert 30 - kills * BEAT_SECONDS <= it.book.last_request + DEADLINE_SECONDS and it.book.last_request <= 30
