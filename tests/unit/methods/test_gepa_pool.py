"""The pool: a set of facts that only grows, and what a reader makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gepa_makers import GEPA, pool_of, pools, scored, variant
from hypothesis import given

from combee.errors import DataError
from combee.methods.components.pool import Acceptance, Pool, read_components
from combee.methods.components.standing import best, mean_score, members, ranked, scores
from combee.methods.protocol import Refusal


@given(pools, pools, pools)
def test_joining_is_commutative_associative_and_idempotent(a: Pool, b: Pool, c: Pool) -> None:
    assert a.join(b) == b.join(a)
    assert a.join(b).join(c) == a.join(b.join(c))
    assert a.join(a) == a


@given(pools)
def test_a_pool_is_read_back_as_it_was_with_the_state_of_its_generator(pool: Pool) -> None:
    read = GEPA.from_json(pool.to_json())
    assert (read, read.to_json(), read.drawn, read.seed) == (pool, pool.to_json(), pool.drawn, pool.seed)
    assert read.variants == pool.variants and read.scores == pool.scores


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"version": 1}', b'{"version": 9}', GEPA.empty().to_json()[:-9]]
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(DataError):
        GEPA.from_json(data)


def test_components_are_named_in_json_or_there_is_one() -> None:
    assert read_components('{"plan": "First.", "act": "Then."}') == {"plan": "First.", "act": "Then."}
    for text in ("Be brief.", '{"plan": 1}', "{broken", "{}"):
        assert read_components(text) == {"instructions": text}
    several = GEPA.initial('{"plan": "First.", "act": "Then."}')
    assert GEPA.render(several, budget_tokens=100, verify="Off").text == "# act\n\nThen.\n\n# plan\n\nFirst."


def test_who_was_given_is_in_and_others_when_they_beat_their_parent() -> None:
    start, good, bad, waiting = (variant(instructions=text) for text in ("start", "good", "bad", "waiting"))
    pool = pool_of(start, good, bad, waiting)
    judged = frozenset({Acceptance(good.digest, True, 1.0, 4), Acceptance(bad.digest, False, 0.0, 4)})
    pool = replace(pool, judged=judged)
    assert members(pool) == [start.digest, good.digest]
    both = replace(pool, judged=judged | {Acceptance(good.digest, False, -1.0, 4)})
    assert members(both) == [start.digest]
    refused = replace(pool, refusals=frozenset({Refusal(good.digest, "", "leak", "why")}))
    assert members(refused) == [start.digest]


def test_the_best_mean_leads_and_of_equals_the_older() -> None:
    start, one, other = (variant(instructions=text) for text in ("start", "one", "other"))
    pool = pool_of(start, one, other)
    pool = replace(
        pool,
        scores=scored({start: {"a": 0.0, "b": 1.0}, one: {"a": 1.0, "b": 0.0}, other: {"a": 1.0, "b": 1.0}}),
    )
    assert ranked(pool) == [other.digest, start.digest, one.digest]
    assert GEPA.render(pool, budget_tokens=100, verify="Replay").text == "other"


def test_a_lost_example_is_absent_and_lowers_nothing() -> None:
    start, one = variant(instructions="start"), variant(instructions="one")
    pool = replace(pool_of(start, one), scores=scored({start: {"a": 1.0, "b": 0.0}, one: {"a": 1.0}}))
    assert scores(pool)[one.digest] == {"a": 1.0}
    assert mean_score(scores(pool)[one.digest]) == 1.0
    assert best(pool) == one


def test_what_does_not_fit_is_left_out_and_said() -> None:
    short, long = variant(instructions="short"), variant(instructions="word " * 100)
    pool = replace(pool_of(short, long), scores=scored({short: {"a": 0.0}, long: {"a": 1.0}}))
    rendered = GEPA.render(pool, budget_tokens=20, verify="Off")
    assert (rendered.text, rendered.tokens <= 20) == ("short", True)
    assert [(one.digest, one.reason) for one in rendered.left_out] == [(long.digest, "budget")]
    long_alone = pool_of(variant(instructions="\n".join(["a line of words"] * 50)))
    cut = GEPA.render(long_alone, budget_tokens=20, verify="Off")
    assert cut.tokens <= 20 and cut.text.startswith("a line of words\n")
