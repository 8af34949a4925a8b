"""finish: the last step of an iteration. It applies, checks, replays, renders, scores select, and
rolls the manifests of the iteration up into one summary.

Leaves: ``artifact`` (canonical JSON), ``playbook`` (the rendered text) and ``record`` (what the
report shows of the iteration).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from combee.methods.protocol import Refusal, Rendered
from combee.methods.verification import Verified
from combee.plan.engine import engine_digest
from combee.plan.playbook.content import findings_json
from combee.plan.types import IterationPlan, Step, StepSummary
from combee.records import Reflection, Trajectory
from combee.steps import FINISH, MAP, REDUCE
from combee.work.asker import Asker, CallRow, decode_rows, modelled_seconds, typical_seconds
from combee.work.context import (
    WorkContext,
    get_lines,
    held_out_split,
    read_receipt,
    require_receipts,
    total,
    total_usage,
    write_receipt,
)
from combee.work.decode import outcome_of, update_of, without_diagnosis
from combee.work.happened import happened
from combee.work.passages import leak_corpus, repeated
from combee.work.recorded import checked
from combee.work.rollouts import evaluate, mean, mean_partial
from combee.work.variants import of_text
from combee.work.verify import run_verification


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What the steps before left."""

    manifests: list[StepSummary]
    trajectories: dict[str, Trajectory]
    reflections: list[Reflection]
    updates: list[Any]
    retention: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Applied:
    """The ledger after this iteration, and what happened on the way."""

    ledger: Any
    refusals: list[Refusal]
    tried: Verified[Any]


async def run_finish(
    context: WorkContext, step: Step, plan: IterationPlan, ledger: Any, shown: Sequence[Rendered]
) -> StepSummary:
    """Finish an iteration, or find it finished. ``shown``: the texts that its agents saw."""
    before = await read_receipt(context, step.name)
    if before is not None:
        return before
    started = context.clock()
    inputs = await _read(context, step, plan)
    asker = context.asker()
    applied = await _apply(context, asker, plan, ledger, shown, inputs)
    budget_tokens = plan.render_token_budget
    rendered = context.method.render(applied.ledger, budget_tokens=budget_tokens, verify=plan.verify)
    scores: dict[str, float] = {}
    if plan.evaluate:
        select, _ = await held_out_split(context)
        known = applied.tried.known
        seen = await evaluate(context, asker, select, rendered.shown, stage="select", known=known)
        scores["select"] = mean(seen.by_id)
        if seen.partial is not None:
            scores["partialSelect"] = seen.partial
    if (partial := mean_partial(t.partial for t in inputs.trajectories.values())) is not None:
        scores["partialTrain"] = partial
    built_on = tuple(one.variant for one in shown if len(shown) > 1)
    done = _Finished(inputs, applied, rendered, asker, scores, started, built_on)
    return await _write(context, step, plan, done)


@dataclass(frozen=True, slots=True)
class _Finished:
    inputs: _Inputs
    applied: _Applied
    rendered: Rendered
    asker: Asker
    scores: dict[str, float]
    started: float
    built_on: tuple[str, ...]
    """the variants in flight, where there were several."""


async def _read(context: WorkContext, step: Step, plan: IterationPlan) -> _Inputs:
    mapped = await require_receipts(context, step.inputs[MAP.name], plan.shards)
    (reduced,) = await require_receipts(context, step.inputs[REDUCE.name], 1)
    trajectories: dict[str, Trajectory] = {}
    reflections: list[Reflection] = []
    for manifest in mapped:
        for trajectory in await get_lines(context, manifest.outputs["trajectories"], outcome_of):
            trajectories[trajectory.id] = trajectory
        reflections += await get_lines(context, manifest.outputs["reflections"], without_diagnosis)
    return _Inputs(
        manifests=[*mapped, reduced],
        trajectories=trajectories,
        reflections=sorted(reflections, key=lambda reflection: reflection.id),
        updates=await get_lines(context, reduced.outputs["updates"], update_of),
        retention=json.loads(await context.store.aget_blob(reduced.outputs["retention"])),
    )


async def _recorded(context: WorkContext, done: _Finished) -> dict[str, list[CallRow]]:
    """The recorded calls of the whole iteration, by step. Read last: nothing before needs them, and they
    are 5 MiB of a batch of 10,000."""
    rows: dict[str, list[CallRow]] = {name: [] for name in FINISH.waits_for}
    for manifest in done.inputs.manifests:
        rows[manifest.kind] += decode_rows(await context.store.aget_blob(manifest.outputs["calls"]))
    return {**rows, FINISH.name: done.asker.rows}


async def _apply(
    context: WorkContext,
    asker: Asker,
    plan: IterationPlan,
    before: Any,
    shown: Sequence[Rendered],
    inputs: _Inputs,
) -> _Applied:
    method, after = context.method, before
    for one in shown:
        updates, reflections = of_text(inputs.updates, shown, one), of_text(inputs.reflections, shown, one)
        after = method.apply(after, updates, reflections, iteration=plan.iteration, ids=one.ids)
    refusals = await _refused(context, before, after, inputs)
    after = method.with_refusals(after, refusals)
    trying = method.verification(
        after,
        trajectories=inputs.trajectories,
        budget_tokens=plan.render_token_budget,
        verify=plan.verify,
    )
    tried = await run_verification(context, asker, plan, trying)
    return _Applied(tried.artifact, refusals, tried)


