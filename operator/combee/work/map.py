"""map: many agents roll out and reflect, one shard a pod (or a few coroutines).

Leaves, per shard: ``trajectories`` and ``reflections`` (JSON lines, in the batch's order) and the
call graph ``calls``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from combee.algo.membership import batch, shards
from combee.algo.tokens import estimate_tokens
from combee.methods.protocol import Rendered
from combee.plan.types import IterationPlan, Step, StepSummary
from combee.records import Example, Reflection, Shown, Trajectory
from combee.work.asker import Asker
from combee.work.context import WorkContext, line_of, put_lines, read_receipt, write_receipt
from combee.work.pieces import Claims, pieces
from combee.work.pool import pooled
from combee.work.recorded import learn_from_recording, learn_from_runs
from combee.work.rollouts import LOSSES, judged, rollout, too_many_lost
from combee.work.variants import dealt_to, name_of, signed

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
    return shards([one.tokens or estimate_tokens(one.input) for one in batch_members], plan.shards)


async def help_others(
    context: WorkContext, step: Step, plan: IterationPlan, shard: int, shown: Sequence[Rendered]
) -> int:
    """Work stealing for a pod that is done: answer the calls of unfinished shards from their far
    ends, so that their owners find them in the memo. Returns how many examples were taken.

    A piece is claimed first, so a helper stops where it meets the owner, or when the shard's manifest
    is there; an owner that dies loses nothing, and waits for no helper that died for long. Helpers of
    the same shard take every (shards - 1)-th piece of it, each another.
    """
    batch_members = await members(context, plan)
    parts = dealt(batch_members, plan)
    taken = 0
    for rank in range(plan.shards - 1):
        other = (shard + rank + 1) % plan.shards
        claims = Claims(context, step.name, other, me=shard)
        chunks = list(enumerate(pieces(parts[other], context.concurrency)))
        for piece, chunk in chunks[rank :: plan.shards - 1]:
            if await read_receipt(context, step.name, other) is not None or not await claims.take(piece):
                break
            asker = context.asker()

            async def one(position: int, asker: Asker = asker) -> None:
                text = dealt_to(shown, position).shown
                await _learn_from(context, asker, plan, position, batch_members[position], text)

            try:
                await pooled(chunk, one, width=context.concurrency)
            finally:
                await claims.leave(piece)
            taken += len(chunk)
    return taken


async def run_map(
    context: WorkContext, step: Step, plan: IterationPlan, shard: int, shown: Sequence[Rendered]
) -> StepSummary:
    """Do one shard, or find it done. ``shown``: the texts of the iteration. Raises TransientError when most of its
    examples were lost."""
    done = await read_receipt(context, step.name, shard)
    batch_members = await members(context, plan)
    positions = dealt(batch_members, plan)[shard]
    if done is not None:
        context.progress.advance(len(positions))
        return done
    started = context.clock()
    asker = context.asker()
    claims = Claims(context, step.name, shard, me=shard)
    cut = pieces(positions, context.concurrency)
    piece_of = {position: number for number, piece in enumerate(cut) for position in piece}

    async def one(position: int) -> _Learned:
        if plan.shards > 1:
            await claims.settled(piece_of[position])
        began = context.clock()
        text = dealt_to(shown, position)
        learned = await _learn_from(context, asker, plan, position, batch_members[position], text.shown)
        claims.slowest_seconds = max(claims.slowest_seconds, context.clock() - began)
        context.progress.advance()
        return _written(*signed(name_of(shown, text), *learned))

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
    return await write_receipt(context, summary, shard)


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
        raise too_many_lost(len(failed), len(learned), "examples", failed[0].error, step.name)


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
    context: WorkContext, asker: Asker, plan: IterationPlan, position: int, example: Example, shown: Shown
) -> tuple[Trajectory, Reflection | None]:
    """Roll out, score, reflect. Wrong ones get up to ``reflection_rounds`` rounds: reflect, try
    again with the reflection, stop when right; the votes and lessons of the last round count, and
    the trajectory stays the first one (its score is the honest one). What was recorded is not rolled out."""
    if (load := (await context.data.train()).recordings.get(example.id)) is not None:
        return await learn_from_recording(context, asker, plan, position, example, shown.text, load)
    if context.runner is not None:
        return await learn_from_runs(context, asker, context.runner, plan, position, example, shown)
    playbook = shown.text
    first = await rollout(context, asker, example, shown, stage="map", chain=position, epoch=plan.epoch)
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
    if prompt is None:
        return context.method.parse_reflection("", reflection_id=reflection_id, trajectory=trajectory)
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
