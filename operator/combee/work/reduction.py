"""The state of one part of a reduce step while it runs, which its strategies share, and all parts as one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain as chained
from typing import TYPE_CHECKING, TypeVar

from combee.algo.tokens import estimate_tokens
from combee.algo.tree import Caps
from combee.errors import CombeeError
from combee.methods.protocol import Rendered, Update
from combee.plan.types import IterationPlan
from combee.records import Prompt, Reflection
from combee.work.asker import LOSSES, Asker
from combee.work.context import WorkContext
from combee.work.pool import pooled
from combee.work.retention import Lessons, Level, summed

if TYPE_CHECKING:
    from combee.work.sharing import Sharing

AGAIN_TEMPERATURE = 0.7
"""The least that an ask after the first is drawn at: at 0 a model says the same again."""
CHAINS = 1_000_000
"""More chains than any part has."""
Item = TypeVar("Item")
Parsed = TypeVar("Parsed")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a leaf of one reflection gave that the map made."""

    round: int
    """from 1; later ones ask once more for what was lost."""
    position: int
    """the example's place in the batch."""
    updates: tuple[Update, ...]
    variant: str = ""
    """the text that its agent was shown, of several in flight."""
    part: str = ""
    """the part of that text."""
    lost: bool = False
    """whether the call was lost; it gave nothing then."""


@dataclass
class Reduction:
    """One part of a batch on its way to updates."""

    context: WorkContext
    plan: IterationPlan
    asker: Asker
    playbook: Rendered
    reflections: Sequence[Reflection]
    made: Sequence[Leaf] = ()
    """leaves that the map made."""
    sharing: Sharing | None = None
    """its place among the pods that reduce it together; None where it is alone."""
    levels: list[Level] = field(default_factory=list)
    lost_calls: int = 0
    unknown_ids: int = 0
    left_out: int = 0
    """the number of reflections that no aggregator call was given."""

    @property
    def caps(self) -> Caps:
        """What an aggregator call may take."""
        return Caps(self.plan.max_fan_in, self.plan.max_input_tokens, self.overhead_tokens)

    @cached_property
    def overhead_tokens(self) -> int:
        """The tokens of an aggregator's prompt without reflections."""
        return prompt_tokens(self.context.method.leaf_prompt(self.playbook, []), self.plan)

    @cached_property
    def tokens(self) -> list[int]:
        """What each reflection adds to an aggregator's prompt."""
        return self.tokens_of(self.reflections)

    def tokens_of(self, inputs: Sequence[Reflection]) -> list[int]:
        """Return what each input adds to an aggregator's prompt."""
        # One at a time: each holds the playbook once more.
        prompts = (self.context.method.leaf_prompt(self.playbook, [one]) for one in inputs)
        return [max(1, prompt_tokens(prompt, self.plan) - self.overhead_tokens) for prompt in prompts]

    @cached_property
    def lessons(self) -> Lessons:
        """All lessons of the part."""
        return Lessons.of(self.reflections)

    def report(self, level: str, calls: int, inputs: int, updates: Sequence[Update]) -> frozenset[str]:
        """Put down how many lessons the updates so far carry, and return the ids of these."""
        carried = self.context.method.carried_all(self.reflections, updates)
        self.levels.append(self.lessons.level(level, calls, inputs, carried))
        return carried

    def note(self, text: str) -> None:
        """Say something that a person should know."""
        self.context.progress.note(text)

    async def ask(
        self,
        prompt: Prompt,
        parse: Callable[[str], Parsed],
        stage: str,
        chain: int,
        call: str = "an aggregator call",
        ordinal: int = 0,
        after: tuple[int, ...] = (),
    ) -> Parsed | None:
        """Return the proposer's answer; None if lost: the next round or the other copy may carry them.
        ``ordinal``: how often it may have been asked before; ``after``: the chains that it waits for."""
        try:
            return await self.asker.ask(
                "proposer",
                prompt,
                parse,
                stage=stage,
                chain=chain,
                ordinal=ordinal,
                least_temperature=max(self.plan.least_temperature, AGAIN_TEMPERATURE if ordinal else 0.0),
                after=after,
            )
        except LOSSES as error:
            self.lost(error, call)
            return None

    async def side_by_side(
        self, stage: str, items: Sequence[Item], work: Callable[[int, Item], Awaitable[Result]]
    ) -> list[Result]:
        """Return what ``work`` makes of each item and its place, which is its chain, as one stage."""
        progress = self.context.progress
        progress.begin(stage, len(items))

        async def one(placed: tuple[int, Item]) -> Result:
            result = await work(*placed)
            progress.advance()
            return result

        return await pooled(list(enumerate(items)), one, width=self.context.concurrency)

    def lost(self, error: CombeeError, call: str) -> None:
        """Count a lost call and say so."""
        self.lost_calls += 1
        self.note(f"{call} was lost: {error.code}")


@dataclass(frozen=True, slots=True)
class Reduced:
    """What the parts of a reduce step did, as one: their calls, levels and counts."""

    asker: Asker
    levels: list[Level]
    lost_calls: int
    unknown_ids: int
    left_out: int


def joined(context: WorkContext, parts: Sequence[Reduction]) -> Reduced:
    """Return all parts of a step as one. Two parts share no chain, since neither waits for the other."""
    asker = context.asker()
    for number, part in enumerate(parts):
        asker.take_in(part.asker, number * CHAINS)
    return Reduced(
        asker,
        summed(chained.from_iterable(part.levels for part in parts)),
        sum(part.lost_calls for part in parts),
        sum(part.unknown_ids for part in parts),
        sum(part.left_out for part in parts),
    )


def leaf_stage(number: int) -> str:
    """Return what the call graph and the levels call a round of leaves, from 1."""
    return f"leaf round {number}"


def prompt_tokens(prompt: Prompt, plan: IterationPlan) -> int:
    """Return the tokens of a prompt as the server is expected to count them."""
    return round(plan.token_factor * sum(estimate_tokens(message.content) for message in prompt.messages))
