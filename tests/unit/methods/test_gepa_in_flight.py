"""Several variants in flight: which one is built on, each child against its parent's minibatch, and equal
bytes after any cut."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gepa_makers import GEPA, answer, pool_of, rewrite, scored, settled, variant
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.methods.components.pool import Pool
from combee.methods.components.standing import members, pending
from combee.methods.gepa.draws import Draws
from combee.methods.gepa.pareto import choose_parents, undominated
from combee.methods.protocol import Rendered
from combee.records import Trajectory

SELECT = ["s1", "s2", "s3", "s4"]
WORDS = ["alpha", "beta", "gamma", "delta"]
SCORES = st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=4, max_size=4), min_size=1, max_size=6)


def working(pool: Pool, count: int) -> list[Rendered]:
    return GEPA.working(pool, budget_tokens=8000, verify="Off", variants=count)


def scored_pool(values: list[list[float]]) -> Pool:
    found = [variant(instructions=f"text {place}") for place in range(len(values))]
    known = {one: dict(zip(SELECT, row, strict=True)) for one, row in zip(found, values, strict=True)}
    return replace(pool_of(*found), scores=scored(known))


def of(shown: Sequence[Rendered], answering: dict[str, float]) -> dict[str, Trajectory]:
    """The trajectories of a batch, dealt over the texts as work deals them."""
    found = {}
    for place, (example, score) in enumerate(answering.items()):
        name = shown[place % len(shown)].variant if len(shown) > 1 else ""
        found[example] = replace(answer(example, score), variant=name)
    return found


@given(SCORES, st.integers(1, 8), st.integers(0, 99))
def test_those_built_on_are_different_and_none_makes_another_superfluous(
    values: list[list[float]], count: int, drawn: int
) -> None:
    pool = replace(scored_pool(values), drawn=drawn)
    draws = Draws(pool.seed, drawn)
    chosen = choose_parents(pool, "Instance", draws, count)
    front = undominated(pool, "Instance")
    assert 1 <= len(chosen) == len(set(chosen)) == min(count, len(front))
    assert set(chosen) <= set(front)
    assert draws.drawn == drawn + len(chosen)
    assert chosen[:1] == choose_parents(pool, "Instance", Draws(pool.seed, drawn))
    assert chosen == [one.variant for one in working(GEPA.from_json(pool.to_json()), count)]


@given(st.integers(1, 5), st.integers(1, 8), st.integers(0, 99))
def test_before_anything_is_scored_any_member_may_be_built_on(size: int, count: int, drawn: int) -> None:
    pool = pool_of(*(variant(instructions=f"text {place}") for place in range(size)))
    draws = Draws(pool.seed, drawn)
    chosen = choose_parents(pool, "Instance", draws, count)
    assert len(chosen) == len(set(chosen)) == min(count, size) and set(chosen) <= set(members(pool))
    assert draws.drawn == drawn + len(chosen)


def two_in_flight() -> tuple[Pool, list[Rendered]]:
    """A pool of two, each of which leads somewhere, both in flight."""
    pool = scored_pool([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    shown = working(pool, 2)
    assert len(shown) == 2
    return pool, shown


def test_each_child_is_asked_and_judged_on_the_minibatch_of_its_own_parent() -> None:
    pool, shown = two_in_flight()
    batch = of(shown, {"1": 0.0, "2": 1.0, "3": 0.0, "4": 1.0})
    for one in shown:
        pool = GEPA.apply(pool, [rewrite(f"{one.text} and more")], [], iteration=3, ids=one.ids)
    asked: Counter[tuple[str, str]] = Counter()

    def answering(text: str, example: str) -> Trajectory:
        asked[text, example] += 1
        return answer(example, 1.0)

    tried = settled(pool, batch, answering, SELECT)
    minibatches = {(f"{shown[0].text} and more", e) for e in ("1", "3")}
    minibatches |= {(f"{shown[1].text} and more", e) for e in ("2", "4")}
    assert {key for key in asked if key[1] not in SELECT} == minibatches
    assert (tried.candidates, tried.decided, tried.passed) == (2, 2, 1)
    won = [fact for fact in tried.artifact.judged if fact.gain == 2.0 and fact.accepted]
    assert [tried.artifact.by_digest[fact.variant].text for fact in won] == [f"{shown[0].text} and more"]
    assert tried.artifact.drawn == pool.drawn


def test_draws_are_as_many_as_there_were_in_flight() -> None:
    pool, shown = two_in_flight()
    after = pool
    for one in shown:
        after = GEPA.apply(after, [], [], iteration=3, ids=one.ids)
    assert after.drawn == pool.drawn + 2


def test_a_parent_that_no_child_beats_has_its_components_tried_though_another_was_beaten() -> None:
    one, other = variant(ask="One.", check="Same."), variant(ask="Other.", check="Same.")
    pool = replace(pool_of(one, other, start=2), scores=scored({one: {"s1": 1.0}, other: {"s2": 1.0}}))
    shown = {text.variant: text for text in working(pool, 2)}
    batch = {
        example: replace(answer(example, 0.0), variant=name.digest)
        for example, name in (("1", one), ("2", other))
    }
    pool = GEPA.apply(pool, [rewrite("One right.", "ask")], [], iteration=0, ids=shown[one.digest].ids)
    both = [rewrite("Other right.", "ask"), rewrite("Spoiled.", "check")]
    pool = GEPA.apply(pool, both, [], iteration=0, ids=shown[other.digest].ids)

    def answering(text: str, example: str) -> Trajectory:
        return answer(example, float("right" in text and "Spoiled" not in text))

    tried = settled(pool, batch, answering, SELECT)
    texts = {pool_text.text for pool_text in tried.artifact.variants}
    assert any("One right." in text for text in texts)
    assert any("Other right." in text and "Same." in text for text in texts)
    assert pending(tried.artifact) == []


def test_one_child_of_two_parents_is_tried_once() -> None:
    pool, shown = two_in_flight()
    for one in shown:
        pool = GEPA.apply(pool, [rewrite("The same new text.")], [], iteration=0, ids=one.ids)
    assert len(pending(pool)) == 1
    assert settled(pool, of(shown, {"1": 0.0, "2": 0.0}), lambda _, e: answer(e, 1.0), SELECT).decided == 1


def learned(count: int, seed: int, *, cut: bool, luck: int) -> bytes:
    """Five iterations of some world, cut or not after each step, trajectories coming in any order."""
    pool = replace(GEPA.initial('{"ask": "Ask.", "check": "Check."}'), seed=seed)
    world, order = random.Random(seed), random.Random(luck)
    for iteration in range(5):
        pool = GEPA.from_json(pool.to_json()) if cut else pool
        shown = working(pool, count)
        batch = of(shown, {f"{iteration}-{n}": float(world.random() < 0.4) for n in range(6)})
        told = [(one, world.choice(WORDS), world.choice(["ask", "check"])) for one in shown]
        for one, word, component in told:
            text = f"{dict(one.components)[component]} {word}"
            pool = GEPA.apply(pool, [rewrite(text, component)], [], iteration=iteration, ids=one.ids)
        pool = GEPA.from_json(pool.to_json()) if cut else pool
        mixed = list(batch.items())
        order.shuffle(mixed)
        wanted = world.sample(WORDS, 2)

        def answering(text: str, example: str, wanted: list[str] = wanted) -> Trajectory:
            return answer(example, float(wanted[len(example) % 2] in text))

        pool = settled(pool, dict(mixed), answering, SELECT).artifact
    return pool.to_json()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(0, 500), st.integers(0, 500))
def test_cut_anywhere_and_in_any_order_it_comes_to_the_same_bytes(count: int, seed: int, luck: int) -> None:
    assert learned(count, seed, cut=False, luck=0) == learned(count, seed, cut=True, luck=luck)
