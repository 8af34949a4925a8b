"""Runs the rollouts that a method asks for before it believes an update, those of a round side by side.

Each rollout is charged like those of the map.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from combee.methods.verification import Page, Round, Verified, Verifying
from combee.plan.types import IterationPlan
from combee.records import Example, Shown, Trajectory
from combee.work.asker import Asker
from combee.work.context import WorkContext, held_out_split
from combee.work.pool import pooled
from combee.work.rollouts import rollout

A = TypeVar("A")
LOOKS_OF_AN_EPOCH = 10
"""More repeats than a method looks anew at one question in an epoch."""
_Rollout = tuple[Example, Page, int, bool, str]
"""An example, a text, which repeat of the same question it is, whether that looks anew, and its split."""
Question = tuple[str, str, Shown, int]
"""An example's id and digest, a text, and which repeat of the same question it is."""


async def run_verification(
    context: WorkContext,
    asker: Asker,
    plan: IterationPlan,
    verifying: Verifying[A],
    known: Mapping[Question, Trajectory],
) -> Verified[A]:
    """Drive a method's verification to its end and return what it found. ``known``: what was answered before
    and is not asked again."""
    try:
        turn = next(verifying)
        while True:
            rollouts = await _rollouts(context, plan, turn)
            turn = verifying.send(await _answers(context, asker, turn, rollouts, known))
    except StopIteration as end:
        verified: Verified[A] = end.value
        return verified


async def _rollouts(context: WorkContext, plan: IterationPlan, turn: Round) -> list[_Rollout]:
    """Return a round's rollouts, in order. On train they are repeats of the epoch's rollouts, on select of
    its evaluations, so that the same question is asked only once."""
    rollouts: list[_Rollout] = []
    train = (await context.data.train()).examples if turn.rollouts else ()
    of_select = turn.sweep or any(one.of == "select" for one in turn.rollouts)
    select = (await held_out_split(context))[0] if of_select else []
    rows = {"train": (plan.epoch, train), "select": (0, select)}
    by_id = {name: {example.id: example for example in examples} for name, (_, examples) in rows.items()}
    for one in turn.rollouts:
        # Looks anew of one epoch share no answer with those of another.
        repeat = rows[one.of][0] * (LOOKS_OF_AN_EPOCH if one.repeat else 1) + one.repeat
        rollouts.append((by_id[one.of][one.example_id], one.page, repeat, one.repeat > 0, one.of))
    if turn.sweep:
        rollouts += [(example, page, 0, False, "select") for page in turn.sweep for example in select]
    return rollouts


async def _answers(
    context: WorkContext,
    asker: Asker,
    turn: Round,
    rollouts: list[_Rollout],
    known: Mapping[Question, Trajectory],
) -> list[Trajectory]:
    """Return an answer to each rollout of a round; equal ones are asked once."""
    keys = [(example.id, example.digest, page.shown, repeat) for example, page, repeat, *_ in rollouts]
    different = {key: one for key, one in zip(keys, rollouts, strict=True) if key not in known}
    context.progress.begin(turn.stage, len(different))

    async def answer(item: tuple[int, _Rollout]) -> Trajectory:
        chain, (example, page, repeat, anew, split) = item
        trajectory = await rollout(
            context,
            asker,
            example,
            page.shown,
            stage=turn.stage,
            chain=chain,
            split=split,
            epoch=repeat,
            least_temperature=turn.least_temperature if anew else 0.0,
        )
        context.progress.advance()
        return trajectory

    answers = await pooled(list(enumerate(different.values())), answer, width=context.concurrency)
    answered = dict(zip(different, answers, strict=True))
    return [answered[key] if key in answered else known[key] for key in keys]
