"""The two calls that strategies and merges are made of: over reflections, and over updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from combee.methods.protocol import Update
from combee.records import Reflection
from combee.work.reduction import Reduction


async def one_call(
    reduction: Reduction,
    reflections: list[Reflection],
    trace: Callable[[list[Update]], list[Update]] = lambda updates: updates,
) -> list[Update]:
    """Make the one aggregator call of a strategy that makes no more. ``trace`` finds the sources of its
    updates where ``reflections`` only stand for others."""
    reduction.progress("reduce", 1)
    updates = trace(await leaf(reduction, reflections, "reduce", 0) if reflections else [])
    reduction.report("one call", int(bool(reflections)), len(reflections), updates)
    return updates


async def leaf(
    reduction: Reduction, group: list[Reflection], stage: str, chain: int, ordinal: int = 0
) -> list[Update]:
    """Make one aggregator call over reflections; a lost one gives nothing. ``ordinal``: how often they may
    have been asked about."""
    method, playbook = reduction.context.method, reduction.playbook
    updates = await reduction.ask(
        method.leaf_prompt(playbook, group),
        lambda text: method.parse_leaf(text, reflections=group, playbook=playbook),
        stage,
        chain,
        ordinal=ordinal,
    )
    return updates or []


async def merge(
    reduction: Reduction, members: list[Update], stage: str, chain: int, *, keep: bool
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
    joined: dict[str, Update] = {}
    for update in sorted(updates, key=lambda update: (update.section, update.text)):
        equal = joined.get(update.key, update)
        joined[update.key] = replace(
            equal, sources=equal.sources | update.sources, cited=equal.cited | update.cited
        )
    return [joined[key] for key in sorted(joined)]
