"""The two calls that strategies and merges are made of: over reflections, and over updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from combee.algo.grouping import grouped
from combee.methods.protocol import Update
from combee.records import Reflection
from combee.work.reduction import Reduction
from combee.work.sharing import Call, Inputs, made_together

ONE_CALL = "one call"


async def one_call(
    reduction: Reduction,
    reflections: list[Reflection],
    trace: Callable[[list[Update]], list[Update]] = lambda updates: updates,
) -> list[Update]:
    """Make the one aggregator call of a strategy that makes no more. ``trace`` finds the sources of its
    updates where ``reflections`` only stand for others."""
    inputs = [reflections] if reflections else []
    made = await reduction.side_by_side(ONE_CALL, inputs, partial(leaf, reduction, ONE_CALL))
    updates = trace([update for one in made for update in one])
    reduction.report(ONE_CALL, len(inputs), len(reflections), updates)
    return updates


async def divided(
    reduction: Reduction, stage: str, items: Sequence[Inputs], call: Call[Inputs]
) -> list[list[Update]]:
    """Return what ``call`` makes of each item, as one stage. Its calls are divided among the pods that reduce
    the part together."""
    if reduction.sharing is not None:
        return await made_together(reduction, reduction.sharing, stage, items, call)
    return await reduction.side_by_side(stage, items, partial(call, reduction, stage))


async def leaf(
    reduction: Reduction,
    stage: str,
    chain: int,
    group: Sequence[Reflection],
    *,
    ordinal: int = 0,
    after: tuple[int, ...] = (),
) -> list[Update]:
    """Make one aggregator call over reflections; a lost one gives nothing. ``ordinal``: how often they may
    have been asked about; ``after``: the chains that it waits for."""
    method, playbook = reduction.context.method, reduction.playbook
    updates = await reduction.ask(
        method.leaf_prompt(playbook, group),
        lambda text: method.parse_leaf(text, reflections=group, playbook=playbook),
        stage,
        chain,
        ordinal=ordinal,
        after=after,
    )
    return updates or []


async def merge(
    reduction: Reduction, stage: str, chain: int, members: list[Update], *, keep: bool
) -> list[Update]:
    """Make one aggregator call over updates. ``keep``: what it dropped or blurred passes verbatim."""
    method, playbook = reduction.context.method, reduction.playbook
    merged = await reduction.ask(
        method.merge_prompt(playbook, members),
        lambda text: method.parse_merge(text, updates=members, playbook=playbook),
        stage,
        chain,
    )
    if merged is None:
        return members if keep else []
    reduction.unknown_ids += merged.unknown_ids
    return method.reconcile_merge(members, merged.updates) if keep else merged.updates


def canonical(updates: list[Update]) -> list[Update]:
    """Return equal updates once, with their sources and citations united, in the order of their keys."""
    by_key = grouped(sorted(updates, key=lambda update: (update.section, update.text)), lambda one: one.key)
    return [by_key[key][0].backed_by(by_key[key]) for key in sorted(by_key)]
