"""Learning from recordings, made elsewhere or by a container just now: each part of one is reflected on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from combee.errors import BugError
from combee.methods.protocol import Refusal
from combee.plan.types import IterationPlan
from combee.records import Example, Lesson, Prompt, Reflection, Shown, Trajectory
from combee.tasks.dataset import Dataset, Load
from combee.tasks.traces import Recording, decode, trajectories
from combee.tasks.traces.outcomes import RIGHT_FROM
from combee.work.asker import LOSSES, Asker
from combee.work.context import Runner, WorkContext
from combee.work.rollouts import lost, without_work

MAX_RECORD_CHARACTERS = 20_000
AT_ONCE = 100
"""recordings whose passages are compared with new entries at once: 8 bytes a word of them are held."""


async def learn_from_recording(
    context: WorkContext,
    asker: Asker,
    plan: IterationPlan,
    position: int,
    example: Example,
    playbook: str,
    load: Load,
) -> tuple[Trajectory, Reflection | None]:
    """The trajectory, without what the data holds of it anyway, and one reflection for all of its parts.

    A part whose reflection is lost is counted as any lost call is; when all of them are, the trajectory failed.
    """
    recording = await asyncio.to_thread(lambda: decode(load()))
    first, found, error = await _reflections(context, asker, plan, position, example, playbook, recording)
    return replace(without_work(first), error="" if found else error), found


async def learn_from_runs(
    context: WorkContext,
    asker: Asker,
    runner: Runner,
    plan: IterationPlan,
    position: int,
    example: Example,
    shown: Shown,
) -> tuple[Trajectory, Reflection | None]:
    """Roll out and reflect on each part; a wrong one is tried again with the reflection, as often as the plan says.

    The votes and lessons of the last round count, the trajectory stays the first one.
    """
    kept: Trajectory | None = None
    reflection: Reflection | None = None
    playbook = shown.text
    for round_number in range(1, plan.reflection_rounds + 1):
        try:
            ran = await runner.run(
                asker, example, shown, stage="map", chain=position, ordinal=plan.epoch, reflected=True
            )
        except LOSSES as error:
            if kept is None:
                return lost(example, context.task.model_input(example), plan.epoch, error), None
            break
        if kept is not None and ran.score is not None and ran.score >= RIGHT_FROM:
            break
        first, found, _ = await _reflections(
            context, asker, plan, position, example, playbook, ran, round_number, reflection
        )
        kept, reflection = kept or without_work(first), found or reflection
        if first.correct or reflection is None:
            break
        shown = Shown(with_reflection(playbook, reflection))
    if kept is None:
        raise BugError("a plan has at least one round of reflection")
    return kept, reflection


def with_reflection(playbook: str, reflection: Reflection) -> str:
    """The artifact as an agent gets it that tries an example again."""
    lessons = "".join(f"- {lesson.text}\n" for lesson in reflection.lessons)
    return f"{playbook.rstrip()}\n\n## Your last attempt at this\n\n{reflection.text}\n\n{lessons}".lstrip()


async def _reflections(
    context: WorkContext,
    asker: Asker,
    plan: IterationPlan,
    position: int,
    example: Example,
    playbook: str,
    recording: Recording,
    round_number: int = 1,
    previous: Reflection | None = None,
) -> tuple[Trajectory, Reflection | None, str]:
    """The first part as a trajectory, one reflection on all parts that were not lost, and the last loss's code."""
    found: list[Reflection] = []
    error, asked = "", False
    parts = trajectories(example, recording, plan.epoch)
    first = next(parts)
    for part in (first, *parts):
        prompt = context.method.reflect_prompt(playbook, part, round_number, previous)
        asked = prompt is not None
        try:
            found.append(await _reflect(context, asker, position, part, prompt, round_number))
        except LOSSES as loss:
            error = loss.code
    return first, joined(found) if asked else joined_records(found), error


async def _reflect(
    context: WorkContext,
    asker: Asker,
    position: int,
    part: Trajectory,
    prompt: Prompt | None,
    round_number: int,
) -> Reflection:
    if prompt is None:
        return context.method.parse_reflection("", reflection_id=f"r-{position:05d}", trajectory=part)
    return await asker.ask(
        "proposer",
        prompt,
        lambda text: context.method.parse_reflection(
            text, reflection_id=f"r-{position:05d}", trajectory=part
        ),
        stage="map",
        chain=position,
        ordinal=round_number,
    )


def joined(parts: Sequence[Reflection]) -> Reflection | None:
    """One reflection of what the parts of one trajectory taught, each lesson once; None for no part."""
    if not parts:
        return None
    first = parts[0]
    texts = dict.fromkeys(lesson.text for part in parts for lesson in part.lessons)
    return replace(
        first,
        text=" ".join(dict.fromkeys(part.text for part in parts if part.text)),
        lessons=tuple(Lesson(f"{first.id}.{k}", text) for k, text in enumerate(texts, start=1)),
        tags=tuple(dict.fromkeys(tag for part in parts for tag in part.tags)),
    )


def joined_records(parts: Sequence[Reflection]) -> Reflection | None:
    """One reflection of the records that a method made of the parts without a call: those of one id are one, each
    part's cut to its share of what a record may hold."""
    if not parts:
        return None
    told: dict[str, dict[str, None]] = {}
    for part in parts:
        for lesson in part.lessons:
            told.setdefault(lesson.id, {})[lesson.text[: MAX_RECORD_CHARACTERS // len(parts)]] = None
    return replace(parts[0], lessons=tuple(Lesson(id_, " || ".join(texts)) for id_, texts in told.items()))


def checked(
    method: Any, ledger: Any, new: Sequence[str], train: Dataset, example_ids: Iterable[str]
) -> list[Refusal]:
    """``method.checks`` of new entries against the recordings that this iteration read: no lesson can repeat
    another one. ``AT_ONCE`` recordings are held at a time, and what is rare is rare among these."""
    found: dict[tuple[str, str], Refusal] = {}
    rest = iter(sorted(example_ids))
    while ids := list(islice(rest, AT_ONCE)):
        corpus = method.leak_corpus(_text(train.recordings[one]) for one in ids)
        for refusal in method.checks(ledger, new, corpus=corpus):
            found.setdefault((refusal.entry_digest, refusal.kind), refusal)
    return list(found.values())


def _text(load: Callable[[], bytes]) -> str:
    recording = decode(load())
    return "\n".join((recording.title, *recording.parts))
