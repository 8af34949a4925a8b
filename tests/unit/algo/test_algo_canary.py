"""The canary: 500 of each kind, looked at after every pair; the theory of its power; its tally."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.algo.canary import ALPHA, Rules, still_needed, tally_verdict
from combee.algo.power import decidable_epsilon, pairs_needed, power
from combee.algo.sequence import BETS, GRID, LARGEST_BET, above, below, interval, log_capital, on_grid
from combee.algo.tally import MAX_SPANS, MAX_STREAMS, REPEATED, LeftOut, Pair, Ratios, Tally
from combee.errors import BugError
from combee.work.judge import claims, roots_of

CANARIES = 500
Draw = Callable[[np.random.Generator, int, float], np.ndarray]
RULES = Rules(epsilon=0.02, min_samples=20, duration_seconds=60, deadline_seconds=600)


def ternary(rng: np.random.Generator, n: int, mean: float, sd: float = 0.3) -> np.ndarray:
    """Wins, draws and defeats."""
    differ = max(abs(mean), sd * sd + mean * mean)
    return rng.choice([-1.0, 0.0, 1.0], p=[(differ - mean) / 2, 1 - differ, (differ + mean) / 2], size=n)


def smooth(rng: np.random.Generator, n: int, mean: float) -> np.ndarray:
    """Any number, as a judge that gives fractions would."""
    return np.asarray(2 * rng.beta(8 * (1 + mean), 8 * (1 - mean), size=n) - 1)


def rare(rng: np.random.Generator, n: int, mean: float) -> np.ndarray:
    """Nearly always a little better, sometimes a disaster."""
    return np.where(rng.random(n) < (0.03 - mean) / 1.03, -1.0, 0.03)


def first_at(differences: np.ndarray, mean: float, *, up: bool, looks: np.ndarray | None = None) -> float:
    """After how many pairs the capital reaches its limit for the first time, looking after each; inf for
    never.

    Reckoned for all looks at once, and then checked against the product's own answer at the looks that
    decide."""
    sign = 1.0 if up else -1.0
    bets = sign * LARGEST_BET * 0.5 ** np.arange(BETS) / (1 + sign * mean)
    each = np.log1p(bets[:, None] * (np.arange(-GRID, GRID + 1) / GRID - mean))
    logs = np.cumsum(each[:, units(differences) + GRID], axis=1)
    top, limit = logs.max(axis=0), math.log(2 / ALPHA)
    surely = int(np.argmax(np.append(top, math.inf) >= limit + math.log(BETS))) + 1
    logs, top = logs[:, :surely], top[:surely]
    capital = top + np.log(np.exp(logs - top).mean(axis=0))
    reached = np.nonzero(capital >= limit)[0]
    told = above if up else below
    if not len(reached):
        best = int(capital.argmax()) + 1
        assert not told(counted(differences[:best]), mean, ALPHA)
        return math.inf
    first = int(reached[0]) + 1
    assert told(counted(differences[:first]), mean, ALPHA)
    assert not told(counted(differences[: first - 1]), mean, ALPHA)
    return float(first)


def counted(differences: np.ndarray) -> dict[int, int]:
    return dict(Counter(units(differences).tolist()))


def units(differences: np.ndarray) -> np.ndarray:
    return np.rint(differences * GRID).astype(int)


def gridded(differences: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """As the tally has them: ``on_grid`` of all at once, checked against the product's at some."""
    luck = rng.random(len(differences))
    scaled = differences * GRID
    near, down = np.rint(scaled), np.floor(scaled)
    values = np.where(abs(scaled - near) <= 1e-7, near, down + (luck < scaled - down))
    some = zip(differences[::30].tolist(), luck[::30].tolist(), strict=True)
    assert values[::30].tolist() == [on_grid(difference, u) for difference, u in some]
    return values / GRID


@pytest.mark.parametrize("epsilon", [0.02, 0.1])
@pytest.mark.parametrize("worse", [0.0, 0.03])
@pytest.mark.parametrize("draw", [ternary, smooth, rare])
def test_a_worse_candidate_is_hardly_ever_promoted_however_often_one_looks(
    draw: Draw, worse: float, epsilon: float
) -> None:
    rng = np.random.default_rng([7, int(epsilon * 1000), int(worse * 1000), ord(draw.__name__[0])])
    promoted = 0
    for _ in range(CANARIES):
        differences = gridded(draw(rng, 1500, -epsilon - worse), rng)
        promoted += math.isfinite(first_at(differences, -epsilon, up=True))
    assert promoted <= 0.05 * CANARIES


