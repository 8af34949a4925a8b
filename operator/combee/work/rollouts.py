"""Rollouts: one example, one playbook, one answer, one score. Used by map, replay and evaluation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from combee.errors import CombeeError
from combee.methods.protocol import RolloutReply
from combee.records import Example, Trajectory, trajectory_id
from combee.work.asker import LOSSES, Asker
from combee.work.context import WorkContext
from combee.work.pool import pooled

__all__ = ["LOSSES", "Scores", "evaluate", "judged", "lost", "mean", "mean_partial", "rollout"]


async def rollout(
    context: WorkContext,
    asker: Asker,
    example: Example,
    playbook: str,
    *,
    stage: str,
    chain: int,
    epoch: int = 0,
) -> Trajectory:
    """One trajectory. Never raises for what only concerns this example (``LOSSES``)."""
    model_input = context.task.model_input(example)
    prompt = context.method.rollout_prompt(context.task.instructions, playbook, model_input)
    try:
        reply = await asker.ask(
            "task", prompt, context.method.parse_rollout, stage=stage, chain=chain, ordinal=epoch
        )
    except LOSSES as error:
        return lost(example, model_input, epoch, error)
    return judged(context, example, model_input, epoch, reply)


def judged(
    context: WorkContext, example: Example, model_input: str, epoch: int, reply: RolloutReply
) -> Trajectory:
    """A reply with its score."""
    answer = context.task.parse_answer(reply.answer)
    score = context.task.score(answer, example)
    return Trajectory(
        id=trajectory_id(example.id, epoch),
        example_id=example.id,
        input=model_input,
        output=reply.reasoning,
        answer=answer,
        score=score.value,
        correct=score.correct,
        feedback=score.feedback,
        cited=reply.cited,
        partial=score.partial,
    )


def lost(example: Example, model_input: str, epoch: int, error: CombeeError) -> Trajectory:
    """A trajectory of a call that failed: wrong, with the class of the error."""
    return Trajectory(
        id=trajectory_id(example.id, epoch),
        example_id=example.id,
        input=model_input,
        output="",
        answer="",
        score=0.0,
        correct=False,
        feedback="no answer",
        error=error.code,
    )


@dataclass(frozen=True, slots=True)
class Scores:
    """What a playbook scored on some examples."""

    by_id: dict[str, float]
    """scores in [0, 1] by example id. A failed example is 0, never left out."""
    partial: float | None
    """mean partial credit; None where the task has none."""


async def evaluate(
    context: WorkContext, asker: Asker, examples: list[Example], playbook: str, *, stage: str
) -> Scores:
    """Score a playbook on the examples."""
    context.progress.begin(stage, len(examples))

    async def one(item: tuple[int, Example]) -> tuple[str, float, float | None]:
        chain, example = item
        trajectory = await rollout(context, asker, example, playbook, stage=stage, chain=chain)
        context.progress.advance()
        return example.id, trajectory.score, trajectory.partial

    found = await pooled(list(enumerate(examples)), one, width=context.concurrency)
    return Scores({id_: value for id_, value, _ in found}, mean_partial(partial for _, _, partial in found))


def mean_partial(partials: Iterable[float | None]) -> float | None:
    """Mean partial credit: 0 for each that failed; None where the task gives none at all.

    >>> mean_partial([0.5, None, 1.0]), mean_partial([None, None])
    (0.5, None)
    """
    every = list(partials)
    given = [partial for partial in every if partial is not None]
    return sum(given) / len(every) if given else None


def mean(scores: dict[str, float]) -> float:
    """The mean score; 0 for none."""
    return sum(scores.values()) / len(scores) if scores else 0.0
