"""Learning from one example: scores what was answered, done or recorded, and reflects on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from combee.errors import BugError
from combee.plan.types import IterationPlan
from combee.records import Example, Lesson, Prompt, Reflection, Shown, Trajectory
from combee.tasks.dataset import Load
from combee.tasks.traces import Recording, decode, trajectories
from combee.tasks.traces.outcomes import RIGHT_FROM
from combee.work.asker import LOSSES, Asker
from combee.work.context import Runner, WorkContext
from combee.work.rollouts import lost, rollout, scored, without_work

MAX_RECORD_CHARACTERS = 20_000

Learned = tuple[Trajectory, Reflection | None]


@dataclass(frozen=True, slots=True)
class Learning:
    """One example of a batch, its ``position`` there, and the text that its agent is shown."""

    context: WorkContext
    asker: Asker
    plan: IterationPlan
    position: int
    example: Example
    shown: Shown

    @property
    def seen(self) -> Shown:
        """The part of ``shown`` that is chosen for the example."""
        return self.context.shown_for(self.shown, self.example)

    async def learn(self) -> Learned:
        """Roll out, score and reflect. An example with a recording is not rolled out.

        A wrong answer gets up to ``reflection_rounds`` rounds: reflect, try again with the reflection, stop
        when it is right. The votes and lessons of the last round count; the trajectory stays the first one,
        whose score is the honest one.
        """
        if (load := (await self.context.data.train()).recordings.get(self.example.id)) is not None:
            return await self._from_recording(load)
        if self.context.runner is not None:
            return await self._from_runs(self.context.runner)
        return await self._from_answers()

    async def _from_answers(self) -> Learned:
        first = await rollout(
            self.context,
            self.asker,
            self.example,
            self.shown,
            stage="map",
            chain=self.position,
            split="train",
            epoch=self.plan.epoch,
        )
        if first.error:
            return first, None
        reflection = await self._reflection(first)
        for round_number in range(2, 2 if first.correct else self.plan.reflection_rounds + 1):
            if reflection is None:
                break
            retried = await self._retry(reflection)
            if retried is None or retried.correct:
                break
            reflection = await self._reflection(retried, round_number, reflection) or reflection
        return first, reflection

    async def _from_recording(self, load: Load) -> Learned:
        """Return the trajectory, without what the data holds anyway, and one reflection on all of its parts.

        A lost reflection counts as any lost call does; when those of all parts are, the trajectory failed.
        """
        recording = await asyncio.to_thread(lambda: decode(load()))
        first, reflection, error = await self._reflections(recording)
        return replace(without_work(first), error="" if reflection else error), reflection

    async def _from_runs(self, runner: Runner) -> Learned:
        """Learn in rounds as ``learn`` does, with a rollout and its parts in place of a single answer."""
        trajectory: Trajectory | None = None
        reflection: Reflection | None = None
        shown, epoch = self.seen, self.plan.epoch
        for round_number in range(1, self.plan.reflection_rounds + 1):
            try:
                recording = await runner.run(
                    self.asker,
                    self.example,
                    shown,
                    stage="map",
                    chain=self.position,
                    ordinal=epoch,
                    reflected=True,
                )
            except LOSSES as error:
                if trajectory is None:
                    model_input = self.context.task.model_input(self.example)
                    trajectory = lost(self.example, model_input, epoch, error)
                    self._note(trajectory)
                    return trajectory, None
                break
            if trajectory is not None and recording.score is not None and recording.score >= RIGHT_FROM:
                self._note(next(trajectories(self.example, recording, epoch)))
                break
            first, latest, _ = await self._reflections(recording, round_number, reflection)
            self._note(first)
            trajectory, reflection = trajectory or without_work(first), latest or reflection
            if first.correct or reflection is None:
                break
            shown = Shown(with_reflection(self.seen.text, reflection))
        if trajectory is None:
            raise BugError("a plan has at least one round of reflection")
        return trajectory, reflection

    async def _reflections(
        self, recording: Recording, round_number: int = 1, previous: Reflection | None = None
    ) -> tuple[Trajectory, Reflection | None, str]:
        """Return the first part as a trajectory, one reflection on all parts, and the last loss's code."""
        reflections: list[Reflection] = []
        error, by_model = "", False
        parts = trajectories(self.example, recording, self.plan.epoch)
        first = next(parts)
        for part in (first, *parts):
            prompt = self._prompt(part, round_number, previous)
            by_model = prompt is not None
            try:
                reflections.append(await self._reflect(prompt, part, round_number))
            except LOSSES as loss:
                error = loss.code
        return first, joined(reflections) if by_model else joined_records(reflections), error

    async def _reflection(
        self, trajectory: Trajectory, round_number: int = 1, previous: Reflection | None = None
    ) -> Reflection | None:
        """Return the reflection on one trajectory; None when the proposer's answer is lost or unusable."""
        prompt = self._prompt(trajectory, round_number, previous)
        try:
            return await self._reflect(prompt, trajectory, round_number)
        except LOSSES:
            return None

    def _prompt(
        self, trajectory: Trajectory, round_number: int, previous: Reflection | None
    ) -> Prompt | None:
        return self.context.method.reflect_prompt(self.seen.text, trajectory, round_number, previous)

    async def _reflect(self, prompt: Prompt | None, trajectory: Trajectory, round_number: int) -> Reflection:
        def parse(text: str) -> Reflection:
            return self.context.method.parse_reflection(
                text, reflection_id=f"r-{self.position:05d}", trajectory=trajectory
            )

        if prompt is None:
            return parse("")
        return await self.asker.ask(
            "proposer", prompt, parse, stage="map", chain=self.position, ordinal=round_number
        )

    async def _retry(self, reflection: Reflection) -> Trajectory | None:
        task, method = self.context.task, self.context.method
        epoch, model_input = self.plan.epoch, task.model_input(self.example)
        prompt = method.retry_prompt(task.instructions, self.seen.text, model_input, reflection)
        try:
            reply = await self.asker.ask(
                "task", prompt, method.parse_rollout, stage="map", chain=self.position, ordinal=epoch
            )
            retried = await scored(
                self.context, self.asker, self.example, epoch, reply, stage="map", chain=self.position
            )
        except LOSSES:
            return None
        self._note(retried)
        return retried

    def _note(self, trajectory: Trajectory) -> None:
        """Note a rollout of the map that ``rollout`` did not make."""
        self.asker.notes.rolled_out(trajectory, self.shown, split="train", stage="map", chain=self.position)


def with_reflection(playbook: str, reflection: Reflection) -> str:
    """Return the artifact as it is shown to an agent that tries an example again."""
    lessons = "".join(f"- {lesson.text}\n" for lesson in reflection.lessons)
    return f"{playbook.rstrip()}\n\n## Your last attempt at this\n\n{reflection.text}\n\n{lessons}".lstrip()


def joined(parts: Sequence[Reflection]) -> Reflection | None:
    """Join the reflections on the parts of one trajectory, each lesson once; None where there is none."""
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
    """Join the records that a method made of the parts without a call into one reflection. Records of one id
    become one, with each part's cut to its share of what a record may hold."""
    if not parts:
        return None
    texts_of: dict[str, dict[str, None]] = {}
    for part in parts:
        for lesson in part.lessons:
            texts_of.setdefault(lesson.id, {})[lesson.text[: MAX_RECORD_CHARACTERS // len(parts)]] = None
    return replace(
        parts[0], lessons=tuple(Lesson(id_, " || ".join(texts)) for id_, texts in texts_of.items())
    )
