"""The two calls that strategies and merges are made of: over reflections, and over updates."""

from __future__ import annotations

from dataclasses import replace

from combee.methods.protocol import Update
from combee.records import Reflection
from combee.work.reduction import Reduction
from combee.work.retention import level_report
from combee.work.rollouts import LOSSES


async def one_call(reduction: Reduction, given: list[Reflection]) -> list[Update]:
    """The one aggregator call of a strategy that makes no more."""
    reduction.progress("reduce", 1)
    return await leaf(reduction, given, "reduce", 0) if given else []


def note_one_call(reduction: Reduction, given: list[Reflection], updates: list[Update]) -> None:
    """What the one call was given and what of it is left."""
    method = reduction.context.method
    reduction.levels.append(
        level_report(method, "one call", int(bool(given)), len(given), reduction.reflections, updates)
    )


async def leaf(reduction: Reduction, group: list[Reflection], stage: str, chain: int) -> list[Update]:
    """One aggregator call over reflections; a lost one gives nothing."""
    method = reduction.context.method
    prompt = method.leaf_prompt(reduction.playbook, group)
    try:
        return await reduction.asker.ask(
            "proposer",
            prompt,
            lambda text: method.parse_leaf(text, reflections=group, playbook=reduction.playbook),
            stage=stage,
            chain=chain,
        )
    except LOSSES as error:
        reduction.lost(error)
        return []
    finally:
        reduction.context.progress.advance()


async def merge(
    reduction: Reduction, members: list[Update], stage: str, chain: int, *, keep: bool
) -> list[Update]:
    """One aggregator call over updates. ``keep``: what it dropped or blurred passes verbatim."""
    method = reduction.context.method
    prompt = method.merge_prompt(reduction.playbook, members)
    try:
        merged = await reduction.asker.ask(
            "proposer",
            prompt,
            lambda text: method.parse_merge(text, updates=members, playbook=reduction.playbook),
            stage=stage,
            chain=chain,
        )
    except LOSSES as error:
        reduction.lost(error)
        return members if keep else []
    finally:
        reduction.context.progress.advance()
    reduction.unknown_ids += merged.unknown_ids
    return method.reconcile_merge(members, merged.updates) if keep else merged.updates


def canonical(updates: list[Update]) -> list[Update]:
    """Equal updates once, their sources and citations united, in the order of their keys."""
    joined: dict[str, Update] = {}
    for update in sorted(updates, key=lambda update: (update.section, update.text)):
        known = joined.get(update.key, update)
        joined[update.key] = replace(
            known, sources=known.sources | update.sources, cited=known.cited | update.cited
        )
    return [joined[key] for key in sorted(joined)]
