"""The controller's batch size on workloads drawn at random: DESIGN section 10, as it is written.

"Within 15 % (median, 200 seeded runs, 20 % noise, 9 observations a size) of the best in hindsight for its
rule, floor or none." ``make test-long`` does that; ``make test`` takes the first of the same seeds. How
workloads are drawn is stated in ``bench/controller.py``. Cells with one fixed law each, the hard ones among
them, are in ``test_algo_controller.py``."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from combee.algo import laws
from combee.algo.batch import saving_batch_size
from combee.algo.delay import Observation
from combee.algo.laws import POWER_FLOOR, T_ITER
from combee.algo.schedule import list_schedule

WITHIN = 15.0
runs = pytest.mark.parametrize("runs", [40, pytest.param(200, marks=pytest.mark.long)])
"""A median over n runs has a standard error of 1.17 / sqrt(n) of itself: 8 % with 200, 18 % with 40."""
BEYOND = (0.6, 1.05)
"""Exponents that nobody expected: far from 1, and above it, which no law of the controller's is."""


@pytest.fixture(scope="module")
def drawn() -> Any:
    return importlib.import_module("bench.controller")


def heavy(draws: np.random.Generator, n: int) -> np.ndarray:
    """The same standard deviation, of Student's t with three degrees of freedom."""
    values: np.ndarray = 0.2 * draws.standard_t(3, n) / math.sqrt(3)
    return values


def straggling(draws: np.random.Generator, n: int) -> np.ndarray:
    """20 %, and one iteration in twenty takes four times as long."""
    values: np.ndarray = 0.2 * draws.standard_normal(n) + math.log(4) * (draws.random(n) < 0.05)
    return values


def lasting(draws: np.random.Generator, n: int) -> np.ndarray:
    """20 %, and an iteration's error is half the last one's."""
    errors = [draws.standard_normal()]
    for new in draws.standard_normal(n - 1):
        errors.append(errors[-1] / 2 + math.sqrt(0.75) * new)
    return 0.2 * np.array(errors)


def medians(drawn: Any, outcomes: Sequence[Any], name: str) -> dict[str, float]:
    """By rule, in percent; printed with the rest of what there is to know."""
    found = {rule: drawn.percent(outcomes, rule) for rule in drawn.RULES}
    for rule, error in found.items():
        lost = [100 * abs(one.lost[rule]) for one in outcomes]
        print(
            f"\n{name:34} {rule:6} n {len(outcomes):3}: median error {error:4.1f} %, of the time saved "
            f"over one "
            f"at a time lost {np.median(lost):.1f} % (nine in ten: under {np.quantile(lost, 0.9):.1f} %)",
            end="",
        )
    return found


def by_law(drawn: Any, outcomes: Sequence[Any], name: str) -> None:
    for kind in drawn.KINDS:
        if some := drawn.of_kind(outcomes, kind):
            medians(drawn, some, f"  {name}, {kind}")


@runs
def test_a_batch_is_within_15_percent_of_the_best_in_hindsight(drawn: Any, runs: int) -> None:
    outcomes = [drawn.run(seed) for seed in range(runs)]
    assert max(medians(drawn, outcomes, "floor or none").values()) <= WITHIN
    by_law(drawn, outcomes, "floor or none")


@runs
def test_nor_does_it_rest_on_those_that_are_easy(drawn: Any, runs: int) -> None:
    """A law without a floor asks ``Saving`` for the largest size, which is soon seen. Here every workload has
    one, so its best size is inside the bounds. Thrice as many runs, since this is near the mark."""
    outcomes = [drawn.run(seed, kinds=(T_ITER, POWER_FLOOR)) for seed in range(3 * runs)]
    assert all(drawn.LOW < drawn.best(one.law, "Saving") < drawn.HIGH for one in outcomes)
    assert max(medians(drawn, outcomes, "with a floor").values()) <= WITHIN
    by_law(drawn, outcomes, "with a floor")


@runs
@pytest.mark.parametrize("noise", [heavy, straggling, lasting])
def test_it_holds_in_other_noise(drawn: Any, runs: int, noise: Any) -> None:
    outcomes = [drawn.run(seed, noise=noise) for seed in range(runs)]
    assert max(medians(drawn, outcomes, noise.__name__).values()) <= WITHIN
    by_law(drawn, outcomes, noise.__name__)


