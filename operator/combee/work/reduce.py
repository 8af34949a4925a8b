"""reduce: reflections become typed updates, up a tree that never overloads one call.

Leaves distil reflections; with ``Retransmit`` what was not carried is sent again in the same
iteration; then either ONE group-by over all leaf updates (``Structured``: singletons pass verbatim,
each cluster gets one call, all in parallel) or a call at every node up to a root (``Model``).
``Naive`` is one call with everything, which is what the comparison is about.

Leaves: ``updates`` (JSON lines), ``retention`` (JSON) and the call graph ``calls``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from combee.algo.tokens import estimate_tokens
from combee.algo.tree import pack, plan_tree
from combee.errors import CombeeError
from combee.methods.protocol import Rendered, Update
from combee.plan.types import IterationPlan, Step, StepSummary
from combee.records import Prompt, Reflection
from combee.work.asker import Asker
from combee.work.context import WorkContext, get_lines, read_manifest, require_manifests, write_manifest
from combee.work.decode import reflection_of
from combee.work.pool import pooled
from combee.work.retention import Level, level_report, rarity_report, uncarried
from combee.work.rollouts import LOSSES

NODE_OUTPUT_TOKENS = 4096
"""The most an aggregator may write: decoding is what a level costs, so this is the lever on depth."""


@dataclass(slots=True)
class _Reduction:
    """The state of one reduce step while it runs."""

    context: WorkContext
    plan: IterationPlan
    step: Step
    asker: Asker
    playbook: Rendered
    reflections: Sequence[Reflection]
    tokens: list[int]
    overhead_tokens: int
    levels: list[Level]
    lost_calls: int = 0
    unknown_ids: int = 0

    def progress(self, stage: str, total: int) -> None:
        self.context.progress.begin(stage, total)


async def run_reduce(
    context: WorkContext, step: Step, plan: IterationPlan, playbook: Rendered
) -> StepSummary:
    """Do the reduce of an iteration, or find it done."""
    done = await read_manifest(context, step.name)
    if done is not None:
        return done
    started = context.clock()
    reflections = await read_reflections(context, step.inputs["map"], plan)
    reduction = _reduction(context, plan, step, playbook, reflections)
    updates = await _reduce(reduction) if reflections else []
    retention = {
        "levels": [level.as_dict() for level in reduction.levels],
        "byRarity": rarity_report(context.method, reflections, updates),
    }
    summary = StepSummary(
        step=step.name,
        kind=step.kind,
        outputs={
            "updates": await context.store.aput_blob(_encode_updates(updates)),
            "retention": await context.store.aput_blob(json.dumps(retention, sort_keys=True).encode()),
            "calls": await context.store.aput_blob(reduction.asker.encode()),
        },
        counts={
            "iteration": plan.iteration,
            "calls": len(reduction.asker.rows),
            "lostCalls": reduction.lost_calls,
            "unknownIds": reduction.unknown_ids,
            "updates": len(updates),
            **reduction.asker.counts(),
        },
        usage=reduction.asker.usage(),
        seconds={"wall": round(context.clock() - started, 6)},
    )
    return await write_manifest(context, summary)


async def read_reflections(context: WorkContext, map_step: str, plan: IterationPlan) -> list[Reflection]:
    """The reflections of all shards that hold a lesson, in the batch's order."""
    found: list[Reflection] = []
    for manifest in await require_manifests(context, map_step, plan.shards):
        rows = await get_lines(context, manifest.outputs["reflections"], reflection_of)
        found.extend(reflection for reflection in rows if reflection.lessons)
    return sorted(found, key=lambda reflection: reflection.id)


def _reduction(
    context: WorkContext,
    plan: IterationPlan,
    step: Step,
    playbook: Rendered,
    reflections: Sequence[Reflection],
) -> _Reduction:
    """Token counts are those of the prompt itself: what a call has without inputs is its overhead."""
    empty = _prompt_tokens(context.method.leaf_prompt(playbook, []), plan)
    tokens = [
        max(1, _prompt_tokens(context.method.leaf_prompt(playbook, [reflection]), plan) - empty)
        for reflection in reflections
    ]
    return _Reduction(context, plan, step, context.asker(), playbook, reflections, tokens, empty, [])


def _prompt_tokens(prompt: Prompt, plan: IterationPlan) -> int:
    return round(plan.token_factor * sum(estimate_tokens(message.content) for message in prompt.messages))


async def _reduce(reduction: _Reduction) -> list[Update]:
    if reduction.plan.strategy == "Naive":
        return await _naive(reduction)
    leaves = await _rounds(reduction)
    updates = [update for leaf in leaves for update in leaf]
    if reduction.plan.merge == "Model":
        merged = await _tree(reduction, leaves)
    else:
        merged = await _grouped(reduction, updates)
    reduction.levels.append(
        level_report(
            reduction.context.method,
            "merge",
            len(reduction.asker.rows),
            len(updates),
            reduction.reflections,
            merged,
        )
    )
    return merged


async def _naive(reduction: _Reduction) -> list[Update]:
    """One aggregator call with every reflection, whatever its length: a 400 carries nothing."""
    reduction.progress("reduce", 1)
    updates = await _leaf(reduction, list(reduction.reflections), "reduce", 0)
    count = len(reduction.reflections)
    reduction.levels.append(
        level_report(reduction.context.method, "one call", 1, count, reduction.reflections, updates)
    )
    return updates


