"""finish: the last step of an iteration. It applies, checks, replays, renders, scores select, and
rolls the receipts of the iteration up into one summary.

It leaves ``artifact`` (canonical JSON), ``playbook`` (the rendered text) and ``record`` (what the
report shows of the iteration).
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain as chained
from typing import Any

from combee.algo.seeds import digest_of
from combee.methods.findings import findings_json
from combee.methods.protocol import Proposals, Refusal, Rendered
from combee.methods.verification import Verified
from combee.plan.engine import engine_digest
from combee.plan.types import EDIT, IterationPlan, Step, StepSummary, add_usage
from combee.records import Reflection, Trajectory
from combee.steps import FINISH, KINDS, MAP, PROFILE, REDUCE
from combee.work.asker import Asker, CallRow, decode_rows
from combee.work.callgraph import load_seconds, modelled_seconds
from combee.work.context import (
    WorkContext,
    get_lines,
    held_out_split,
    put_json,
    read_receipt,
    require_receipts,
    total,
    write_receipt,
)
from combee.work.decode import outcome_of, update_of, without_diagnosis
from combee.work.happened import happened
from combee.work.passages import checked, leak_corpus, repeated
from combee.work.proofs import unproved
from combee.work.retention import Lessons
from combee.work.rollouts import evaluate, mean, mean_partial
from combee.work.variants import of_text
from combee.work.verify import Question, run_verification

ON_SELECT = ("select", "drop-one")
"""What the stages begin with whose rollouts are on rows of select; they are no matter of the batch."""


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What the earlier steps left."""

    receipts: list[StepSummary]
    trajectories: dict[str, Trajectory]
    reflections: list[Reflection]
    updates: list[Any]
    retention: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Applied:
    """The ledger after this iteration, and what happened on the way."""

    ledger: Any
    refusals: list[Refusal]
    verified: Verified[Any]
    proposals: Proposals


async def run_finish(
    context: WorkContext, step: Step, plan: IterationPlan, ledger: Any, shown: Sequence[Rendered]
) -> StepSummary:
    """Finish an iteration. ``shown``: the texts that its agents saw."""
    started = context.clock()
    inputs = await _read(context, step, plan)
    asker = context.asker(plan)
    applied = await _apply(context, asker, plan, ledger, shown, inputs)
    if plan.evaluate and await _ends_epoch(context, plan):
        start = await _start_scores(context, step)
        verified = await _without_harm(context, asker, plan, applied.verified, start)
        applied = replace(applied, ledger=verified.artifact, verified=verified)
    budget_tokens = plan.render_token_budget
    rendered = context.method.render(applied.ledger, budget_tokens=budget_tokens, verify=plan.verify)
    scores: dict[str, float] = {}
    if plan.evaluate:
        select, _ = await held_out_split(context)
        known = applied.verified.known
        evaluated = await evaluate(context, asker, select, rendered.shown, stage="select", known=known)
        scores["select"] = mean(evaluated.by_cluster)
        if evaluated.partial is not None:
            scores["partialSelect"] = evaluated.partial
    if plan.diversity is not None:
        weights = context.method.edit_weights(applied.ledger)
        scores |= {f"{EDIT}{name}": round(weight, 4) for name, weight in weights.items()}
    if (partial := mean_partial(t.partial for t in inputs.trajectories.values())) is not None:
        scores["partialTrain"] = partial
    iteration = _Iteration(plan, inputs, applied, rendered, asker, scores, started, shown)
    return await _write(context, step, iteration)


@dataclass(frozen=True, slots=True)
class _Iteration:
    """What an iteration did, from which its summary is made."""

    plan: IterationPlan
    inputs: _Inputs
    applied: _Applied
    rendered: Rendered
    asker: Asker
    scores: dict[str, float]
    started: float
    shown: Sequence[Rendered]
    """the texts that its agents saw."""

    def total(self, count: str) -> int:
        """Return one count, added up over the earlier steps and this one."""
        return total(self.inputs.receipts, count) + self.asker.counts().get(count, 0)


