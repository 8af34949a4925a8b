"""The leaves of one that a map makes, each as soon as its reflection is there.

With slots to spare every reflection has an aggregator call of its own, as when examples are learned from one
by one. Such a call waits for no other example, so it is made in the map: no leaf waits for the last rollout,
and the slots that the last examples leave empty are used. What it lost is asked for once more on the spot.
The reduce goes on from there (``aggregation.parallel_scan``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from combee.methods.protocol import Part, Rendered
from combee.plan.types import IterationPlan
from combee.records import Reflection
from combee.work.aggregation import calls
from combee.work.asker import Asker
from combee.work.context import WorkContext
from combee.work.pool import pooled
from combee.work.reduction import CHAINS, Leaf, Reduction, leaf_stage
from combee.work.variants import dealt_to, name_of

MAP_ROUNDS = 2
"""Rounds that a map makes of a reflection."""


async def leaves_of(
    context: WorkContext,
    asker: Asker,
    plan: IterationPlan,
    shown: Sequence[Rendered],
    position: int,
    reflection: Reflection | None,
) -> list[Leaf]:
    """Return the leaves that the map makes of the reflection on the example at ``position``: of each part
    that it says something of, and none where the reduce makes them."""
    if reflection is None or not reflection.lessons or not plan.leaves_in_map:
        return []
    text = dealt_to(shown, position)
    parts = context.method.parts(text, [reflection])

    async def of_part(item: tuple[int, Part]) -> list[Leaf]:
        index, part = item
        leaf = Leaf(1, position, (), name_of(shown, text), part.name)
        reduction = Reduction(context, plan, asker, part.shown, part.reflections)
        return await _rounds(reduction, leaf, position + index * CHAINS)

    results = await pooled(list(enumerate(parts)), of_part, width=max(1, len(parts)))
    return [leaf for leaves in results for leaf in leaves]


async def _rounds(reduction: Reduction, leaf: Leaf, chain: int) -> list[Leaf]:
    method, reflections = reduction.context.method, reduction.reflections
    made: list[Leaf] = []
    for number in range(1, min(MAP_ROUNDS, reduction.plan.max_rounds) + 1):
        after = (leaf.position if number == 1 else chain,)
        lost_calls = reduction.lost_calls
        updates = await calls.leaf(
            reduction, leaf_stage(number), chain, reflections, ordinal=number - 1, after=after
        )
        lost = reduction.lost_calls > lost_calls
        made.append(replace(leaf, round=number, updates=tuple(updates), lost=lost))
        carried = method.carried_all(reflections, [update for one in made for update in one.updates])
        if all(lesson.id in carried for one in reflections for lesson in one.lessons):
            break
    return made
