"""Windows of a metric as pairs, with many, few or uneven requests each. The promise is about their means."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_algo_canary import first_at, gridded

from combee.algo.canary import Rules, tally_verdict
from combee.algo.power import least_pairs
from combee.algo.sequence import above
from combee.algo.tally import LeftOut, Pair, Tally
from combee.algo.verdict import Words

EPSILON = 0.05
CANARIES = 200


def shares(rng: np.random.Generator, requests: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Of each window's requests, the share that is answered well."""
    return rng.binomial(requests, rate) / requests


@pytest.mark.parametrize("swing", [0.0, 0.2])
def test_a_worse_candidate_is_hardly_ever_promoted_by_windows_however_often_one_looks(swing: float) -> None:
    """Uneven traffic, and a day whose hours are good or bad for both alike."""
    rng = np.random.default_rng([5, int(swing * 10)])
    promoted, day = 0, 0.7 + swing * np.sin(np.arange(600) / 30)
    for _ in range(CANARIES):
        requests = rng.integers(1, 60, size=600)
        active = shares(rng, requests, day)
        candidate = shares(rng, rng.integers(1, 10, size=600), day - EPSILON)
        promoted += math.isfinite(first_at(gridded(candidate - active, rng), -EPSILON, up=True))
    assert promoted <= 0.05 * CANARIES


def test_an_equal_one_is_promoted_by_windows_that_are_quiet() -> None:
    rng = np.random.default_rng(6)
    promoted, rate = 0, np.full(600, 0.9)
    for _ in range(20):
        many = np.full(600, 200)
        differences = gridded(shares(rng, many, rate) - shares(rng, many, rate), rng)
        promoted += math.isfinite(first_at(differences, -EPSILON, up=True))
    assert promoted == 20


@pytest.mark.parametrize("epsilon", [0.005, 0.05, 0.3, 1.0])
def test_the_least_number_of_pairs_is_the_least(epsilon: float) -> None:
    least = least_pairs(epsilon)
    assert least is not None and above({0: least}, -min(epsilon, 1 - 1e-6), 0.05)
    assert least == 1 or not above({0: least - 1}, -epsilon, 0.05)


def test_what_is_said_has_its_unit() -> None:
    rules = Rules(epsilon=0.05, min_samples=20, duration_seconds=0, deadline_seconds=60)
    tally = Tally().with_pairs("t", [Pair("p", n, -0.2) for n in range(200)])
    said = tally_verdict(tally, rules, 1, words=Words("window", "windows", 4.0, "points")).message
    assert said.startswith("-0.800 [") and "points vs active, n=200 windows" in said
    assert said.endswith("the upper end is below -0.200 points")


def test_requests_that_are_refused_are_counted_once_named_and_no_pairs() -> None:
    rules = Rules(epsilon=0.05, min_samples=20, duration_seconds=0, deadline_seconds=60)
    gone = [LeftOut("r", n, 400 if n % 2 else 413) for n in range(5)]
    tally = Tally().with_pairs("t", [Pair("r", n, 0.0) for n in range(5, 9)]).with_left_out(gone)
    again = tally.with_left_out(gone).with_pairs("t", [Pair("r", 0, 1.0)])
    assert again == tally == Tally.from_json(tally.to_json())
    assert tally.pairs == 4 and tally.spans == {"r": ((0, 8),)}
    said = tally_verdict(tally, rules, 1).message
    assert said.endswith("; 5 requests are left out: the upstream refuses them (400: 2, 413: 3)")
    (one,) = [tally_verdict(Tally().with_left_out(gone[:1]), rules, 99)]
    assert one.message.endswith(
        "with 0 pairs; no pair has come; 1 request is left out: the upstream refuses it (413: 1)"
    )
    assert one.outcome == "Inconclusive"


def test_a_tally_of_an_earlier_release_is_read() -> None:
    raw = Tally().with_pairs("t", [Pair("r", 0, 0.0)]).to_json()
    assert "leftOut" not in raw and Tally.from_json(raw).left_out == {}