async def _read(context: WorkContext, step: Step, plan: IterationPlan) -> _Inputs:
    receipts = {
        name: await require_receipts(context, step.inputs[name], plan.shards if KINDS[name].sharded else 1)
        for name in FINISH.waits_for
    }
    mapped, (reduced,) = receipts[MAP.name], receipts[REDUCE.name]
    trajectories: dict[str, Trajectory] = {}
    reflections: list[Reflection] = []
    for receipt in mapped:
        for trajectory in await get_lines(context, receipt.outputs["trajectories"], outcome_of):
            trajectories[trajectory.id] = trajectory
        reflections += await get_lines(context, receipt.outputs["reflections"], without_diagnosis)
    return _Inputs(
        receipts=[one for shards in receipts.values() for one in shards],
        trajectories=trajectories,
        reflections=sorted(reflections, key=lambda reflection: reflection.id),
        updates=await get_lines(context, reduced.outputs["updates"], update_of),
        retention=json.loads(await context.store.aget_blob(reduced.outputs["retention"])),
    )


async def _recorded(context: WorkContext, iteration: _Iteration) -> dict[str, list[CallRow]]:
    """Return the recorded calls of the whole iteration, by step. They are read last: nothing needs them
    earlier, and for a batch of 10,000 they take 5 MiB."""
    rows: dict[str, list[CallRow]] = {name: [] for name in FINISH.waits_for}
    for receipt in iteration.inputs.receipts:
        if KINDS[receipt.kind].asks_models:
            rows[receipt.kind] += decode_rows(await context.store.aget_blob(receipt.outputs["calls"]))
    return {**rows, FINISH.name: iteration.asker.rows}


async def _apply(
    context: WorkContext,
    asker: Asker,
    plan: IterationPlan,
    before: Any,
    shown: Sequence[Rendered],
    inputs: _Inputs,
) -> _Applied:
    method, after = context.method, before
    for text in shown:
        updates, reflections = of_text(inputs.updates, shown, text), of_text(inputs.reflections, shown, text)
        after = method.apply(after, updates, reflections, iteration=plan.iteration, ids=text.ids)
    proposals = method.proposals(before, after, inputs.updates, shown)
    refusals = await _refused(context, before, after, inputs)
    after = method.with_refusals(after, refusals)
    verifying = method.verification(
        after,
        trajectories=await _with_inputs(context, inputs.trajectories),
        budget_tokens=plan.render_token_budget,
        verify=plan.verify,
    )
    known = await _known(context, plan, shown, inputs.trajectories)
    verified = await run_verification(context, asker, plan, verifying, known)
    return _Applied(verified.artifact, refusals, verified, proposals)


async def _known(
    context: WorkContext,
    plan: IterationPlan,
    shown: Sequence[Rendered],
    trajectories: Mapping[str, Trajectory],
) -> dict[Question, Trajectory]:
    """Return what the map's rollouts answered; a recording answered no question of this run."""
    train = await context.data.train()
    digests = {one.id: one.digest for one in train.examples if one.id not in train.recordings}
    return {
        (one.example_id, digests[one.example_id], text.shown, plan.epoch): one
        for text in shown
        for one in of_text(trajectories.values(), shown, text)
        if one.example_id in digests and not one.error
    }


async def _ends_epoch(context: WorkContext, plan: IterationPlan) -> bool:
    return plan.offset + plan.batch_size >= (await context.data.train()).places


async def _without_harm(
    context: WorkContext,
    asker: Asker,
    plan: IterationPlan,
    verified: Verified[Any],
    start: Mapping[str, float],
) -> Verified[Any]:
    """Return what was verified, without what the end of the epoch shows to harm."""
    dropping = context.method.dropping(
        verified.artifact, start=start, budget_tokens=plan.render_token_budget, verify=plan.verify
    )
    dropped = await run_verification(context, asker, plan, dropping, {})
    return replace(verified, artifact=dropped.artifact, known={**verified.known, **dropped.known})


