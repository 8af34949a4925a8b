"""The headroom test: train rows answered wrong are answered again, with a lesson made from their own answer
and with one of another row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from combee.algo.convergence import TRIED_WRONG, Headroom
from combee.api.metric import FRACTIONS
from combee.plan.diagnosis import TRIED_ROWS, serial_plan
from combee.records import Example, Reflection, Shown, Trajectory
from combee.work.asker import Asker
from combee.work.context import WorkContext
from combee.work.learn import Learning, with_reflection
from combee.work.map import members
from combee.work.pool import pooled
from combee.work.rollouts import refuse_a_bad_day, rollout

_Tried = tuple[Example, Trajectory, Reflection | None]
"""A train row, the first answer to it, and a lesson to answer it with."""


async def headroom_of(
    context: WorkContext, asker: Asker, artifact: Any, worth: float, token_factor: float = 1.0
) -> Headroom:
    """Answer some train rows with ``artifact``, and those that went wrong twice more: what can lessons do?
    These are taken some at a time, until it is shown that lessons help or that none gains ``worth``."""
    start = context.rendered(artifact).shown
    plan = serial_plan(context.spec, 0, TRIED_ROWS, token_factor, asker.scored_by)
    examples = await members(context, plan)
    context.progress.begin("headroom", len(examples))

    async def learned(item: tuple[int, Example]) -> tuple[Trajectory, Reflection | None]:
        position, example = item
        once = replace(plan, reflection_rounds=1)
        learnt = await Learning(context, asker, once, position, example, start).learn()
        context.progress.advance()
        return learnt

    answered = await pooled(list(examples.items()), learned, width=context.concurrency)
    refuse_a_bad_day([trajectory.error for trajectory, _ in answered], "train rows", "headroom")
    good = [
        (example, trajectory, reflection)
        for example, (trajectory, reflection) in zip(examples.values(), answered, strict=True)
        if not trajectory.error
    ]
    # Of fractions every answer that is not perfect can become better; else those can that are wrong.
    better = context.spec.task.metric in FRACTIONS
    wrong = [one for one in good if (one[1].score < 1.0 if better else not one[1].correct)]
    # What a method notes without asking a model is no lesson to be tried, and neither is a lost one.
    reflected = any(row.role == "proposer" for row in asker.rows)
    triable = [one for one in wrong if one[2] is not None] if reflected else []
    lessons = [lesson for _, _, lesson in triable if lesson is not None and lesson.lessons]
    helped, errors = list[tuple[bool, bool]](), list[str]()
    for first in range(0, len(triable), TRIED_WRONG):
        tried = triable[first : first + TRIED_WRONG]
        helped += await _helped(context, asker, tried, lessons, start, errors, better=better)
        headroom = _headroom(len(good), len(wrong), helped)
        if headroom.shown or headroom.none(worth):
            return headroom
    return _headroom(len(good), len(wrong), helped)


def _headroom(rows: int, wrong: int, helped: Sequence[tuple[bool, bool]]) -> Headroom:
    own, other = (sum(pair[place] for pair in helped) for place in (0, 1))
    return Headroom(rows, wrong, len(helped), own, other, both=sum(map(all, helped)))


async def _helped(
    context: WorkContext,
    asker: Asker,
    tried: Sequence[_Tried],
    lessons: Sequence[Reflection],
    start: Shown,
    errors: list[str],
    *,
    better: bool,
) -> list[tuple[bool, bool]]:
    """Return, of each row whose answers were not lost, whether its own lesson helped and whether another's
    did: made its answer right or, with ``better``, scored more than the first. Adds to ``errors`` one of
    each answer, which are judged together with those before: a few rows tell no bad day."""

    async def right_with(item: tuple[int, _Tried], stage: str) -> bool | None:
        """Return whether a lesson helps, None where the answer was lost."""
        chain, (example, first, lesson) = item
        if lesson is None or not lesson.lessons:
            return False
        shown = Shown(with_reflection(start.text, lesson))
        made = await rollout(context, asker, example, shown, stage=stage, chain=chain, split="train")
        errors.append(made.error)
        if made.error:
            return None
        return made.score > first.score if better else made.correct

    async def own(item: tuple[int, _Tried]) -> bool | None:
        return await right_with(item, "own lesson")

    async def other(item: tuple[int, _Tried]) -> bool | None:
        return await right_with(item, "another's lesson")

    others = [(example, first, _another(lessons, lesson)) for example, first, lesson in tried]
    with_own, with_other = [
        await pooled(list(enumerate(pairs)), answer, width=context.concurrency)
        for pairs, answer in ((tried, own), (others, other))
    ]
    refuse_a_bad_day(errors, "answers with a lesson", "headroom")
    both = zip(with_own, with_other, strict=True)
    return [(a, b) for a, b in both if a is not None and b is not None]


def _another(lessons: Sequence[Reflection], own: Reflection | None) -> Reflection | None:
    """Return the lesson after one's own, in a circle; the first where one has none; None without another."""
    places = [place for place, lesson in enumerate(lessons) if lesson is own]
    place = places[0] + 1 if places else 0
    another = lessons[place % len(lessons)] if lessons else None
    return None if another is own else another
