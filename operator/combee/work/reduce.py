"""reduce: reflections become typed updates, up a tree that never overloads one call.

Leaves distil reflections; with ``Retransmit`` what was not carried is sent again in the same
iteration; then either ONE group-by over all leaf updates (``Structured``: singletons pass verbatim,
each cluster gets one call, all in parallel) or a call at every node up to a root (``Model``).
``Naive``, ``TopK`` and ``Summarize`` make one aggregator call: with everything, with the reflections
nearest to all, or with summaries of them, which is what the comparison is about.

Leaves: ``updates`` (JSON lines), ``retention`` (JSON) and the call graph ``calls``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from combee.algo.tokens import estimate_tokens
from combee.algo.tree import pack, plan_tree
from combee.methods.protocol import Part, Rendered, Update
from combee.plan.types import IterationPlan, Step, StepSummary
from combee.records import Reflection
from combee.steps import MAP
from combee.work.aggregation.summarize import Behind, summaries, traced
from combee.work.aggregation.topk import nearest
from combee.work.context import WorkContext, get_lines, read_manifest, require_manifests, write_manifest
from combee.work.decode import reflection_of
from combee.work.pool import pooled
from combee.work.reduction import Reduction, input_tokens, joined
from combee.work.retention import level_report, rarity_report, uncarried
from combee.work.rollouts import LOSSES
from combee.work.together import Together
from combee.work.variants import changes_of, name_of, of_text

NODE_OUTPUT_TOKENS = 4096
"""The most an aggregator may write: decoding is what a level costs, so this is the lever on depth."""


async def run_reduce(
    context: WorkContext, step: Step, plan: IterationPlan, shown: Sequence[Rendered]
) -> StepSummary:
    """Do the reduce of an iteration, or find it done. ``shown``: the texts that it works with."""
    done = await read_manifest(context, step.name)
    if done is not None:
        return done
    started = context.clock()
    reflections = await read_reflections(context, step.inputs[MAP.name], plan)
    done_parts = await _parts(context, plan, shown, reflections)
    reduction = joined(context, [part for part, _ in done_parts])
    updates = [update for _, own in done_parts for update in own]
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
            "leftOut": reduction.left_out,
            "updates": len(updates),
            **reduction.asker.counts(),
        },
        usage=reduction.asker.usage(),
        seconds={"wall": round(context.clock() - started, 6)},
    )
    return await write_manifest(context, summary)


async def _parts(
    context: WorkContext, plan: IterationPlan, shown: Sequence[Rendered], reflections: Sequence[Reflection]
) -> list[tuple[Reduction, list[Update]]]:
    """What is reduced by itself, each with its updates: the parts of each text, all side by side."""
    parts = [
        (name_of(shown, one), part)
        for one in shown
        for part in context.method.parts(one, of_text(reflections, shown, one))
    ]
    together = Together(context.progress)

    async def reduced(item: tuple[str, Part]) -> tuple[Reduction, list[Update]]:
        name, part = item
        own = replace(context, progress=together.part()) if len(parts) > 1 else context
        tokens, overhead = input_tokens(own, plan, part.shown, part.reflections)
        reduction = Reduction(own, plan, own.asker(), part.shown, part.reflections, tokens, overhead)
        return reduction, changes_of(name, await _reduce(reduction))

    return await pooled(parts, reduced, width=max(1, len(parts)))


async def read_reflections(context: WorkContext, map_step: str, plan: IterationPlan) -> list[Reflection]:
    """The reflections of all shards that hold a lesson, in the batch's order."""
    found: list[Reflection] = []
    for manifest in await require_manifests(context, map_step, plan.shards):
        rows = await get_lines(context, manifest.outputs["reflections"], reflection_of)
        found.extend(reflection for reflection in rows if reflection.lessons)
    return sorted(found, key=lambda reflection: reflection.id)


async def _reduce(reduction: Reduction) -> list[Update]:
    if reduction.plan.strategy in ("Naive", "TopK", "Summarize"):
        return await _by_one_call(reduction)
    leaves = await _rounds(reduction)
    updates = [update for leaf in leaves for update in leaf]
    before = len(reduction.asker.rows)
    if reduction.plan.merge == "Model":
        merged = await _tree(reduction, leaves)
    else:
        merged = await _grouped(reduction, updates)
    reduction.levels.append(
        level_report(
            reduction.context.method,
            "merge",
            len(reduction.asker.rows) - before,
            len(updates),
            reduction.reflections,
            merged,
        )
    )
    return merged


async def _by_one_call(reduction: Reduction) -> list[Update]:
    """One aggregator call. ``Naive`` gives it every reflection, whatever its length: a 400 carries nothing."""
    method, given = reduction.context.method, list(reduction.reflections)
    behind: Behind | None = None
    if reduction.plan.strategy == "TopK":
        given = await nearest(reduction)
    elif reduction.plan.strategy == "Summarize":
        given, behind = await summaries(reduction)
    reduction.progress("reduce", 1)
    updates = await _leaf(reduction, given, "reduce", 0) if given else []
    if behind is not None:
        updates = traced(method, updates, behind)
    reduction.levels.append(
        level_report(method, "one call", int(bool(given)), len(given), reduction.reflections, updates)
    )
    return updates


async def _rounds(reduction: Reduction) -> list[list[Update]]:
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


async def _leaf(reduction: Reduction, group: list[Reflection], stage: str, chain: int) -> list[Update]:
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


async def _merge(
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


async def _grouped(reduction: Reduction, updates: list[Update]) -> list[Update]:
    """Structured: fixed depth at any n, and nothing is lost to a root's capacity."""
    plan = reduction.plan
    as_estimated = int(plan.max_input_tokens / (plan.token_factor or 1.0))
    grouping = reduction.context.method.group(updates, cap=plan.max_fan_in, max_tokens=as_estimated)
    reduction.progress("merge", len(grouping.clusters))

    async def one(item: tuple[int, list[Update]]) -> list[Update]:
        return await _merge(reduction, item[1], "merge", item[0], keep=True)

    merged = await pooled(list(enumerate(grouping.clusters)), one, width=reduction.context.concurrency)
    return _canonical([*grouping.passed, *(update for cluster in merged for update in cluster)])


async def _tree(reduction: Reduction, leaves: list[list[Update]]) -> list[Update]:
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
            **({"variant": update.variant} if update.variant else {}),
        }
        for update in updates
    ]
    return "".join(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n" for row in rows).encode()