async def _start_scores(context: WorkContext, step: Step) -> dict[str, float]:
    """Return what each row of select scored in profile, by id; nothing where an earlier version left none."""
    profile = step.inputs.get(PROFILE.name)
    receipt = await read_receipt(context, profile) if profile else None
    if receipt is None or "scores" not in receipt.outputs:
        return {}
    scores: dict[str, float] = json.loads(await context.store.aget_blob(receipt.outputs["scores"]))
    return scores


async def _with_inputs(context: WorkContext, trajectories: Mapping[str, Trajectory]) -> dict[str, Trajectory]:
    """Return the trajectories with what their examples state, which the split holds in memory anyway."""
    inputs = {example.id: example.input for example in (await context.data.train()).examples}
    return {
        name: replace(trajectory, input=inputs.get(trajectory.example_id, ""))
        for name, trajectory in trajectories.items()
    }


async def _refused(context: WorkContext, before: Any, after: Any, inputs: _Inputs) -> list[Refusal]:
    """Return the new entries that may not be rendered, since they repeat private data, give orders, or are
    programs that do not pass their own tests."""
    method, train = context.method, await context.data.train()
    new = method.new_entries(before, after)
    if train.recordings:
        read = {trajectory.example_id for trajectory in inputs.trajectories.values()}
        refused = await asyncio.to_thread(checked, method, after, new, train, read)
    else:
        corpus = await leak_corpus(context)
        refused = await asyncio.to_thread(method.checks, after, new, corpus=corpus)
    return [*refused, *await unproved(context, after, new, refused)]


async def _write(context: WorkContext, step: Step, iteration: _Iteration) -> StepSummary:
    plan, inputs, asker = iteration.plan, iteration.inputs, iteration.asker
    usage = add_usage(*(receipt.usage for receipt in inputs.receipts), asker.usage())
    text = iteration.rendered.shown.text
    by_step = await _recorded(context, iteration)
    took, rows = load_seconds(by_step.values(), context.slots), list(chained(*by_step.values()))
    walls = {**_step_walls(inputs.receipts), step.kind: context.clock() - iteration.started}
    wall = round(sum(walls.values()), 6)
    learned = [without_select(step_rows) for step_rows in by_step.values()]
    learning = list(chained(*learned))
    record = {
        **_record(context, iteration, sum(role.tokens for role in usage.values()), rows),
        **happened(by_step, context.slots),
        "modelledSeconds": took["modelled"],
        "wallSeconds": wall,
        "stepSeconds": {name: round(seconds, 6) for name, seconds in walls.items()},
    }
    summary = StepSummary(
        step=step.name,
        kind=step.kind,
        outputs={
            "artifact": await context.store.aput_blob(iteration.applied.ledger.to_json()),
            "playbook": await context.store.aput_blob(text.encode()),
            "shown": digest_of([one.shown.text for one in iteration.shown]),
            "calls": await context.store.aput_blob(asker.encode()),
            "record": await put_json(context, record),
            "engine": engine_digest(context.spec),
            **await _findings(context, text),
        },
        counts={
            "iteration": plan.iteration,
            **{name: iteration.total(name) for name in ("examples", "correct", "failed", "rollouts")},
            "evaluated": len(rows) - len(learning),
            "rendered": len(iteration.rendered.included),
            "playbookTokens": iteration.rendered.tokens,
            **_lesson_counts(record),
            "calls": len(learning),
            "promptTokens": sum(row.prompt_tokens for row in learning),
            "cachedTokens": sum(row.cached_tokens for row in learning),
        },
        scores={
            **iteration.scores,
            "train": iteration.total("correct") / max(1, iteration.total("examples")),
        },
        usage=usage,
        seconds={"wall": wall, **took},
        observations=((plan.batch_size, _modelled(learned, context.slots)),),
    )
    return await write_receipt(context, summary)


