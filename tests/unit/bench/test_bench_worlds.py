"""A row of the bench leaves the simulated model as it found it, for the rows after it."""

from __future__ import annotations

import asyncio

from combee.sim import params


def test_a_planted_world_is_gone_after_it() -> None:
    from bench.worlds.headroom import look, world

    formula = params.TASK_LAWS["formula"]
    tried = asyncio.run(look(2))
    assert tried.kind == "already perfect" and world(2).task != formula
    assert params.TASK_LAWS["formula"] == formula