@pytest.mark.parametrize("better", [0.0, 0.05])
def test_a_candidate_that_is_good_enough_is_hardly_ever_refused(better: float) -> None:
    rng = np.random.default_rng(11)
    refused = sum(
        math.isfinite(first_at(ternary(rng, 2000, -0.02 + better), -0.02, up=False)) for _ in range(CANARIES)
    )
    assert refused <= 0.05 * CANARIES


POWERS = [
    # epsilon, difference, sd, pairs
    (0.02, 0.0, 0.3, (1500, 3000, 6000)),
    (0.02, 0.01, 0.3, (1000, 2000)),
    (0.05, 0.0, 0.5, (750, 1500)),
    (0.03, 0.0, 0.2, (700, 1400)),
    (0.1, 0.05, 0.6, (150, 300)),
]


@pytest.mark.parametrize(("epsilon", "difference", "sd", "pairs"), POWERS)
def test_power_follows_the_theory_within_five_points(
    epsilon: float, difference: float, sd: float, pairs: tuple[int, ...]
) -> None:
    rng = np.random.default_rng([13, int(epsilon * 100), int(sd * 10)])
    first = [
        first_at(ternary(rng, max(pairs), difference, sd), -epsilon, up=True) for _ in range(2 * CANARIES)
    ]
    for n in pairs:
        measured = float(np.mean([f <= n for f in first]))
        assert abs(measured - power(n, epsilon=epsilon, difference=difference, sd=sd)) <= 0.05, n


@pytest.mark.parametrize("wanted", [0.5, 0.8, 0.95])
def test_the_pairs_needed_give_the_power_asked_for(wanted: float) -> None:
    needed = pairs_needed(0.03, 0.0, 0.25, power=wanted)
    assert needed is not None
    assert power(needed, epsilon=0.03, difference=0.0, sd=0.25) == pytest.approx(wanted, abs=0.02)


def test_an_equal_candidate_at_half_a_point_takes_tens_of_thousands() -> None:
    needed = pairs_needed(0.005)
    assert needed is not None
    assert 30_000 < needed < 90_000
    assert pairs_needed(0.005, -0.005) is None
    assert pairs_needed(0.0) is None


def test_an_epsilon_is_proposed_that_the_traffic_can_decide() -> None:
    proposed = decidable_epsilon(4000)
    assert proposed == 0.02
    assert (pairs_needed(0.02) or 0) <= 4000 < (pairs_needed(0.015) or 0)
    assert decidable_epsilon(10) is None


def test_epsilon_and_pairs_that_cannot_be_are_refused() -> None:
    for wrong in ({"epsilon": -0.1}, {"epsilon": 0.1, "sd": 0.0}, {"epsilon": 0.1, "power": 1.0}):
        with pytest.raises(BugError):
            pairs_needed(**wrong)


# -- the sequence --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [-0.4, 0.0, 0.3])
def test_the_interval_covers_the_mean_at_all_looks_at_once(mean: float) -> None:
    rng = np.random.default_rng(17)
    missed = 0
    for _ in range(200):
        differences = ternary(rng, 1000, mean, 0.5)
        up, down = (first_at(differences, mean, up=up) for up in (True, False))
        missed += math.isfinite(min(up, down))
    assert missed <= 0.05 * 200


def test_the_interval_and_the_two_questions_agree() -> None:
    rng = np.random.default_rng(19)
    for n in (1, 10, 100, 1000):
        counts = counted(ternary(rng, n, 0.1, 0.5))
        low, high = interval(counts, ALPHA)
        mean = sum(v * c for v, c in counts.items()) / n / GRID
        assert -1 <= low <= mean <= high <= 1
        assert low == -1 or above(counts, low, ALPHA)
        assert not above(counts, low + 1e-4, ALPHA)
        assert high == 1 or below(counts, high, ALPHA)
        assert not below(counts, high - 1e-4, ALPHA)


def test_rounding_keeps_the_mean() -> None:
    luck = np.linspace(0, 1, 2001)[:-1]
    for difference in (-0.337, 1 / 3, 0.995, -1.0, 0.25):
        values = [on_grid(difference, float(u)) for u in luck]
        assert np.mean(values) / GRID == pytest.approx(difference, abs=1e-5)
    for wrong in (1.2, -1.01, math.nan):
        with pytest.raises(BugError):
            on_grid(wrong, 0.5)


