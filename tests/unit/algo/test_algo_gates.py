"""The held-out gates: outcomes and numbers, exact for right-or-wrong scores, and how many examples
suffice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.algo.gates import (
    Compared,
    at_confidence,
    compare,
    examples_needed,
    held_out_verdict,
    score_interval,
)
from combee.algo.stats import gate_power, paired_difference
from combee.algo.verdict import number, spoken
from combee.errors import BugError

BETTER = Compared(0.861, 0.640, 0.18, 0.26, 300)
VERDICTS = [
    ("passes", BETTER, 0.85, 0.0, "Passed", "HeldOutPassed", None),
    ("score is not asked for", BETTER, None, 0.0, "Passed", "HeldOutPassed", None),
    ("score exactly", Compared(0.85, 0.64, 0.1, 0.3, 300), 0.85, 0.0, "Passed", "HeldOutPassed", None),
    ("score too low", BETTER, 0.9, 0.0, "Failed", "ScoreTooLow", None),
    ("gain is larger than asked for", BETTER, None, 0.17, "Passed", "HeldOutPassed", None),
    ("gain asked for is within the interval", BETTER, None, 0.2, "Inconclusive", "TooFewExamples", 3752),
    ("gain asked for is above the interval", BETTER, None, 0.3, "Failed", "NotBetter", None),
    ("worse", Compared(0.5, 0.6, -0.15, -0.05, 300), None, 0.0, "Failed", "NotBetter", None),
    ("a worse one that may be a little worse", Compared(0.5, 0.51, -0.02, 0.0, 300), None, -0.03, "Passed",
     "HeldOutPassed", None),
    ("equal", Compared(0.6, 0.6, -0.04, 0.04, 300, 0.95, 30), None, 0.0, "Inconclusive", "TooFewExamples",
     None),
    ("doubtful", Compared(0.61, 0.6, -0.02, 0.04, 300, 0.95, 30), None, 0.0, "Inconclusive", "TooFewExamples",
     7786),
    ("on the edge of doubt", Compared(0.61, 0.6, 0.0, 0.04, 300, 0.95, 30), None, 0.0, "Inconclusive",
     "TooFewExamples", 7786),
    ("no examples", Compared(0.0, 0.0, -1.0, 1.0, 0), 0.85, 0.0, "Inconclusive", "TooFewExamples", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("compared", "min_score", "min_gain", "outcome", "reason", "needed"),
    [row[1:] for row in VERDICTS],
    ids=[str(row[0]) for row in VERDICTS],
)
def test_verdicts(
    compared: Compared,
    min_score: float | None,
    min_gain: float,
    outcome: str,
    reason: str,
    needed: int | None,
) -> None:
    said = held_out_verdict(compared, min_score=min_score, min_gain=min_gain, confidence=0.95)
    assert (said.outcome, said.reason, said.needed) == (outcome, reason, needed)
    assert said.samples == compared.rows


def test_sentences() -> None:
    passed = held_out_verdict(BETTER, min_score=0.85, min_gain=0.0, confidence=0.95)
    assert passed.message == (
        "0.861 >= 0.850 (0.817 to 0.896 at 95 %); +0.221 [0.180, 0.260] vs active, n=300"
    )
    low = held_out_verdict(BETTER, min_score=0.9, min_gain=0.0, confidence=0.95, against="the start")
    assert low.message == (
        "0.861 < 0.900 (0.817 to 0.896 at 95 %); +0.221 [0.180, 0.260] vs the start, n=300"
    )
    doubtful = Compared(0.61, 0.6, -0.02, 0.04, 300, 0.95, 30)
    said = held_out_verdict(doubtful, min_score=None, min_gain=0.0, confidence=0.95)
    assert said.message == (
        "+0.010 [-0.020, 0.040] vs active, n=300; a gain over 0.000 cannot be told from chance; "
        "about 7,786 more examples would show one of 0.010"
    )


def test_thresholds_are_written_short_and_exactly() -> None:
    assert [number(x) for x in (0.85, -0.005, 1.0, 0.00025)] == ["0.850", "-0.005", "1.000", "0.00025"]
    assert spoken(-0.5, -1.0, 0.0, 12345, "active") == "-0.500 [-1.000, 0.000] vs active, n=12,345"


def right(n: int, count: int) -> dict[str, float]:
    return {f"x{i}": float(i < count) for i in range(n)}


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.99])
def test_another_confidence_is_exact_for_right_and_wrong(confidence: float) -> None:
    old, new = right(60, 20), right(60, 33)
    recorded = compare(new, old, confidence=0.95)
    exact = paired_difference(old, new, seed=1, confidence=confidence)
    again = at_confidence(recorded, confidence)
    assert (again.low, again.high, again.confidence) == (exact.low, exact.high, confidence)


def test_another_confidence_is_stretched_for_fractions() -> None:
    rng = np.random.default_rng(3)
    old = {str(i): float(x) for i, x in enumerate(rng.random(400))}
    new = {i: min(1.0, x + 0.1 * float(rng.random())) for i, x in old.items()}
    recorded = compare(new, old, confidence=0.95)
    for confidence in (0.8, 0.99):
        exact = compare(new, old, confidence=confidence)
        again = at_confidence(recorded, confidence)
        assert again.low == pytest.approx(exact.low, abs=0.002)
        assert again.high == pytest.approx(exact.high, abs=0.002)
    with pytest.raises(BugError):
        at_confidence(recorded, 1.0)


def test_pairs_are_by_id_and_the_rest_is_left_out() -> None:
    found = compare({"a": 1.0, "b": 1.0, "c": 0.0}, {"b": 0.0, "a": 1.0, "d": 1.0}, confidence=0.95)
    assert (found.rows, found.score, found.other, found.discordant) == (2, 1.0, 0.5, 1)
    nothing = compare({"a": 1.0}, {"b": 1.0}, confidence=0.95)
    assert (nothing.rows, nothing.low, nothing.high) == (0, -1.0, 1.0)


def test_few_examples_never_pass_by_luck_alone() -> None:
    for n in range(1, 6):
        said = held_out_verdict(
            compare(right(n, n), right(n, 0), confidence=0.95), min_score=None, min_gain=0.0, confidence=0.95
        )
        assert said.outcome == "Inconclusive"
    six = compare(right(6, 6), right(6, 0), confidence=0.95)
    assert held_out_verdict(six, min_score=None, min_gain=0.0, confidence=0.95).outcome == "Passed"


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 80).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n))),
    st.sampled_from([None, 0.5]),
    st.sampled_from([-0.1, 0.0, 0.1]),
)
def test_what_passes_holds_and_what_fails_does_not(
    counts: tuple[int, int, int], min_score: float | None, min_gain: float
) -> None:
    n, before, after = counts
    compared = compare(right(n, after), right(n, before), confidence=0.95)
    said = held_out_verdict(compared, min_score=min_score, min_gain=min_gain, confidence=0.95)
    if said.outcome == "Passed":
        assert compared.low > min_gain
        assert min_score is None or compared.score >= min_score
    if said.outcome == "Failed":
        assert compared.high < min_gain or (min_score is not None and compared.score < min_score)
    assert said.outcome != "Error"


@pytest.mark.parametrize(("gain", "share"), [(0.1, 0.3), (0.2, 0.4), (0.15, 0.2)])
def test_the_examples_needed_detect_the_gain(gain: float, share: float) -> None:
    needed = examples_needed(gain, discordance=share, confidence=0.95)
    assert gate_power(needed, gain, discordance=share) >= 0.8
    assert gate_power(needed - max(2, needed // 50), gain, discordance=share) < 0.82
    rng = np.random.default_rng(5)
    shown = 0
    for _ in range(200):
        draws = rng.choice([-1, 0, 1], p=[(share - gain) / 2, 1 - share, (share + gain) / 2], size=needed)
        old = {str(i): float(d < 0) for i, d in enumerate(draws)}
        new = {str(i): float(d > 0) for i, d in enumerate(draws)}
        shown += compare(new, old, confidence=0.95).low > 0
    assert 0.7 <= shown / 200 <= 0.95


def test_a_gain_beyond_what_differs_and_one_too_small_for_any_data_get_a_number_at_once() -> None:
    assert examples_needed(2.0, discordance=1.0, confidence=0.95) == 6
    assert examples_needed(1e-6, discordance=0.1, confidence=0.95) > 10**11


def test_what_cannot_be_needed_is_refused() -> None:
    for gain, share, confidence in ((0.0, 0.1, 0.95), (0.1, 0.0, 0.95), (0.1, 0.1, 1.0)):
        with pytest.raises(BugError):
            examples_needed(gain, discordance=share, confidence=confidence)


def test_the_interval_of_a_score() -> None:
    assert score_interval(0.5, 0, 0.95) == (0.0, 1.0)
    low, high = score_interval(1.0, 10, 0.95)
    assert high == 1.0
    assert 0.69 < low < 0.73


def promoted_at(n: int, margin: float, differ: float, confidence: float) -> float:
    """The exact share of outcomes of n examples in which a candidate with true difference ``margin``
    passes."""
    win, lose = (differ + margin) / 2, (differ - margin) / 2
    total = 0.0
    for losses in range(n + 1):
        # Passing is the likelier the more wins there are: the first number of them that passes is looked for.
        each = range(n - losses + 1)
        first = next((wins for wins in each if passes(wins, losses, n, margin, confidence)), n + 1)
        for wins in range(first, n - losses + 1):
            ways = math.lgamma(n + 1) - sum(math.lgamma(k + 1) for k in (wins, losses, n - wins - losses))
            parts = ((wins, win), (losses, lose), (n - wins - losses, 1 - differ))
            if all(share > 0 or not count for count, share in parts):
                total += math.exp(ways + sum(count * math.log(share) for count, share in parts if count))
    return total


def passes(wins: int, losses: int, n: int, margin: float, confidence: float) -> bool:
    score, gain = (n - losses) / n, (wins - losses) / n
    compared = Compared(score, score - gain, gain, gain, n, confidence, wins + losses)
    said = held_out_verdict(compared, min_score=None, min_gain=margin, confidence=confidence)
    return said.outcome == "Passed"


@pytest.mark.parametrize("margin", [-0.2, -0.1, -0.05, 0.05])
@pytest.mark.parametrize("n", [5, 10, 20, 40])
def test_a_candidate_at_the_margin_is_hardly_ever_promoted_however_few_examples(
    n: int, margin: float
) -> None:
    """The aim is 2.5 %. A score interval keeps it on average, and within a few points everywhere."""
    rates = [promoted_at(n, margin, differ, 0.95) for differ in (abs(margin), 0.25, 0.4, 0.7)]
    print([round(rate, 4) for rate in rates])
    assert max(rates) <= 0.05


@pytest.mark.parametrize(
    ("wins", "n", "outcome"), [(0, 10, "Inconclusive"), (1, 5, "Inconclusive"), (0, 200, "Passed")]
)
def test_a_few_equal_examples_do_not_show_that_a_candidate_is_no_worse(
    wins: int, n: int, outcome: str
) -> None:
    old = {str(i): float(i >= wins) for i in range(n)}
    compared = compare(dict.fromkeys(old, 1.0), old, confidence=0.95)
    assert held_out_verdict(compared, min_score=None, min_gain=-0.05, confidence=0.95).outcome == outcome


@given(st.integers(1, 400), st.data(), st.sampled_from([0.8, 0.95, 0.99]))
def test_interval_of_counts_is_the_one_of_scipy(rows: int, data: st.DataObject, confidence: float) -> None:
    right = data.draw(st.integers(0, rows))
    from scipy import stats  # scipy.stats takes a second to import

    wilson = stats.binomtest(right, rows).proportion_ci(confidence, method="wilson")
    expected = (wilson.low, wilson.high)
    assert score_interval(right / rows, rows, confidence) == pytest.approx(expected, abs=1e-12)


@given(st.floats(0, 1), st.integers(0, 10_000))
def test_interval_of_a_score_holds_it(score: float, rows: int) -> None:
    low, high = score_interval(score, rows, 0.95)
    assert 0 <= low <= score + 1e-9 and score - 1e-9 <= high <= 1


def test_scipy_takes_no_share_of_a_right_answer() -> None:
    """Why the interval is ours: a score may be a fraction (docs/architecture.md)."""
    from scipy import stats

    with pytest.raises(TypeError, match="integer"):
        stats.binomtest(4.5, 10)  # type: ignore[arg-type]
    low, high = score_interval(0.45, 10, 0.95)
    assert low < 0.45 < high