async def _refused(context: WorkContext, before: Any, after: Any, inputs: _Inputs) -> list[Refusal]:
    """The new entries that may not be rendered: they repeat private data, or give orders."""
    method, train = context.method, await context.data.train()
    new = method.new_entries(before, after)
    if train.recordings:
        read = {trajectory.example_id for trajectory in inputs.trajectories.values()}
        return await asyncio.to_thread(checked, method, after, new, train, read)
    corpus = await leak_corpus(context)
    return await asyncio.to_thread(method.checks, after, new, corpus=corpus)


async def _write(context: WorkContext, step: Step, plan: IterationPlan, done: _Finished) -> StepSummary:
    own = StepSummary(step=step.name, kind=step.kind, counts=done.asker.counts(), usage=done.asker.usage())
    parts = [*done.inputs.manifests, own]
    artifact = await context.store.aput_blob(done.applied.ledger.to_json())
    by_step = await _recorded(context, done)
    rows = [row for made in by_step.values() for row in made]
    modelled = round(modelled_seconds(rows, context.slots), 6)
    walls = {**_step_walls(done.inputs.manifests), step.kind: context.clock() - done.started}
    wall = sum(walls.values())
    learning = [row for row in rows if not row.stage.startswith("select")]
    record = {
        **_record(context, plan, done, parts, rows),
        **happened(by_step, context.slots),
        "modelledSeconds": modelled,
        "wallSeconds": round(wall, 6),
        "stepSeconds": {name: round(seconds, 6) for name, seconds in walls.items()},
    }
    examples = max(1, total(parts, "examples"))
    summary = StepSummary(
        step=step.name,
        kind=step.kind,
        outputs={
            "artifact": artifact,
            "playbook": await context.store.aput_blob(done.rendered.text.encode()),
            "calls": await context.store.aput_blob(done.asker.encode()),
            "record": await context.store.aput_blob(json.dumps(record, sort_keys=True).encode()),
            "engine": engine_digest(context.spec),
            **await _found(context, done.rendered.text),
        },
        counts={
            "iteration": plan.iteration,
            "examples": total(parts, "examples"),
            "correct": total(parts, "correct"),
            "failed": total(parts, "failed"),
            "rollouts": total(parts, "rollouts"),
            "evaluated": sum(row.stage.startswith("select") for row in rows),
            "rendered": len(done.rendered.included),
            "lessons": record["retention"]["distinct"],
            "carried": record["retention"]["carried"],
            "promptTokens": sum(row.prompt_tokens for row in learning),
            "cachedTokens": sum(row.cached_tokens for row in learning),
        },
        scores={**done.scores, "train": total(parts, "correct") / examples},
        usage=total_usage(parts),
        seconds={"wall": round(wall, 6), "modelled": modelled},
        observations=((plan.batch_size, round(typical_seconds(learning, context.slots), 6)),),
    )
    return await write_receipt(context, summary)


async def _found(context: WorkContext, text: str) -> dict[str, str]:
    """The digest of what the text repeats of the rows, which entries of the start may do; nothing where it does not."""
    found = await repeated(context, text)
    return {"findings": await context.store.aput_blob(findings_json(found).encode())} if found else {}


def _step_walls(manifests: list[StepSummary]) -> dict[str, float]:
    """Seconds of the steps before: map's shards run side by side, so the longest counts."""
    walls: dict[str, float] = {}
    for manifest in manifests:
        walls[manifest.kind] = max(walls.get(manifest.kind, 0.0), manifest.seconds["wall"])
    return walls


def _record(
    context: WorkContext,
    plan: IterationPlan,
    done: _Finished,
    parts: list[StepSummary],
    rows: list[CallRow],
) -> dict[str, Any]:
    """What the report shows of this iteration; no text of data or prompts."""
    usage = total_usage(parts)
    applied = done.applied
    levels = done.inputs.retention["levels"]
    carried = levels[-1]["carried"] if levels else 0
    return {
        "calls": len(rows),
        "hits": sum(row.hit for row in rows),
        "tokens": sum(role.tokens for role in usage.values()),
        "rollouts": total(parts, "rollouts"),
        "aggregatorCalls": sum(row.stage.startswith(("reduce", "merge", "summary")) for row in rows),
        "lostCalls": total(parts, "lostCalls"),
        "unknownIds": total(parts, "unknownIds"),
        "failed": total(parts, "failed"),
        "repaired": total(parts, "repaired"),
        "lost": total(parts, "lost"),
        "retention": {
            "levels": levels,
            "distinct": levels[-1]["lessons"] if levels else 0,
            "carried": carried,
            "rendered": _rendered_lessons(context, done),
            "leftOut": total(parts, "leftOut"),
            "byRarity": done.inputs.retention["byRarity"],
        },
        "verification": {
            "candidates": applied.tried.candidates,
            "replayed": applied.tried.judged,
            "verified": applied.tried.passed,
            "refused": applied.tried.judged - applied.tried.passed,
            "leaks": sum(refusal.kind == "leak" for refusal in applied.refusals),
            "injections": sum(refusal.kind == "injection" for refusal in applied.refusals),
        },
        "playbookTokens": done.rendered.tokens,
        "batch": plan.batch_size,
        **({"builtOn": done.built_on} if done.built_on else {}),
    }


def _rendered_lessons(context: WorkContext, done: _Finished) -> int:
    """Distinct lessons of this iteration that stand in the rendered playbook."""
    from combee.work.retention import level_report

    views = context.method.views(done.applied.ledger, done.rendered, verify="Replay")
    texts = {view.text for view in views if view.rendered}
    shown = [update for update in done.inputs.updates if update.text in texts]
    reflections = [reflection for reflection in done.inputs.reflections if reflection.lessons]
    return level_report(context.method, "rendered", 0, 0, reflections, shown).carried
