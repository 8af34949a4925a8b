"""map: many agents roll out and reflect, in one pod (or a few coroutines) for each shard.

A shard leaves ``trajectories`` and ``reflections`` (JSON lines, in the batch's order), the call graph
``calls``, and the ``leaves`` where they are of one reflection each (``work.leaves``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from combee.algo.lengths import longest_first
from combee.algo.membership import batch, shards
from combee.methods.protocol import Rendered
from combee.plan.types import IterationPlan, Step, StepSummary
from combee.records import Example
from combee.work.asker import Asker
from combee.work.context import WorkContext, done_before, line_of, put_lines, read_receipt, write_receipt
from combee.work.learn import Learning
from combee.work.leaves import leaves_of
from combee.work.pieces import Claims, pieces
from combee.work.pool import pooled
from combee.work.private import trajectory_line
from combee.work.rollouts import expected_tokens, refuse_a_bad_day
from combee.work.variants import dealt_to, name_of, signed


async def members(context: WorkContext, plan: IterationPlan) -> dict[int, Example]:
    """Return the batch of an iteration by position, in order: a pure function of the plan and the data. At
    the position of a forgotten row there is none."""
    train = await context.data.train()
    by_id = {example.id: example for example in train.examples}
    ids = batch(
        [*by_id, *train.forgotten],
        seed=plan.seed,
        epoch=plan.epoch,
        offset=plan.offset,
        size=plan.batch_size,
        in_order=plan.in_order,
    )
    return {position: by_id[one] for position, one in enumerate(ids) if one in by_id}


def dealt(batch_members: Mapping[int, Example], plan: IterationPlan) -> list[list[int]]:
    """Return the batch's positions by shard, balanced by tokens, in each the longest first: a pure function
    of the plan and the data."""
    positions, tokens = list(batch_members), list(map(expected_tokens, batch_members.values()))
    parts = shards(tokens, plan.shards)
    longest = ([part[place] for place in longest_first([tokens[one] for one in part])] for part in parts)
    return [[positions[one] for one in part] for part in longest]


async def help_others(
    context: WorkContext, step: Step, plan: IterationPlan, shard: int, shown: Sequence[Rendered]
) -> int:
    """Steal work for a pod that is done: answer the calls of unfinished shards from their far ends,
    so that their owners find them in the memo. Returns the number of examples answered.

    A piece is claimed first, so a helper stops where it meets the owner, or when the shard's receipt
    is there. An owner that dies loses nothing, and does not wait long for a helper that died. Each
    helper of a shard takes every (shards - 1)-th piece of it, beginning with another one.
    """
    batch_members = await members(context, plan)
    parts = dealt(batch_members, plan)
    answered = 0
    for rank in range(plan.shards - 1):
        owner = (shard + rank + 1) % plan.shards
        claims = Claims(context, step.name, owner, me=shard)
        chunks = list(enumerate(pieces(parts[owner], context.concurrency)))
        for piece, chunk in chunks[rank :: plan.shards - 1]:
            if await read_receipt(context, step.name, owner) is not None or not await claims.take(piece):
                break
            asker = context.asker(plan)

            async def learn(position: int, asker: Asker = asker) -> None:
                await _learn(context, asker, plan, shown, position, batch_members[position])

            try:
                await pooled(chunk, learn, width=context.concurrency)
            finally:
                await claims.leave(piece)
            answered += len(chunk)
    return answered


async def _learn(
    context: WorkContext,
    asker: Asker,
    plan: IterationPlan,
    shown: Sequence[Rendered],
    position: int,
    example: Example,
) -> _Learned:
    """Learn from the example at a position of the batch."""
    text = dealt_to(shown, position)
    learning = Learning(context, asker, plan, position, example, text.shown)
    trajectory, reflection = signed(name_of(shown, text), *await learning.learn())
    leaves = await leaves_of(context, asker, plan, shown, position, reflection)
    return _Learned(
        trajectory_line(trajectory),
        b"" if reflection is None else line_of(reflection),
        trajectory.correct,
        trajectory.error,
        0 if reflection is None else len(reflection.lessons),
        b"".join(map(line_of, leaves)),
        sum(leaf.lost for leaf in leaves),
    )


async def run_map(
    context: WorkContext,
    step: Step,
    plan: IterationPlan,
    shard: int,
    shown: Sequence[Rendered],
    *,
    all_may_be_lost: bool = False,
) -> StepSummary:
    """Do one shard unless it is done. ``shown``: the iteration's texts. TransientError if most are lost,
    unless ``all_may_be_lost``: then the receipt says what they used."""
    receipt = await done_before(context, step.name, shard)
    batch_members = await members(context, plan)
    positions = dealt(batch_members, plan)[shard]
    if receipt is not None:
        context.progress.advance(len(positions))
        return receipt
    started = context.clock()
    asker = context.asker(plan)
    claims = Claims(context, step.name, shard, me=shard)
    cut = pieces(positions, context.concurrency)
    piece_of = {position: number for number, piece in enumerate(cut) for position in piece}

    async def learn(position: int) -> _Learned:
        if plan.shards > 1:
            await claims.settled(piece_of[position])
        learning_since = context.clock()
        learned = await _learn(context, asker, plan, shown, position, batch_members[position])
        claims.slowest_seconds = max(claims.slowest_seconds, context.clock() - learning_since)
        context.progress.advance()
        return learned

    learned = await pooled(positions, learn, width=context.concurrency)
    results = [one for _, one in sorted(zip(positions, learned, strict=True), key=lambda each: each[0])]
    if not all_may_be_lost:
        refuse_a_bad_day([result.error for result in results], "examples", step.name)
    summary = StepSummary(
        step=step.name,
        kind=step.kind,
        outputs={
            "calls": await context.store.aput_blob(asker.encode()),
            **{name: await put_lines(context, lines) for name, lines in _lines(plan, results).items()},
        },
        counts=_counts(plan, results, asker),
        usage=asker.usage(),
        seconds={"wall": round(context.clock() - started, 6)},
    )
    return await write_receipt(context, summary, shard)


@dataclass(frozen=True, slots=True)
class _Learned:
    """What is kept of one example until the shard is written: its lines, and what is counted."""

    trajectory: bytes
    reflection: bytes
    """empty when there is none."""
    correct: bool
    error: str
    lessons: int
    leaves: bytes
    """the leaves that were made of the reflection."""
    lost_calls: int
    """of these, those that were lost."""


def _lines(plan: IterationPlan, results: list[_Learned]) -> dict[str, Iterator[bytes]]:
    """Return what the shard leaves as lines, by output."""
    leaves = {"leaves": (one.leaves for one in results)} if plan.leaves_in_map else {}
    return {
        "trajectories": (one.trajectory for one in results),
        "reflections": (one.reflection for one in results),
        **leaves,
    }


def _counts(plan: IterationPlan, results: list[_Learned], asker: Asker) -> dict[str, int]:
    return {
        "iteration": plan.iteration,
        "examples": len(results),
        "correct": sum(result.correct for result in results),
        "failed": sum(bool(result.error) for result in results),
        "reflections": sum(bool(result.reflection) for result in results),
        "lessons": sum(result.lessons for result in results),
        "lostCalls": sum(result.lost_calls for result in results),
        **asker.counts(),
    }