def _lesson_counts(record: Mapping[str, Any]) -> dict[str, int]:
    """Return what a summary counts of lessons and proposals."""
    retention, proposals = record["retention"], record["proposals"]
    counts = {"lessons": retention["distinct"], "carried": retention["carried"]}
    return counts | {name: count for name, count in proposals.items() if count}


def _modelled(steps: Iterable[list[CallRow]], slots: int) -> float:
    """Return the modelled seconds of steps, which follow each other."""
    return round(sum(modelled_seconds(rows, slots) for rows in steps), 6)


def without_select(rows: Sequence[CallRow]) -> list[CallRow]:
    """Return the calls that learn; scoring select is no part of learning."""
    return [row for row in rows if not row.stage.startswith(ON_SELECT)]


async def _findings(context: WorkContext, text: str) -> dict[str, str]:
    """Return the digest of what the text repeats of the rows; only entries of the start may repeat any."""
    findings = await repeated(context, text)
    return {"findings": await context.store.aput_blob(findings_json(findings).encode())} if findings else {}


def _step_walls(receipts: list[StepSummary]) -> dict[str, float]:
    """Return the seconds of the earlier steps; map's shards run side by side, so the longest counts."""
    walls: dict[str, float] = defaultdict(float)
    for receipt in receipts:
        walls[receipt.kind] = max(walls[receipt.kind], receipt.seconds["wall"])
    return walls


def _record(context: WorkContext, iteration: _Iteration, tokens: int, rows: list[CallRow]) -> dict[str, Any]:
    """Return what the report shows of this iteration; it holds no text of data or prompts."""
    applied, verified = iteration.applied, iteration.applied.verified
    levels, shown = iteration.inputs.retention["levels"], iteration.shown
    counts = ("rollouts", "lostCalls", "unknownIds", "failed", "repaired", "lost", "cut", "unparsable")
    return {
        **{name: iteration.total(name) for name in counts},
        "calls": len(rows),
        "hits": sum(row.hit for row in rows),
        "tokens": tokens,
        "aggregatorCalls": sum(row.role == "proposer" and row.stage != MAP.name for row in rows),
        "retention": {
            "levels": levels,
            "distinct": levels[-1]["lessons"] if levels else 0,
            "carried": levels[-1]["carried"] if levels else 0,
            "rendered": _rendered_lessons(context, iteration),
            "leftOut": iteration.total("leftOut"),
            "byRarity": iteration.inputs.retention["byRarity"],
        },
        "verification": {
            "candidates": verified.candidates,
            "replayed": verified.decided,
            "verified": verified.passed,
            "refused": verified.decided - verified.passed,
            "leaks": sum(refusal.kind == "leak" for refusal in applied.refusals),
            "injections": sum(refusal.kind == "injection" for refusal in applied.refusals),
        },
        "proposals": {"proposed": applied.proposals.made, "repeated": applied.proposals.repeated},
        "playbookTokens": iteration.rendered.tokens,
        "batch": iteration.plan.batch_size,
        **({"builtOn": [text.variant for text in shown]} if len(shown) > 1 else {}),
    }


def _rendered_lessons(context: WorkContext, iteration: _Iteration) -> int:
    """Return how many distinct lessons of this iteration stand in the rendered playbook."""
    views = context.method.views(iteration.applied.ledger, iteration.rendered, verify="Replay")
    texts = {view.text for view in views if view.rendered}
    updates = [update for update in iteration.inputs.updates if update.text in texts]
    reflections = [reflection for reflection in iteration.inputs.reflections if reflection.lessons]
    carried = context.method.carried_all(reflections, updates)
    return Lessons.of(reflections).level("rendered", 0, 0, carried).carried
