"""Which variant is next: fronts by kind, gepa's selection, and a generator that is saved."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from gepa_makers import GEPA, pool_of, scored, variant
from hypothesis import given
from hypothesis import strategies as st

from combee.errors import DataError
from combee.methods.components.pool import Pool
from combee.methods.components.standing import members
from combee.methods.gepa.draws import Draws
from combee.methods.gepa.pareto import Frontier, choose_parents, fronts, undominated

START, ONE, OTHER, POOR = (variant(instructions=text) for text in ("start", "one", "other", "poor"))
SCORES = {
    START: {"a": 0.5, "b": 0.0},
    ONE: {"a": 1.0, "b": 0.0},
    OTHER: {"a": 0.0, "b": 1.0},
    POOR: {"a": 0.0, "b": 0.0},
}


def pool(**changes: object) -> Pool:
    return replace(pool_of(START, ONE, OTHER, POOR), scores=scored(SCORES), **changes)


def leaders(found: dict[str, set[int]]) -> dict[str, list[str]]:
    order = members(pool())
    names = {START.digest: "start", ONE.digest: "one", OTHER.digest: "other", POOR.digest: "poor"}
    return {key: sorted(names[order[place]] for place in places) for key, places in found.items()}


def test_a_front_holds_the_best_of_each_example() -> None:
    assert leaders(fronts(pool(), "Instance")) == {"example\x1fa": ["one"], "example\x1fb": ["other"]}


def test_an_example_that_was_lost_is_nobodys_zero() -> None:
    without = {key: value for key, value in SCORES.items() if key != ONE} | {ONE: {"b": 0.0}}
    found = fronts(replace(pool(), scores=scored(without)), "Instance")
    assert leaders(found) == {"example\x1fa": ["start"], "example\x1fb": ["other"]}


def test_objectives_make_fronts_of_their_own() -> None:
    partial = scored({START: {"a": 0.9, "b": 0.9}, ONE: {"a": 0.1, "b": 1.0}}, objective="partial")
    known = replace(pool(), scores=scored(SCORES) | partial)
    assert leaders(fronts(known, "Objective")) == {
        "objective\x1f": ["one", "other"],
        "objective\x1fpartial": ["start"],
    }
    assert leaders(fronts(known, "Cartesian")) == {
        "\x1fa": ["one"],
        "\x1fb": ["other"],
        "partial\x1fa": ["start"],
        "partial\x1fb": ["one"],
    }
    both = leaders(fronts(known, "Hybrid"))
    assert both == leaders(fronts(known, "Objective")) | leaders(fronts(known, "Instance"))


@pytest.mark.parametrize("kind", ["Objective", "Hybrid", "Cartesian"])
def test_a_frontier_by_objectives_needs_some(kind: Frontier) -> None:
    with pytest.raises(DataError, match="Remove frontier"):
        fronts(pool(), kind)


def test_dominated_variants_are_never_chosen() -> None:
    assert undominated(pool(), "Instance") == [d for d in members(pool()) if d in (ONE.digest, OTHER.digest)]
    chosen = Counter(one for seed in range(60) for one in choose_parents(pool(), "Instance", Draws(seed)))
    assert set(chosen) == {ONE.digest, OTHER.digest}
    assert min(chosen.values()) >= 15


@given(st.integers(0, 1000), st.integers(0, 50), st.booleans())
def test_choosing_takes_one_draw_whatever_there_is_to_choose_from(seed: int, drawn: int, bare: bool) -> None:
    draws = Draws(seed, drawn)
    known = pool_of(START) if bare else pool()
    (chosen,) = choose_parents(known, "Instance", draws)
    assert chosen in members(known)
    assert draws.drawn == drawn + 1
    assert choose_parents(known, "Instance", Draws(seed, drawn)) == choose_parents(
        known, "Instance", Draws(seed, drawn)
    )


def test_what_is_worked_with_follows_from_the_artifact_alone() -> None:
    seen = [
        GEPA.working(replace(pool(), drawn=drawn), budget_tokens=100, verify="Off")[0].text
        for drawn in range(12)
    ]
    again = [
        GEPA.working(GEPA.from_json(replace(pool(), drawn=drawn).to_json()), budget_tokens=100, verify="Off")[
            0
        ].text
        for drawn in range(12)
    ]
    assert seen == again and set(seen) == {"one", "other"}


def test_another_process_with_another_hash_seed_chooses_the_same() -> None:
    program = (
        "import sys; sys.path[:0] = sys.argv[1:];"
        "from test_gepa_pareto import pool, GEPA; from dataclasses import replace;"
        "print([GEPA.working(replace(pool(), drawn=n), budget_tokens=9, verify='Off')[0].text for n in "
        "range(9)])"
    )
    here, operator = Path(__file__).parent, Path(__file__).parents[3] / "operator"
    said = {
        subprocess.run(
            [sys.executable, "-c", program, str(here), str(operator)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


@given(st.lists(st.integers(), min_size=1, max_size=9), st.integers(0, 99))
def test_draws_go_on_from_their_state(items: list[int], seed: int) -> None:
    whole, parts = Draws(seed), [Draws(seed, state) for state in range(4)]
    assert [whole.choice(items) for _ in range(4)] == [one.choice(items) for one in parts]
    assert 0 <= Draws(seed).unit() < 1
    assert Draws(seed).weighted(items, [0.0] * (len(items) - 1) + [1.0]) == items[-1]
    assert Draws(seed).weighted(items, [0.0] * len(items)) in items
