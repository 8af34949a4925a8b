"""The rollouts that a method asks for before it believes an update: a round side by side, rounds in their order.

Each rollout is charged like those of the map.
"""

from __future__ import annotations

from typing import TypeVar

from combee.methods.verification import Page, Round, Verified, Verifying
from combee.plan.types import IterationPlan
from combee.records import Example, Trajectory
from combee.work.asker import Asker
from combee.work.context import WorkContext, held_out_split
from combee.work.pool import pooled
from combee.work.rollouts import rollout

A = TypeVar("A")
_Rollout = tuple[Example, Page, int]
"""example, text, which repeat of the same question."""


async def run_verification(
    context: WorkContext, asker: Asker, plan: IterationPlan, trying: Verifying[A]
) -> Verified[A]:
    """Drive a method's verification to its end."""
    try:
        asked = next(trying)
        while True:
            asked = trying.send(await _answers(context, asker, asked, await _rollouts(context, plan, asked)))
    except StopIteration as done:
        tried: Verified[A] = done.value
        return tried


async def _rollouts(context: WorkContext, plan: IterationPlan, asked: Round) -> list[_Rollout]:
    """Those of a round, in their order. On train they are repeats of the epoch's rollouts, on select of its
    evaluations: the same question is asked once."""
    found: list[_Rollout] = []
    if asked.rollouts:
        train = {example.id: example for example in (await context.data.train()).examples}
        repeat = plan.epoch + asked.repeat
        found += [(train[rollout.example_id], rollout.page, repeat) for rollout in asked.rollouts]
    if asked.sweep:
        select, _ = await held_out_split(context)
        found += [(example, page, asked.repeat) for page in asked.sweep for example in select]
    return found


async def _answers(
    context: WorkContext, asker: Asker, asked: Round, rollouts: list[_Rollout]
) -> list[Trajectory]:
    context.progress.begin(asked.stage, len(rollouts))

    async def one(item: tuple[int, _Rollout]) -> Trajectory:
        chain, (example, page, repeat) = item
        done = await rollout(
            context, asker, example, page.shown, stage=asked.stage, chain=chain, epoch=repeat
        )
        context.progress.advance()
        return done

    return await pooled(list(enumerate(rollouts)), one, width=context.concurrency)
