"""What one example of a batch teaches: its rollout, or its recording part by part, is reflected on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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
from combee.work.rollouts import judged, lost, rollout, without_work

MAX_RECORD_CHARACTERS = 20_000
AT_ONCE = 100
"""recordings whose passages are compared with new entries at once: 8 bytes a word of them are held."""


@dataclass(frozen=True, slots=True)
class Learning:
    """One example of a batch: rolled out or recorded, scored, and reflected on."""

    context: WorkContext
    asker: Asker
    plan: IterationPlan
    position: int
    example: Example
    shown: Shown
    """the text that its agent sees."""

    async def learned(self) -> tuple[Trajectory, Reflection | None]:
        """The trajectory of the first attempt, which has the honest score, and what was learned last."""
        if (load := (await self.context.data.train()).recordings.get(self.example.id)) is not None:
            return await self._from_recording(load)
        if self.context.runner is not None:
            return await self._from_runs(self.context.runner)
        return await self._from_rollouts()

    async def _from_rollouts(self) -> tuple[Trajectory, Reflection | None]:
        """Wrong ones get up to ``reflection_rounds`` rounds: reflect, try again with the reflection, stop when right.

        The votes and lessons of the last round count.
        """
        chain, epoch = self.position, self.plan.epoch
        first = await rollout(
            self.context, self.asker, self.example, self.shown, stage="map", chain=chain, epoch=epoch
        )
        if first.error:
            return first, None
        reflection = await self._reflection_or_none(first, 1, None)
        for round_number in range(2, 2 if first.correct else self.plan.reflection_rounds + 1):
            if reflection is None:
                break
            retried = await self._retried(reflection)
            if retried is None or retried.correct:
                break
            reflection = await self._reflection_or_none(retried, round_number, reflection) or reflection
        return first, reflection

    async def _from_recording(self, load: Load) -> tuple[Trajectory, Reflection | None]:
        """The trajectory, without what the data holds of it anyway, and one reflection for all of its parts.

        A part whose reflection is lost is counted as any lost call is; when all of them are, the trajectory failed.
        """
        recording = await asyncio.to_thread(lambda: decode(load()))
        first, reflection, error = await self._of_parts(recording, 1, None)
        return replace(without_work(first), error="" if reflection else error), reflection

    async def _from_runs(self, runner: Runner) -> tuple[Trajectory, Reflection | None]:
        """Roll out and reflect on each part; a wrong one is tried again with the reflection, as often as the plan says.

        The votes and lessons of the last round count.
        """
        first: Trajectory | None = None
        reflection: Reflection | None = None
        shown, chain, epoch = self.shown, self.position, self.plan.epoch
        for round_number in range(1, self.plan.reflection_rounds + 1):
            try:
                ran = await runner.run(
                    self.asker, self.example, shown, stage="map", chain=chain, ordinal=epoch, reflected=True
                )
            except LOSSES as error:
                if first is None:
                    model_input = self.context.task.model_input(self.example)
                    return lost(self.example, model_input, epoch, error), None
                break
            if first is not None and ran.score is not None and ran.score >= RIGHT_FROM:
                break
            part, newer, _ = await self._of_parts(ran, round_number, reflection)
            first, reflection = first or without_work(part), newer or reflection
            if part.correct or reflection is None:
                break
            shown = Shown(with_reflection(self.shown.text, reflection))
        if first is None:
            raise BugError("a plan has at least one round of reflection")
        return first, reflection

    async def _of_parts(
        self, recording: Recording, round_number: int, previous: Reflection | None
    ) -> tuple[Trajectory, Reflection | None, str]:
        """The first part as a trajectory, one reflection on all parts that were not lost, and the last loss's code."""
        reflections: list[Reflection] = []
        error, is_asked = "", False
        parts = trajectories(self.example, recording, self.plan.epoch)
        first = next(parts)
        for part in (first, *parts):
            prompt = self._prompt(part, round_number, previous)
            is_asked = prompt is not None
            try:
                reflections.append(await self._reflection(part, prompt, round_number))
            except LOSSES as loss:
                error = loss.code
        return first, joined(reflections) if is_asked else joined_records(reflections), error

    def _prompt(self, part: Trajectory, round_number: int, previous: Reflection | None) -> Prompt | None:
        return self.context.method.reflect_prompt(self.shown.text, part, round_number, previous)

    async def _reflection(self, part: Trajectory, prompt: Prompt | None, round_number: int) -> Reflection:
        def parse(text: str) -> Reflection:
            name = f"r-{self.position:05d}"
            return self.context.method.parse_reflection(text, reflection_id=name, trajectory=part)

        if prompt is None:
            return parse("")
        return await self.asker.ask(
            "proposer", prompt, parse, stage="map", chain=self.position, ordinal=round_number
        )

    async def _reflection_or_none(
        self, trajectory: Trajectory, round_number: int, previous: Reflection | None
    ) -> Reflection | None:
        """The lessons of one trajectory; None when the reflector's answer is lost or unusable."""
        prompt = self._prompt(trajectory, round_number, previous)
        try:
            return await self._reflection(trajectory, prompt, round_number)
        except LOSSES:
            return None

    async def _retried(self, reflection: Reflection) -> Trajectory | None:
        method, task, epoch = self.context.method, self.context.task, self.plan.epoch
        model_input = task.model_input(self.example)
        prompt = method.retry_prompt(task.instructions, self.shown.text, model_input, reflection)
        try:
            reply = await self.asker.ask(
                "task", prompt, method.parse_rollout, stage="map", chain=self.position, ordinal=epoch
            )
        except LOSSES:
            return None
        return judged(self.context, self.example, model_input, epoch, reply)


def with_reflection(playbook: str, reflection: Reflection) -> str:
    """The artifact as an agent gets it that tries an example again."""
    lessons = "".join(f"- {lesson.text}\n" for lesson in reflection.lessons)
    return f"{playbook.rstrip()}\n\n## Your last attempt at this\n\n{reflection.text}\n\n{lessons}".lstrip()


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
