"""map: many agents roll out and reflect, one shard a pod (or a few coroutines).

Leaves, per shard: ``trajectories`` and ``reflections`` (JSON lines, in the batch's order) and the
call graph ``calls``.
"""

from __future__ import annotations

from dataclasses import dataclass

from combee.algo.membership import batch, shards
from combee.algo.tokens import estimate_tokens
from combee.errors import TransientError
from combee.plan.types import IterationPlan, Step, StepSummary
from combee.records import Example, Reflection, Trajectory
from combee.work.asker import Asker
from combee.work.context import WorkContext, line_of, put_lines, read_manifest, write_manifest
from combee.work.pool import pooled
from combee.work.rollouts import LOSSES, judged, rollout

MAX_LOST_SHARE = 0.5
"""A shard that loses more than this to errors is a bad day, not a lesson: the step fails."""


async def members(context: WorkContext, plan: IterationPlan) -> list[Example]:
    """The batch of an iteration, in order: a pure function of the plan and the data."""
    train = await context.data.train()
    by_id = {example.id: example for example in train.examples}
    ids = batch(
        list(by_id),
        seed=plan.seed,
        epoch=plan.epoch,
        offset=plan.offset,
        size=plan.batch_size,
        in_order=plan.in_order,
    )
    return [by_id[example_id] for example_id in ids]


def dealt(batch_members: list[Example], plan: IterationPlan) -> list[list[int]]:
    """Positions of the batch by shard, balanced by tokens: a pure function of plan and data."""
    return shards([estimate_tokens(example.input) for example in batch_members], plan.shards)


async def help_others(
    context: WorkContext, step: Step, plan: IterationPlan, shard: int, playbook: str
) -> int:
    """Work stealing for a pod that is done: answer the calls of unfinished shards from their far
    ends, so that their owners find them in the memo. Returns how many examples were taken.

    Nothing is claimed and nothing can be left behind: the memo makes the same call by two pods
    harmless, an owner that dies loses nothing, and a helper stops where it meets the owner (the
    first example whose rollout is answered already) or when the shard's manifest is there. Helpers
    of the same shard take every (shards - 1)-th piece of it, each another, so that they never ask the
    same calls.
    """
    batch_members = await members(context, plan)
    parts = dealt(batch_members, plan)
    taken = 0
    for rank in range(plan.shards - 1):
        other = (shard + rank + 1) % plan.shards
        for chunk in _pieces(parts[other], context.concurrency)[rank :: plan.shards - 1]:
            if await read_manifest(context, step.name, other) is not None:
                break
            asker = context.asker()

            async def one(position: int, asker: Asker = asker) -> None:
                await _learn_from(context, asker, plan, position, batch_members[position], playbook)

            await pooled(chunk, one, width=context.concurrency)
            taken += len(chunk)
            if any(row.hit for row in asker.rows):
                break
    return taken


def _pieces(positions: list[int], size: int) -> list[list[int]]:
    """Positions from their far end, in pieces.

    >>> _pieces([1, 2, 3, 4, 5], 2)
    [[5, 4], [3, 2], [1]]
    """
    backwards = positions[::-1]
    return [backwards[start : start + size] for start in range(0, len(backwards), size)]


async def run_map(
    context: WorkContext, step: Step, plan: IterationPlan, shard: int, playbook: str
) -> StepSummary:
    """Do one shard, or find it done. Raises TransientError when most of its examples were lost."""
    done = await read_manifest(context, step.name, shard)
    batch_members = await members(context, plan)
    positions = dealt(batch_members, plan)[shard]
    if done is not None:
        context.progress.advance(len(positions))
        return done
    started = context.clock()
    asker = context.asker()

    async def one(position: int) -> _Learned:
        learned = await _learn_from(context, asker, plan, position, batch_members[position], playbook)
        context.progress.advance()
        return _written(*learned)

    results = await pooled(positions, one, width=context.concurrency)
    _refuse_a_bad_day(step, results)
    summary = StepSummary(
        step=step.name,
        kind=step.kind,
        outputs={
            "trajectories": await put_lines(context, (one.trajectory for one in results)),
            "reflections": await put_lines(context, (one.reflection for one in results)),
            "calls": await context.store.aput_blob(asker.encode()),
        },
        counts=_counts(plan, results, asker),
        usage=asker.usage(),
        seconds={"wall": round(context.clock() - started, 6)},
    )
    return await write_manifest(context, summary, shard)


