"""The leaves of one that a map makes, each as soon as its reflection is there.

With slots to spare every reflection has an aggregator call of its own, as when examples are learned from one
by one. Such a call waits for no other example, so it is made in the map: no leaf waits for the last rollout,
and the slots that the last examples leave empty are used. What it lost is asked for once more on the spot.
The reduce goes on from there (``aggregation.parallel_scan``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from combee.methods.protocol import Part, Rendered, Update
from combee.plan.types import IterationPlan
from combee.records import Reflection
from combee.work.asker import LOSSES, Asker
from combee.work.context import WorkContext
from combee.work.pool import pooled
from combee.work.reduction import AGAIN_TEMPERATURE, CHAINS, Leaf, leaf_stage
from combee.work.variants import dealt_to, name_of

MAP_ROUNDS = 2
"""Rounds that a map makes of a reflection."""


@dataclass(frozen=True, slots=True)
class Distilling:
    """One reflection of a batch, of the example at ``position``."""

    context: WorkContext
    asker: Asker
    plan: IterationPlan
    shown: Sequence[Rendered]
    position: int
    reflection: Reflection

    async def leaves(self) -> list[Leaf]:
        """Return the leaves that were made of the reflection: of each part that it says something of."""
        text = dealt_to(self.shown, self.position)
        parts = self.context.method.parts(text, [self.reflection]) if self.reflection.lessons else []

        async def of_part(item: tuple[int, Part]) -> list[Leaf]:
            index, part = item
            leaf = Leaf(1, self.position, (), name_of(self.shown, text), part.name)
            return await self._rounds(leaf, part, self.position + index * CHAINS)

        results = await pooled(list(enumerate(parts)), of_part, width=max(1, len(parts)))
        return [leaf for leaves in results for leaf in leaves]

    async def _rounds(self, leaf: Leaf, part: Part, chain: int) -> list[Leaf]:
        made: list[Leaf] = []
        for number in range(1, min(MAP_ROUNDS, self.plan.max_rounds) + 1):
            after = self.position if number == 1 else chain
            updates = await self._call(part, number, chain, after)
            made.append(replace(leaf, round=number, updates=tuple(updates or ()), lost=updates is None))
            so_far = [update for one in made for update in one.updates]
            carried = self.context.method.carried_all(part.reflections, so_far)
            if all(lesson.id in carried for one in part.reflections for lesson in one.lessons):
                break
        return made

    async def _call(self, part: Part, number: int, chain: int, after: int) -> list[Update] | None:
        """Return what an aggregator made of a part; None where the call was lost."""
        method, reflections = self.context.method, part.reflections
        try:
            return await self.asker.ask(
                "proposer",
                method.leaf_prompt(part.shown, reflections),
                lambda text: method.parse_leaf(text, reflections=reflections, playbook=part.shown),
                stage=leaf_stage(number),
                chain=chain,
                ordinal=number - 1,
                least_temperature=AGAIN_TEMPERATURE if number > 1 else 0.0,
                after=(after,),
            )
        except LOSSES as error:
            self.context.progress.note(f"an aggregator call was lost: {error.code}")
            return None
