"""Replay: an entry of one source earns its place by fixing its own example and harming no control.

A replay is a rollout with the playbook plus this one entry, and is charged as one. Own examples
first, all in parallel; controls only for those that were fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from combee.methods.protocol import ReplayRequest, Verdict
from combee.plan.types import IterationPlan
from combee.records import Example, Trajectory, example_of
from combee.work.asker import Asker
from combee.work.context import WorkContext
from combee.work.pool import pooled
from combee.work.rollouts import rollout


async def replay_all(
    context: WorkContext,
    asker: Asker,
    plan: IterationPlan,
    ledger: Any,
    trajectories: Mapping[str, Trajectory],
    examples: Mapping[str, Example],
) -> list[Verdict]:
    """A verdict for every candidate of the ledger. A replay whose call is lost has no verdict: the
    entry stays unverified and is a candidate again."""
    method = context.method
    candidates = method.replay_candidates(ledger, trajectories=trajectories)
    requests = [
        method.replay_request(
            ledger,
            digest,
            trajectories=trajectories,
            budget_tokens=plan.render_token_budget,
            verify=plan.verify,
        )
        for digest in candidates
    ]
    right = sorted(trajectory.example_id for trajectory in trajectories.values() if trajectory.correct)
    own = await _own_examples(context, asker, plan, requests, examples)
    fixed = [
        request for request, done in zip(requests, own, strict=True) if done is not None and done.correct
    ]
    controls = {
        request.entry_digest: method.replay_controls(request.entry_digest, right, source=request.source)
        for request in fixed
    }
    harmed = await _controls(context, asker, plan, fixed, controls, examples)
    verdicts = []
    for request, done in zip(requests, own, strict=True):
        if done is None:
            continue
        digest = request.entry_digest
        if digest in controls and digest not in harmed:
            continue
        verdicts.append(
            Verdict(digest, request.source, done.correct, harmed.get(digest, 0), controls.get(digest, ()))
        )
    return verdicts


async def _own_examples(
    context: WorkContext,
    asker: Asker,
    plan: IterationPlan,
    requests: Sequence[ReplayRequest],
    examples: Mapping[str, Example],
) -> list[Trajectory | None]:
    context.progress.begin("replay", len(requests))

    async def one(item: tuple[int, ReplayRequest]) -> Trajectory | None:
        chain, request = item
        example = examples[example_of(request.source)]
        done = await rollout(
            context, asker, example, request.text, stage="replay", chain=chain, epoch=plan.epoch
        )
        context.progress.advance()
        return None if done.error else done

    return await pooled(list(enumerate(requests)), one, width=context.concurrency)


async def _controls(
    context: WorkContext,
    asker: Asker,
    plan: IterationPlan,
    fixed: Sequence[ReplayRequest],
    controls: Mapping[str, tuple[str, ...]],
    examples: Mapping[str, Example],
) -> dict[str, int]:
    """Entry digest -> how many of its controls went wrong; absent when a control's call was lost."""
    jobs = [(request, example_id) for request in fixed for example_id in controls[request.entry_digest]]
    context.progress.begin("controls", len(jobs))

    async def one(item: tuple[int, tuple[ReplayRequest, str]]) -> Trajectory:
        chain, (request, example_id) = item
        done = await rollout(
            context,
            asker,
            examples[example_id],
            request.text,
            stage="controls",
            chain=chain,
            epoch=plan.epoch,
        )
        context.progress.advance()
        return done

    results = await pooled(list(enumerate(jobs)), one, width=context.concurrency)
    harmed = {request.entry_digest: 0 for request in fixed}
    lost: set[str] = set()
    for (request, _), done in zip(jobs, results, strict=True):
        if done.error:
            lost.add(request.entry_digest)
        elif not done.correct:
            harmed[request.entry_digest] += 1
    return {digest: count for digest, count in harmed.items() if digest not in lost}