SCORES = st.tuples(st.lists(st.booleans(), min_size=4, max_size=4), st.floats(0, 1)).map(
    lambda verdict: (sum(verdict[0]) + verdict[1]) / 5
)
"""scores by four criteria and a quality, as an evaluator gives them."""


@given(st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_differences_of_fractions_are_counted_as_those_of_right_and_wrong(
    scores: list, random: object
) -> None:
    pairs = [Pair("g", number, one - other) for number, (one, other) in enumerate(scores)]
    tally = Tally().with_pairs("test", pairs)
    random.shuffle(pairs)  # type: ignore[attr-defined]
    assert Tally().with_pairs("test", pairs).counts == tally.counts, "the order of arrival does not matter"
    low, high = interval(tally.counts, ALPHA)
    true = math.fsum(one - other for one, other in scores) / len(scores)
    assert tally.pairs == len(scores) and abs(tally.mean - true) <= 1 / GRID
    assert -1 <= low <= tally.mean <= high <= 1


def test_nothing_is_known_without_pairs() -> None:
    assert interval({}, 0.05) == (-1.0, 1.0)
    assert log_capital({}, 0.0, up=True) == 0.0
    with pytest.raises(BugError):
        interval({}, 1.0)


# -- the tally -----------------------------------------------------------------------------------------

PAIRS = st.lists(
    st.builds(
        Pair,
        stream=st.sampled_from(["a", "b"]),
        number=st.integers(0, 30),
        difference=st.just(0.0),
        latency_ratio=st.sampled_from([None, 1.1, 0.7]),
    ),
    max_size=40,
)


def scored(pairs: list[Pair]) -> list[Pair]:
    """With a difference and ratios that belong to the identity, as a judged pair has."""
    return [
        Pair(
            p.stream,
            p.number,
            math.sin(p.number + ord(p.stream)),
            1.0 + p.number / 50,
            cost_ratio=None if p.number % 3 else 2.0 - p.number / 50,
        )
        for p in pairs
    ]


@settings(max_examples=150, deadline=None)
@given(PAIRS, st.randoms(use_true_random=False))
def test_each_pair_counts_once_in_any_order_and_over_any_restart(pairs: list[Pair], random: object) -> None:
    known = scored(pairs)
    once = Tally().with_pairs("t", known)
    again = once.with_pairs("t", known)
    shuffled = known * 2
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    piecewise = Tally()
    for pair in shuffled:
        piecewise = Tally.from_json(json.loads(json.dumps(piecewise.to_json()))).with_pairs("t", [pair])
    assert once.to_json() == again.to_json() == piecewise.to_json()
    assert once.pairs == len({(p.stream, p.number) for p in known})


def test_a_tally_of_a_release_that_knew_no_costs_is_read() -> None:
    raw = {"counts": {"0": 4}, "spans": {"s": [[0, 3]]}, "timed": 4, "logRatio": 4_000_000}
    tally = Tally.from_json(raw)
    assert tally.expenses["latency"].mean == pytest.approx(math.e) and tally.expenses["cost"].mean is None
    assert tally.to_json() == raw
    more = tally.with_pairs("t", [Pair("s", 4, 0.0, None, cost_ratio=3.0)])
    assert more.expenses["cost"].mean == pytest.approx(3.0) and more.expenses["latency"].count == 4


def test_another_test_rounds_otherwise_and_the_mean_stays() -> None:
    pairs = [Pair("s", i, 1 / 3) for i in range(3000)]
    one, other = Tally().with_pairs("one", pairs), Tally().with_pairs("other", pairs)
    assert one.counts != other.counts
    assert one.mean == pytest.approx(1 / 3, abs=0.001)


def test_the_state_stays_small() -> None:
    pairs = [Pair(f"pod-{s}", n, math.sin(n + s), 1.0) for s in range(5) for n in range(2000)]
    tally = Tally().with_pairs("t", pairs)
    assert tally.pairs == 10_000
    assert len(json.dumps(tally.to_json())) < 4000


def test_too_many_gaps_are_closed_from_below() -> None:
    tally = Tally().with_pairs("t", [Pair("s", 2 * i, 0.0) for i in range(MAX_SPANS + 5)])
    assert len(tally.spans["s"]) == MAX_SPANS
    assert tally.with_pairs("t", [Pair("s", 1, 0.0)]) == tally


@pytest.mark.parametrize(
    "pair",
    [Pair("s", -1, 0.0), Pair("s", 0, 2.0), Pair("s", 0, 0.0, 0.0), Pair("s", 0, 0.0, cost_ratio=-1.0)],
)
def test_pairs_that_cannot_be_are_refused(pair: Pair) -> None:
    with pytest.raises(BugError):
        Tally().with_pairs("t", [pair])


@pytest.mark.parametrize(
    "raw", [{"counts": 1}, {"counts": {"200": 1}, "spans": {}, "timed": 0, "logRatio": 0}]
)
def test_a_state_that_is_none_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(BugError):
        Tally.from_json(raw)


# -- the verdict ---------------------------------------------------------------------------------------

EQUAL = Tally({0: 4000, 100: 30, -100: 30})
WORSE = Tally({0: 300, -100: 100})
TWICE = Ratios().plus([2.0] * 4060)
SLOW = replace(EQUAL, expenses={"latency": TWICE, "cost": Ratios()})
DEAR = replace(EQUAL, expenses={"latency": TWICE, "cost": TWICE})
VERDICTS = [
    ("passes", EQUAL, RULES, 90, "Passed", "CanaryPassed", True),
    ("worse, at once", WORSE, RULES, 0, "Failed", "CanaryWorse", True),
    ("worse, after the deadline", WORSE, RULES, 601, "Failed", "CanaryWorse", True),
    ("nothing came", Tally(), RULES, 90, "Inconclusive", "NoTraffic", False),
    ("nothing came by the deadline", Tally(), RULES, 600, "Inconclusive", "DeadlineExceeded", True),
    ("time alone", Tally({0: 20}), RULES, 599, "Inconclusive", "NeedPairs", False),
    ("time alone, to the end", Tally({0: 20}), RULES, 10_000, "Inconclusive", "DeadlineExceeded", True),
    ("too early", EQUAL, RULES, 59, "Inconclusive", "TooEarly", False),
    ("too few", EQUAL, Rules(0.02, 5000, 60, 600), 90, "Inconclusive", "NeedPairs", False),
    ("too slow", SLOW, Rules(0.02, 20, 60, 600, 1.5), 90, "Inconclusive", "TooSlow", False),
    ("too dear", DEAR, Rules(0.02, 20, 60, 600, 3, 1.9), 90, "Inconclusive", "TooCostly", False),
    ("shown at the deadline", EQUAL, RULES, 600, "Passed", "CanaryPassed", True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("tally", "rules", "elapsed", "outcome", "reason", "final"),
    [row[1:] for row in VERDICTS],
    ids=[str(row[0]) for row in VERDICTS],
)
def test_verdicts(tally: Tally, rules: Rules, elapsed: float, outcome: str, reason: str, final: bool) -> None:
    said = tally_verdict(tally, rules, elapsed)
    assert (said.outcome, said.reason, said.final) == (outcome, reason, final)
    assert said.samples == tally.pairs


def test_the_verdict_turns_at_the_pair_at_which_the_capital_does() -> None:
    rng = np.random.default_rng(29)
    rules = Rules(epsilon=0.1, min_samples=1, duration_seconds=0, deadline_seconds=600)
    for mean, up, outcome in ((0.0, True, "Passed"), (-0.3, False, "Failed")):
        for _ in range(10):
            differences = ternary(rng, 2000, mean)
            first = int(first_at(differences, -0.1, up=up))
            pairs = [Pair("s", i, float(d)) for i, d in enumerate(differences[:first])]
            before = Tally().with_pairs("t", pairs[:-1])
            assert tally_verdict(before, rules, 1).outcome == "Inconclusive"
            assert tally_verdict(before.with_pairs("t", pairs[-1:]), rules, 1).outcome == outcome


def test_the_sentence_has_the_numbers_and_the_pairs_still_needed() -> None:
    tally = Tally({0: 900, 100: 50, -100: 50})
    said = tally_verdict(tally, RULES, 90)
    assert said.message == (
        "+0.000 [-0.036, 0.036] vs active, n=1,000: the lower end must be above -0.020, "
        f"about {said.needed:,} more pairs are needed"
    )
    grown = {value: times * (1 + (said.needed or 0) / 1000) for value, times in tally.counts.items()}
    assert log_capital(grown, -0.02, up=True) == pytest.approx(math.log(2 / ALPHA), abs=0.02)  # type: ignore[arg-type]
    late = tally_verdict(tally, RULES, 601)
    assert "the deadline of 10 min is over with 1,000 pairs" in late.message


def test_what_is_missing_counts_down() -> None:
    tallies = [Tally({0: 18 * k, 100: k, -100: k}) for k in (10, 50, 140)]
    totals = [tally.pairs + (still_needed(tally, RULES) or 0) for tally in tallies]
    assert totals == pytest.approx([totals[0]] * 3, rel=0.01)
    assert still_needed(Tally({0: 18_000, 100: 1000, -100: 1000}), RULES) == 0
    assert still_needed(Tally(), RULES) is None


def test_answers_that_did_not_come_count_and_are_told() -> None:
    fine = [Pair("s", n, 0.0, 1.0) for n in range(300)]
    lost = [Pair("s", 300 + n, -1.0, None, "400") for n in range(11)]
    lost += [Pair("s", 311, -1.0, 60.0, "timeout"), Pair("s", 312, 1.0, None, "500")]
    tally = Tally.from_json(json.loads(json.dumps(Tally().with_pairs("t", [*fine, *lost]).to_json())))
    assert tally.counts == {0: 300, -100: 12, 100: 1}
    assert tally.failed == {"400": 11, "timeout": 1} and tally.other_failed == {"500": 1}
    assert tally.expenses["latency"].count == 301 and tally.with_pairs("t", lost) == tally
    assert tally_verdict(tally, RULES, 90).message.endswith(
        "; the candidate gave no answer to 12 (400: 11, timeout: 1), active gave no answer to 1 (500: 1)"
    )
    with pytest.raises(BugError):
        Tally().with_pairs("t", [Pair("s", 0, -0.5, None, "400")])


def test_a_candidate_that_refuses_what_the_active_version_answers_is_not_promoted() -> None:
    """Seven in a hundred are refused, and the rest are equal: without those it would be passed."""
    rng = np.random.default_rng(31)
    rules = Rules(epsilon=0.05, min_samples=200, duration_seconds=0, deadline_seconds=600)
    pairs = [
        Pair("s", n, *((-1.0, None, "413") if refused else (0.0, None, "")))
        for n, refused in enumerate(rng.random(3000) < 0.07)
    ]
    assert (
        tally_verdict(Tally().with_pairs("t", [p for p in pairs if not p.failed]), rules, 1).outcome
        == "Passed"
    )
    assert tally_verdict(Tally().with_pairs("t", pairs), rules, 1).outcome != "Passed"


def test_turns_of_one_conversation_break_the_promise_and_one_of_each_keeps_it() -> None:
    """Twenty turns a conversation with one difference. At a mean of -epsilon 5 in a hundred may pass."""
    rng, turns, epsilon = np.random.default_rng(37), 20, 0.1
    every, one_of_each = 0, 0
    for _ in range(CANARIES):
        conversations = ternary(rng, 300, -epsilon, 0.5)
        every += math.isfinite(first_at(np.repeat(conversations, turns), -epsilon, up=True))
        one_of_each += math.isfinite(first_at(conversations, -epsilon, up=True))
    assert every > 0.1 * CANARIES
    assert one_of_each <= 0.05 * CANARIES


@pytest.mark.parametrize("in_turn", [False, True], ids=["mixed", "one after the other"])
def test_a_canary_speaks_of_the_customers_that_it_saw_in_the_mix_in_which_they_came(in_turn: bool) -> None:
    """Twenty customers, to some of whom the candidate is better and to others worse. Their requests in any
    order keep the promise for these twenty; it breaks where they come one customer after the other, and for
    customers to come."""
    rng, customers, each, epsilon = np.random.default_rng(41), 20, 75, 0.02
    these, to_come = 0, 0
    for _ in range(CANARIES):
        own = rng.normal(0, 0.1, customers)
        here = own - own.mean() - epsilon
        to_come += passes(rng, own - epsilon, each, epsilon, in_turn=in_turn)
        these += passes(rng, here, each, epsilon, in_turn=in_turn)
    print(f"{these / CANARIES:.1%} of these customers' canaries pass, {to_come / CANARIES:.1%} of others'")
    assert to_come > 0.1 * CANARIES
    assert these > 0.1 * CANARIES if in_turn else these <= 0.05 * CANARIES


def test_one_pair_of_each_customer_keeps_the_promise_for_customers_to_come() -> None:
    """Customers of different size whose own differences spread by 0.3 around a mean of exactly -epsilon. Each
    request begins with other words: only its cluster says whose it is."""
    rng, customers, epsilon = np.random.default_rng(43), 300, 0.1
    of = np.repeat(np.arange(customers), rng.integers(1, 20, customers))
    holders: dict[str, tuple[str, int]] = {}
    rows = [
        {"messages": [{"role": "user", "content": str(at)}], "cluster": f"customer-{customer}"}
        for at, customer in enumerate(of)
    ]
    counts = np.array([claims(holders, roots_of("test", row), ("s", at)) for at, row in enumerate(rows)])
    assert counts.sum() == customers
    every, one_of_each = 0, 0
    for _ in range(CANARIES):
        means = np.clip(rng.normal(-epsilon, 0.3, customers), -0.7, 0.5)[of]
        differ = np.maximum(np.abs(means), 0.3**2 + means**2)
        luck = rng.random(len(of))
        differences = np.where(
            luck < (differ + means) / 2, 1.0, np.where(luck > 1 - (differ - means) / 2, -1, 0)
        )
        every += math.isfinite(first_at(differences, -epsilon, up=True))
        one_of_each += math.isfinite(first_at(differences[counts], -epsilon, up=True))
    print(f"{every / CANARIES:.1%} pass by all pairs, {one_of_each / CANARIES:.1%} by one of each customer")
    assert every > 0.1 * CANARIES
    assert one_of_each <= 0.05 * CANARIES


def passes(rng: np.random.Generator, means: np.ndarray, each: int, epsilon: float, *, in_turn: bool) -> bool:
    """Whether a canary passes at any look at these customers' pairs, ``each`` of one."""
    differences = np.concatenate([ternary(rng, each, mean) for mean in means])
    ordered = differences if in_turn else rng.permutation(differences)
    return math.isfinite(first_at(ordered, -epsilon, up=True))


def test_what_was_left_out_of_conversations_is_told() -> None:
    tally = EQUAL.with_left_out([LeftOut("s", 9000 + n, REPEATED) for n in range(7)])
    assert Tally.from_json(json.loads(json.dumps(tally.to_json()))) == tally
    said = tally_verdict(tally, RULES, 90).message
    assert said.endswith(
        "; 7 requests are left out: one counts of those that begin with the same words or are of one cluster"
    )


def test_pairs_of_ever_more_gateways_all_count_and_none_twice() -> None:
    pairs = [Pair(f"{i:08x}-ab", n, -1.0 if n else 0.0) for i in range(3 * MAX_STREAMS) for n in range(4)]
    tally = Tally()
    for at in range(0, len(pairs), 10):
        tally = Tally.from_json(json.loads(json.dumps(tally.to_json()))).with_pairs("t", pairs[at : at + 10])
    assert tally.pairs == len(pairs) and tally.counts == {0: 300, -100: 900}
    assert len(tally.spans) == MAX_STREAMS and tally.folded_streams == 2 * MAX_STREAMS
    assert tally.with_pairs("t", pairs) == tally, (
        "what was handed in counts once, also of a stream that is gone"
    )
    assert len(json.dumps(tally.to_json())) < 8000
    worse = Tally.from_json(tally.to_json()).with_pairs("t", [Pair("ffffffff-ab", n, -1.0) for n in range(5)])
    assert worse.pairs == tally.pairs + 5


@given(st.dictionaries(st.integers(-100, 100), st.integers(1, 400), max_size=5), st.floats(0.001, 0.5))
def test_ends_of_an_interval_are_refuted_themselves(counts: dict[int, int], alpha: float) -> None:
    """Why the search for them is ours: a general root finder returns a value on either side."""
    low, high = interval(counts, alpha)
    assert low == -1 or above(counts, low, alpha)
    assert high == 1 or below(counts, high, alpha)
    assert not above(counts, min(1 - 1e-6, low + 2e-6), alpha)


def test_a_root_finder_stops_on_either_side_of_what_is_refuted() -> None:
    """Why the ends are found by halving: each has to be a mean that is refuted (docs/architecture.md)."""
    from scipy.optimize import brentq  # it takes half a second to import

    limit, theirs = math.log(2 / 0.05), []
    for wins in range(60, 100, 4):
        counts = {-100: 40, 0: 900, 100: wins}
        low, high = interval(counts, 0.05)
        assert min(log_capital(counts, low, up=True), log_capital(counts, high, up=False)) >= limit
        root = brentq(lambda mean, of=counts: log_capital(of, mean, up=True) - limit, -0.9, wins / 1e3 - 0.04)
        assert root == pytest.approx(low, abs=2e-6)
        theirs.append(log_capital(counts, root, up=True) >= limit)
    assert not all(theirs)
