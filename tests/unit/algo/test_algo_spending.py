"""What each look may cost: the levels add up, the first is today's, and the exact tests keep within them."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from combee.algo.gates import Compared, at_confidence, compare, corrected_gain, held_out_verdict
from combee.algo.shrinkage import shrunk_gain, shrunk_mean
from combee.algo.spending import look_confidence, percent, spent
from combee.algo.stats import score_difference, sign_test
from combee.errors import BugError

CONFIDENCES = st.floats(0.5, 0.999)


@given(CONFIDENCES, st.integers(1, 500))
def test_the_errors_of_all_looks_add_up_to_that_of_one(confidence: float, looks: int) -> None:
    errors = [(1 - look_confidence(confidence, look)) / 2 for look in range(1, looks + 1)]
    assert math.fsum(errors) == pytest.approx(spent(confidence, looks), abs=1e-12)
    assert math.fsum(errors) < 1 - confidence
    assert all(later < earlier for earlier, later in pairwise(errors))


@given(CONFIDENCES)
def test_the_first_look_is_judged_at_the_confidence_itself(confidence: float) -> None:
    assert look_confidence(confidence, 1) == confidence
    assert spent(confidence, 0) == 0


@pytest.mark.parametrize(("confidence", "look"), [(1.0, 1), (0.0, 1), (0.95, 0)])
def test_what_is_no_look_is_a_bug(confidence: float, look: int) -> None:
    with pytest.raises(BugError):
        look_confidence(confidence, look)
    with pytest.raises(BugError):
        spent(confidence, look - 1)


@given(st.floats(0.5, 1 - 1e-9))
def test_a_confidence_in_words_never_reads_as_certain(confidence: float) -> None:
    assert 0 < float(percent(confidence)) < 100
    assert 100 - float(percent(confidence)) == pytest.approx(100 * (1 - confidence), rel=0.06)


@pytest.mark.parametrize("differ", [6, 12, 20, 45, 120, 600])
def test_a_thousand_candidates_without_gain_pass_one_look_in_twenty_at_most(differ: int) -> None:
    """Counted over all numbers of wins, exactly; what is allowed would be reached with very many rows."""
    total = 0.0
    for look in range(1, 1001):
        error = 1 - look_confidence(0.95, look)
        least = next((w for w in range(differ // 2, differ + 1) if sign_test(w, differ - w) <= error), None)
        total += 0.0 if least is None else float(binom.sf(least - 1, differ, 0.5))
    assert total <= 0.05
    assert differ < 600 or total > 0.04


@pytest.mark.parametrize(("gain", "share"), [(0.05, 0.1), (-0.05, 0.1), (0.1, 0.2)])
@pytest.mark.parametrize("look", [1, 3, 10, 100])
def test_so_it_is_with_another_gain_asked_for(gain: float, share: float, look: int) -> None:
    """All outcomes of 120 rows, of a candidate that gains just what is not enough; Tango's interval is exact
    to within a tenth of the error."""
    rows, allowed = 120, (1 - look_confidence(0.95, look)) / 2
    wins, losses = (np.arange(end + 1) for end in (60, 40))
    up, down = (share + gain) / 2, (share - gain) / 2
    chance = binom.pmf(wins, rows, up)[:, None] * binom.pmf(losses, rows - wins[:, None], down / (1 - up))
    errs = 0.0
    for won, lost in zip(*np.nonzero(chance > allowed * 1e-4), strict=True):
        low = score_difference(int(won), int(lost), rows, 1 - 2 * allowed)[0]
        if low > gain and passes(int(won), int(lost), rows, gain, look):
            errs += float(chance[won, lost])
    assert errs <= 1.1 * allowed


def passes(wins: int, losses: int, rows: int, min_gain: float, look: int) -> bool:
    compared = Compared(wins / rows, losses / rows, -1.0, 1.0, rows, 0.5, wins + losses)
    said = held_out_verdict(compared, min_score=None, min_gain=min_gain, confidence=0.95, look=look)
    return said.outcome == "Passed"


COUNTS = st.integers(8, 80).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n)))


def right(n: int, count: int, *, unit: float = 1.0) -> dict[str, float]:
    return {f"x{i}": unit * float(i < count) for i in range(n)}


@settings(max_examples=150, deadline=None)
@given(COUNTS, st.sampled_from([1.0, 0.9]), st.sampled_from([-0.1, 0.0, 0.1]), st.integers(1, 40))
def test_a_look_is_judged_as_a_first_look_at_its_own_level(
    counts: tuple[int, int, int], unit: float, min_gain: float, look: int
) -> None:
    n, before, after = counts
    compared = compare(right(n, after, unit=unit), right(n, before, unit=unit), confidence=0.95)
    later = held_out_verdict(compared, min_score=None, min_gain=min_gain, confidence=0.95, look=look)
    alone = look_confidence(0.95, look)
    first = held_out_verdict(compared, min_score=None, min_gain=min_gain, confidence=alone)
    assert (later.outcome, later.low, later.high) == (first.outcome, first.low, first.high)
    assert later.needed == first.needed
    assert ("at this heldOut" in later.message) == (look > 1)
    if later.outcome == "Passed":
        # Whatever passes late would have passed first.
        early = held_out_verdict(compared, min_score=None, min_gain=min_gain, confidence=0.95)
        assert early.outcome == "Passed"
        corrected = corrected_gain(compared, min_gain=min_gain, confidence=0.95, look=look)
        assert corrected == corrected_gain(compared, min_gain=min_gain, confidence=alone)
        assert min_gain - 1e-9 <= corrected <= compared.gain + 1e-9


def test_a_late_look_says_at_which_level_and_how_many_examples_would_do() -> None:
    compared = compare(right(150, 85), right(150, 75), confidence=0.95)
    said = held_out_verdict(compared, min_score=0.5, min_gain=0.0, confidence=0.95)
    assert said.outcome == "Passed"
    later = held_out_verdict(compared, min_score=0.5, min_gain=0.0, confidence=0.95, look=30)
    assert (later.outcome, later.reason, later.needed) == ("Inconclusive", "TooFewExamples", 184)
    assert later.message.endswith(
        "about 184 more examples would show one of 0.067; look 30 at this heldOut: 99.989 % asked"
    )
    assert "at 99.989 %)" in later.message


def test_too_few_differing_fractions_pass_no_late_look() -> None:
    """However sure a stretched interval looks."""
    few = Compared(0.8, 0.5, 0.299, 0.301, 40, discordant=8)
    assert at_confidence(few, 0.99).low > 0
    assert at_confidence(few, 0.9999).low == 0.0


# -- the winner's curse --------------------------------------------------------------------------------

PASSED = st.integers(6, 200).flatmap(
    lambda differ: st.integers(differ // 2 + 1, differ).flatmap(
        lambda least: st.tuples(st.just(differ), st.just(least), st.integers(least, differ))
    )
)


@given(PASSED, st.integers(0, 300), st.floats(0.0, 0.02))
def test_the_gain_of_what_passed_is_never_above_the_raw_one_nor_under_what_was_shown(
    counts: tuple[int, int, int], same: int, floor: float
) -> None:
    differ, least, wins = counts
    rows = differ + same
    raw = (2 * wins - differ) / rows
    found = shrunk_gain(wins, differ - wins, rows, least=least, floor=floor)
    assert min(floor, raw) - 1e-9 <= found <= raw
    if wins > least:
        assert found >= shrunk_gain(wins - 1, differ - wins + 1, rows, least=least, floor=floor) - 1e-9


@given(st.floats(0.0, 0.3), st.floats(0.001, 0.1), st.floats(0.0, 6.0))
def test_so_it_is_for_other_scores(least: float, spread: float, over: float) -> None:
    mean = least + over * spread
    found = shrunk_mean(mean, spread, least=least)
    assert 0.0 <= found <= mean
    if over > 5:
        assert found == pytest.approx(mean, abs=spread / 100)


def test_far_over_the_limit_it_is_the_raw_one() -> None:
    assert shrunk_gain(58, 2, 300, least=39) == pytest.approx(56 / 300, abs=1e-6)
    assert shrunk_gain(39, 21, 300, least=39) < 0.25 * 18 / 300


def test_what_did_not_pass_has_none() -> None:
    with pytest.raises(BugError):
        shrunk_gain(26, 14, 150, least=27)
    with pytest.raises(BugError):
        shrunk_mean(0.03, 0.02, least=0.04)


def biases(differ: int, rows: int, look: int, share: float) -> tuple[float, float, float]:
    """The probability to pass, and the mean error of the raw and the shrunk gain of those that do. Exact."""
    error = 1 - look_confidence(0.95, look)
    least = next(w for w in range(differ // 2, differ + 1) if sign_test(w, differ - w) <= error)
    true, passes = (2 * share - 1) * differ / rows, float(binom.sf(least - 1, differ, share))
    raw = shrunk = 0.0
    for wins in range(least, differ + 1):
        weight = float(binom.pmf(wins, differ, share)) / passes
        raw += weight * ((2 * wins - differ) / rows - true)
        shrunk += weight * (shrunk_gain(wins, differ - wins, rows, least=least) - true)
    return passes, raw, shrunk


@pytest.mark.parametrize("look", [1, 10, 100])
@pytest.mark.parametrize("differ", [24, 40, 80])
def test_its_worst_bias_is_far_less_than_that_of_the_raw_gain(differ: int, look: int) -> None:
    """At whatever true gain; where passing was likely anyway it errs low, by less than the raw one errs high
    where it was not."""
    found = [biases(differ, 200, look, share / 100) for share in range(50, 96, 3)]
    assert max(abs(shrunk) for _, _, shrunk in found) < 0.6 * max(raw for _, raw, _ in found)