async def _rounds(reduction: _Reduction) -> list[list[Update]]:
    """Leaf calls, round after round; a round takes only what was not carried so far."""
    plan, method = reduction.plan, reduction.context.method
    rounds = plan.max_rounds if plan.redundancy == "Retransmit" else 1
    todo = list(range(len(reduction.reflections)))
    leaves: list[list[Update]] = []
    for number in range(rounds):
        if not todo:
            break
        tree = plan_tree(
            [reduction.tokens[index] for index in todo],
            seed=plan.seed,
            iteration=plan.iteration,
            round=number,
            copies=plan.copies if plan.redundancy == "Duplicate" else 1,
            leaf_size=plan.leaf_size,
            subgroups=plan.subgroups or None,
            max_fan_in=plan.max_fan_in,
            max_input_tokens=plan.max_input_tokens,
            overhead_tokens=reduction.overhead_tokens,
            merge="Structured",
            node_output_tokens=NODE_OUTPUT_TOKENS,
        )
        stage = f"reduce round {number + 1}"
        reduction.progress(stage, len(tree.leaves))
        groups = [[reduction.reflections[todo[index]] for index in leaf] for leaf in tree.leaves]

        async def one(item: tuple[int, list[Reflection]], stage: str = stage) -> list[Update]:
            return await _leaf(reduction, item[1], stage, item[0])

        leaves += await pooled(list(enumerate(groups)), one, width=reduction.context.concurrency)
        so_far = [update for leaf in leaves for update in leaf]
        reduction.levels.append(
            level_report(
                method, f"leaf round {number + 1}", len(groups), len(todo), reduction.reflections, so_far
            )
        )
        still = uncarried(method, reduction.reflections, so_far)
        todo = [index for index in todo if index in still]
    return leaves


async def _leaf(reduction: _Reduction, group: list[Reflection], stage: str, chain: int) -> list[Update]:
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
        return _lost(reduction, error)
    finally:
        reduction.context.progress.advance()


def _lost(reduction: _Reduction, error: CombeeError) -> list[Update]:
    """A lost call carries nothing; the next round (or the other copy) may."""
    reduction.lost_calls += 1
    reduction.context.progress.note(f"an aggregator call was lost: {error.code}")
    return []


async def _merge(
    reduction: _Reduction, members: list[Update], stage: str, chain: int, *, keep: bool
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
        lost = _lost(reduction, error)
        return members if keep else lost
    finally:
        reduction.context.progress.advance()
    reduction.unknown_ids += merged.unknown_ids
    return method.reconcile_merge(members, merged.updates) if keep else merged.updates


async def _grouped(reduction: _Reduction, updates: list[Update]) -> list[Update]:
    """Structured: fixed depth at any n, and nothing is lost to a root's capacity."""
    grouping = reduction.context.method.group(updates, cap=reduction.plan.max_fan_in)
    reduction.progress("merge", len(grouping.clusters))

    async def one(item: tuple[int, list[Update]]) -> list[Update]:
        return await _merge(reduction, item[1], "merge", item[0], keep=True)

    merged = await pooled(list(enumerate(grouping.clusters)), one, width=reduction.context.concurrency)
    return _canonical([*grouping.passed, *(update for cluster in merged for update in cluster)])


async def _tree(reduction: _Reduction, leaves: list[list[Update]]) -> list[Update]:
    """Model: the paper's tree, a call at every node up to one root. Its inputs are the outputs of
    the level below; fan-in and tokens are capped by adding levels."""
    plan = reduction.plan
    level = [leaf for leaf in leaves if leaf]
    depth = 0
    while len(level) > 1:
        depth += 1
        sizes = [round(plan.token_factor * sum(estimate_tokens(u.text) + 24 for u in node)) for node in level]
        groups = pack(
            sizes,
            max_fan_in=plan.max_fan_in,
            max_input_tokens=plan.max_input_tokens,
            overhead_tokens=reduction.overhead_tokens,
        )
        if len(groups) >= len(level):
            break
        stage = f"merge level {depth}"
        reduction.progress(stage, len(groups))
        below = level

        async def one(
            item: tuple[int, tuple[int, ...]], stage: str = stage, below: list[list[Update]] = below
        ) -> list[Update]:
            members = [update for index in item[1] for update in below[index]]
            return await _merge(reduction, members, stage, item[0], keep=False)

        level = await pooled(list(enumerate(groups)), one, width=reduction.context.concurrency)
        level = [node for node in level if node]
    return _canonical([update for node in level for update in node])


def _canonical(updates: list[Update]) -> list[Update]:
    """Equal updates once, their sources and citations united, in the order of their keys."""
    joined: dict[str, Update] = {}
    for update in sorted(updates, key=lambda update: (update.section, update.text)):
        known = joined.get(update.key, update)
        joined[update.key] = replace(
            known, sources=known.sources | update.sources, cited=known.cited | update.cited
        )
    return [joined[key] for key in sorted(joined)]


def _encode_updates(updates: Sequence[Update]) -> bytes:
    rows: list[dict[str, Any]] = [
        {
            "op": update.op,
            "section": update.section,
            "text": update.text,
            "sources": sorted(update.sources),
            "base": list(update.base),
            "cited": sorted(update.cited),
            "reason": update.reason,
        }
        for update in updates
    ]
    return "".join(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n" for row in rows).encode()
