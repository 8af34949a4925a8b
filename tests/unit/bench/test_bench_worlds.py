"""A row of the bench leaves the simulated model as it found it, for the rows after it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from combee.sim import params, planted


def test_a_planted_world_is_gone_after_it() -> None:
    from bench.worlds.headroom import look, world

    formula = params.TASK_LAWS["formula"]
    tried = asyncio.run(look(2))
    assert tried.kind == "already perfect" and world(2).task != formula
    assert params.TASK_LAWS["formula"] == formula


def test_what_held_before_a_drift_is_the_mistake_after_it_and_rules_stand_as_before_in_the_end() -> None:
    from bench.worlds.drift import NAMES, drifting, life

    name, versions = NAMES[0], Counter[str]()
    first = planted.line
    with drifting(versions):
        before = [planted.line(name, side) for side in ("right", "wrong")]
        versions[name] += 1
        after = [planted.line(name, side) for side in ("right", "wrong")]
        versions[name] += 1
        assert planted.line(name, "wrong") == after[0]
    assert before == [first(name, "right"), first(name, "wrong")]
    assert after[1] == before[0] and after[0] not in before
    one, two = asyncio.run(life(2))
    assert planted.line is first
    assert one.score == one.fresh > 0.5, "the first run of a lifetime starts from nothing"
    assert two.score > 0.5 and two.ledger_bytes > one.ledger_bytes


@pytest.mark.slow
def test_a_lifetime_does_not_hold_on_to_rules_that_were_replaced() -> None:
    """Two rules are replaced before each run. 21 stale ones are read in eight runs where entries are looked
    at by age alone, and new ones replayed beside those that they replace."""
    from bench.worlds.drift import life

    lived = asyncio.run(life(8, lifetime=2))
    assert sum(one.stale for one in lived) <= 8
