"""reduce: reflections become typed updates, up a tree that never overloads one call.

The strategy says how: ``work.aggregation`` has one file for each. The map makes leaves of one reflection.

It leaves ``updates`` (JSON lines), ``retention`` (JSON) and the call graph ``calls``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial

from combee.errors import BugError
from combee.methods.protocol import Part, Rendered, Update
from combee.plan.types import IterationPlan, Step, StepSummary
from combee.records import Reflection
from combee.steps import MAP
from combee.work.aggregation.table import reduce_of
from combee.work.context import (
    WorkContext,
    get_lines,
    line_of,
    put_json,
    put_lines,
    require_receipts,
    write_receipt,
)
from combee.work.decode import leaf_of, reflection_of
from combee.work.pool import pooled
from combee.work.reduction import Leaf, Reduction, joined
from combee.work.retention import Lessons
from combee.work.sharing import Sharing
from combee.work.together import Together
from combee.work.variants import changes_of, name_of, of_text


async def run_reduce(
    context: WorkContext, step: Step, plan: IterationPlan, shown: Sequence[Rendered], shard: int = 0
) -> StepSummary:
    """Run the reduce step of an iteration. ``shown``: the texts that it works with; ``shard``: which of the
    pods it is that do it together. The first one that is through writes the receipt."""
    started = context.clock()
    receipts = await require_receipts(context, step.inputs[MAP.name], plan.shards)
    reflections = await _reflections(context, receipts)
    made = await _leaves(context, receipts)
    pods = partial(Sharing, step, shard) if step.shards > 1 else None
    parts = await _parts(context, plan, shown, reflections, made, pods)
    reduction = joined(context, [part for part, _ in parts])
    updates = [update for _, part_updates in parts for update in part_updates]
    carried = context.method.carried_all(reflections, updates)
    retention = {
        "levels": [asdict(level) for level in reduction.levels],
        "byRarity": Lessons.of(reflections).by_rarity(carried),
    }
    summary = StepSummary(
        step=step.name,
        kind=step.kind,
        outputs={
            "updates": await put_lines(context, map(line_of, updates)),
            "retention": await put_json(context, retention),
            "calls": await context.store.aput_blob(reduction.asker.encode()),
        },
        counts={
            "iteration": plan.iteration,
            "calls": len(reduction.asker.rows),
            "lostCalls": reduction.lost_calls,
            "unknownIds": reduction.unknown_ids,
            "leftOut": reduction.left_out,
            "updates": len(updates),
            **reduction.asker.counts(),
        },
        usage=reduction.asker.usage(),
        seconds={"wall": round(context.clock() - started, 6)},
    )
    return await write_receipt(context, summary)


async def _parts(
    context: WorkContext,
    plan: IterationPlan,
    shown: Sequence[Rendered],
    reflections: Sequence[Reflection],
    made: Sequence[Leaf],
    pods: Callable[[str], Sharing] | None = None,
) -> list[tuple[Reduction, list[Update]]]:
    """Reduce the parts of each text separately, all side by side, and return each with its updates. ``made``:
    leaves that the map made; ``pods``: this one's place among several that reduce a part."""
    parts = [
        (name_of(shown, text), part)
        for text in shown
        for part in context.method.parts(text, of_text(reflections, shown, text))
    ]
    if len({(name, part.name) for name, part in parts}) < len(parts):
        raise BugError("two parts of a text have one name, which tells whose leaves are whose", where="parts")
    together = Together(context.progress)

    async def reduced(item: tuple[str, Part]) -> tuple[Reduction, list[Update]]:
        name, part = item
        own = replace(context, progress=together.part()) if len(parts) > 1 else context
        leaves = [leaf for leaf in made if (leaf.variant, leaf.part) == (name, part.name)]
        sharing = pods(f"{name}/{part.name}") if pods is not None else None
        reduction = Reduction(own, plan, own.asker(plan), part.shown, part.reflections, leaves, sharing)
        return reduction, changes_of(name, await reduce_of(plan.strategy)(reduction))

    return await pooled(parts, reduced, width=max(1, len(parts)))


async def _reflections(context: WorkContext, receipts: Sequence[StepSummary]) -> list[Reflection]:
    """Return the reflections of all shards that hold a lesson, in the batch's order."""
    reflections: list[Reflection] = []
    for receipt in receipts:
        rows = await get_lines(context, receipt.outputs["reflections"], reflection_of)
        reflections.extend(reflection for reflection in rows if reflection.lessons)
    return sorted(reflections, key=lambda reflection: reflection.id)


async def _leaves(context: WorkContext, receipts: Sequence[StepSummary]) -> list[Leaf]:
    """Return the leaves that the shards made, in the batch's order; none where the reduce makes them, as
    where a shard is of a version that made none."""
    if any("leaves" not in receipt.outputs for receipt in receipts):
        return []
    digests = [receipt.outputs["leaves"] for receipt in receipts]
    leaves = [leaf for digest in digests for leaf in await get_lines(context, digest, leaf_of)]
    return sorted(leaves, key=lambda leaf: leaf.position)
