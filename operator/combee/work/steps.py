"""Run one step, whatever its kind: the same function in a pod and on a laptop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from combee.errors import BugError
from combee.plan.types import IterationPlan, Step, StepSummary
from combee.work.context import WorkContext, total, total_usage
from combee.work.evaluate import run_evaluate
from combee.work.finish import run_finish
from combee.work.map import run_map
from combee.work.profile import run_profile
from combee.work.reduce import run_reduce


async def load_artifact(context: WorkContext, digest: str) -> Any:
    """The artifact of a digest."""
    return context.method.from_json(await context.store.aget_blob(digest))


async def run_step(
    context: WorkContext, step: Step, plans: Mapping[int, IterationPlan], baseline: str
) -> StepSummary:
    """All shards of a step; a finished one is found and returned. ``baseline``: digest of the
    untouched artifact (only ``evaluate`` needs it)."""
    if step.kind == "profile":
        return await run_profile(context, step)
    artifact = await load_artifact(context, step.inputs["artifact"])
    if step.kind == "evaluate":
        return await run_evaluate(context, step, artifact, await load_artifact(context, baseline))
    plan = plans[step.iteration]
    shown = context.method.render(artifact, budget_tokens=plan.render_token_budget, verify=plan.verify)
    if step.kind == "map":
        context.progress.begin("map", plan.batch_size)
        try:
            async with asyncio.TaskGroup() as group:
                shards = [
                    group.create_task(run_map(context, step, plan, shard, shown.text))
                    for shard in range(step.shards)
                ]
        except BaseExceptionGroup as error_group:
            raise error_group.exceptions[0] from None
        return rolled_up(step, [shard.result() for shard in shards])
    if step.kind == "reduce":
        return await run_reduce(context, step, plan, shown)
    if step.kind == "finish":
        return await run_finish(context, step, plan, artifact, shown)
    raise BugError(f"unknown step kind {step.kind}", where=step.name)


def rolled_up(step: Step, shards: list[StepSummary]) -> StepSummary:
    """One summary for a step of many shards."""
    names = sorted({name for shard in shards for name in shard.counts} - {"iteration"})
    counts = {"iteration": step.iteration, **{name: total(shards, name) for name in names}}
    return StepSummary(
        step=step.name,
        kind=step.kind,
        counts=counts,
        usage=total_usage(shards),
        seconds={"wall": max(shard.seconds["wall"] for shard in shards)},
    )