@dataclass(frozen=True, slots=True)
class _Learned:
    """What stays of one example until the shard is written: its lines, and what is counted."""

    trajectory: bytes
    reflection: bytes
    """empty when there is none."""
    correct: bool
    error: str
    lessons: int


def _written(trajectory: Trajectory, reflection: Reflection | None) -> _Learned:
    return _Learned(
        line_of(trajectory),
        b"" if reflection is None else line_of(reflection),
        trajectory.correct,
        trajectory.error,
        0 if reflection is None else len(reflection.lessons),
    )


def _refuse_a_bad_day(step: Step, learned: list[_Learned]) -> None:
    failed = [one for one in learned if one.error]
    if len(failed) > MAX_LOST_SHARE * len(learned):
        raise TransientError(
            f"{len(failed)} of {len(learned)} examples got no answer ({failed[0].error})",
            where=step.name,
            fix="See whether the endpoint is healthy, then run the same command again: what was answered is kept",
        )


def _counts(plan: IterationPlan, learned: list[_Learned], asker: Asker) -> dict[str, int]:
    return {
        "iteration": plan.iteration,
        "examples": len(learned),
        "correct": sum(one.correct for one in learned),
        "failed": sum(bool(one.error) for one in learned),
        "reflections": sum(bool(one.reflection) for one in learned),
        "lessons": sum(one.lessons for one in learned),
        **asker.counts(),
    }


async def _learn_from(
    context: WorkContext, asker: Asker, plan: IterationPlan, position: int, example: Example, playbook: str
) -> tuple[Trajectory, Reflection | None]:
    """Roll out, score, reflect. Wrong ones get up to ``reflection_rounds`` rounds: reflect, try
    again with the reflection, stop when right; the votes and lessons of the last round count, and
    the trajectory stays the first one (its score is the honest one)."""
    first = await rollout(context, asker, example, playbook, stage="map", chain=position, epoch=plan.epoch)
    if first.error:
        return first, None
    reflection = await _reflect(context, asker, position, first, 1, None, playbook)
    current = first
    for round_number in range(2, 2 if first.correct else plan.reflection_rounds + 1):
        if reflection is None:
            break
        retried = await _retry(context, asker, plan, position, example, reflection, playbook)
        if retried is None or retried.correct:
            break
        current = retried
        reflection = (
            await _reflect(context, asker, position, current, round_number, reflection, playbook)
            or reflection
        )
    return first, reflection


async def _reflect(
    context: WorkContext,
    asker: Asker,
    position: int,
    trajectory: Trajectory,
    round_number: int,
    previous: Reflection | None,
    playbook: str,
) -> Reflection | None:
    """The lessons of one trajectory; None when the reflector's answer is lost or unusable."""
    prompt = context.method.reflect_prompt(playbook, trajectory, round_number, previous)
    reflection_id = f"r-{position:05d}"
    try:
        return await asker.ask(
            "proposer",
            prompt,
            lambda text: context.method.parse_reflection(
                text, reflection_id=reflection_id, trajectory=trajectory
            ),
            stage="map",
            chain=position,
            ordinal=round_number,
        )
    except LOSSES:
        return None


async def _retry(
    context: WorkContext,
    asker: Asker,
    plan: IterationPlan,
    position: int,
    example: Example,
    reflection: Reflection,
    playbook: str,
) -> Trajectory | None:
    model_input = context.task.model_input(example)
    prompt = context.method.retry_prompt(context.task.instructions, playbook, model_input, reflection)
    try:
        reply = await asker.ask(
            "task", prompt, context.method.parse_rollout, stage="map", chain=position, ordinal=plan.epoch
        )
    except LOSSES:
        return None
    return judged(context, example, model_input, plan.epoch, reply)