@runs
def test_it_holds_where_a_third_is_beyond_what_was_expected(drawn: Any, runs: int) -> None:
    """Power laws with a floor by themselves do not come within 15 % there; nor could they (see below)."""
    outcomes = [drawn.run(seed, bent=BEYOND) for seed in range(runs)]
    assert max(medians(drawn, outcomes, "exponents .6 to 1.05").values()) <= WITHIN
    by_law(drawn, outcomes, ".6 to 1.05")


def told(alphas: tuple[float, float]) -> Any:
    """What to expect, had one been told how the workloads with a floor are drawn."""

    def expected(half: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        saving = np.linspace(math.log(5), math.log(100), 60)
        exponents = np.linspace(max(alphas), min(alphas), 41)
        each = np.concatenate([np.full(60, 1.0), np.repeat(exponents, 60)])
        best = np.tile(saving, 42)
        halves = best - math.log(1 / 0.45 - 1) / each
        return each, halves, np.concatenate([np.full(60, 0.5 / 60), np.full(41 * 60, 0.5 / 41 / 60)])

    return expected


@runs
@pytest.mark.parametrize("bent", [(0.85, 1.0), (0.6, 1.0)])
def test_little_would_be_gained_by_knowing_how_workloads_are_drawn(
    drawn: Any, runs: int, bent: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The posterior median under the very distribution of the workloads is the best there is on average, for
    ``Saving``'s ln b; what it misses is not in the observations."""
    kinds = (T_ITER, POWER_FLOOR)
    ours = [drawn.run(seed, kinds=kinds, bent=bent) for seed in range(runs)]
    mine = medians(drawn, ours, f"with a floor, {bent}")
    monkeypatch.setattr(laws, "_expected", told(bent))
    theirs = [drawn.run(seed, kinds=kinds, bent=bent) for seed in range(runs)]
    best = medians(drawn, theirs, f"told, {bent}")
    by_law(drawn, theirs, f"told, {bent}")
    assert mine["Saving"] <= best["Saving"] + 5


@pytest.mark.parametrize("b", [5, 25, 100])
def test_calls_that_scatter_by_themselves_scatter_an_iteration_by_less_than_half_as_much(b: int) -> None:
    """An observation is the schedule of its recorded calls. At 20 % a call, an iteration (roll out and
    reflect, b / 4 leaves, merges, replays of one in five) is off by 9 to 6 %; the 20 % of the tests above are
    of the whole."""
    draws = np.random.default_rng(b)

    def calls(seconds: float, n: int) -> list[float]:
        drawn: list[float] = (seconds * np.exp(0.2 * draws.standard_normal(n))).tolist()
        return drawn

    def iteration() -> float:
        learned = [calls(5.0, 2) for _ in range(b)]
        after = [
            [[one] for one in calls(14.0, math.ceil(b / 4))],
            [[one] for one in calls(14.0, max(1, b // 10))],
        ]
        return list_schedule([learned, *after, [[one] for one in calls(5.0, b // 5)]], 200).seconds

    scatter = float(np.std(np.log([iteration() for _ in range(200)])))
    print(f"\niterations of {b}: scatter {scatter:.3f}", end="")
    assert 0.03 < scatter < 0.1


@pytest.mark.parametrize("half", [0.25, 0.5, 1.0, 2.0, 4.0])
def test_a_server_at_its_limit_is_not_given_the_largest_batch(half: float) -> None:
    """c0 / c1 far under what is expected: a rate limit. A larger batch saves nothing there and costs updates.
    The median alone would not tell: it was right while four in ten runs took a hundred for five."""
    chosen = []
    for seed in range(60):
        draws = np.random.default_rng(seed)
        seen = [
            Observation(b, max(1e-3, (half + b) * float(draws.normal(1, 0.2))))
            for b in (5, 10, 25, 50, 100)
            for _ in range(9)
        ]
        found = laws.fit_laws(seen)
        assert found is not None
        law = found.typical(lambda one: saving_batch_size(one, 0.45))
        chosen.append(min(100.0, max(5.0, saving_batch_size(law, 0.45))))
    print(f"c0/c1 {half}: median {np.median(chosen):.1f}, nine in ten under {np.quantile(chosen, 0.9):.1f}")
    assert np.quantile(chosen, 0.95) <= 10
