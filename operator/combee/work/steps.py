"""Run one step, whatever its kind: all of it on a laptop, one shard of it in a pod."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from combee.errors import BugError
from combee.methods.protocol import Rendered
from combee.plan.types import IterationPlan, Step, StepSummary
from combee.work.context import WorkContext, total, total_usage
from combee.work.evaluate import run_evaluate
from combee.work.finish import run_finish
from combee.work.map import help_others, run_map
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
    plan = plans.get(step.iteration)
    if step.kind != "map" or plan is None:
        return await run_shard(context, step, plan, baseline)
    _, shown = await _shown(context, step, plan)
    context.progress.begin("map", plan.batch_size)
    try:
        async with asyncio.TaskGroup() as group:
            shards = [
                group.create_task(run_map(context, step, plan, shard, shown)) for shard in range(step.shards)
            ]
    except BaseExceptionGroup as error_group:
        raise error_group.exceptions[0] from None
    return rolled_up(step, [shard.result() for shard in shards])


async def run_shard(
    context: WorkContext, step: Step, plan: IterationPlan | None, baseline: str, shard: int = 0
) -> StepSummary:
    """One shard of a step (only ``map`` has more than one), as a pod does it."""
    if step.kind == "profile":
        return await run_profile(context, step)
    if step.kind == "evaluate":
        artifact = await load_artifact(context, step.inputs["artifact"])
        return await run_evaluate(context, step, artifact, await load_artifact(context, baseline))
    if plan is None:
        raise BugError(f"no plan for iteration {step.iteration}", where=step.name)
    artifact, shown = await _shown(context, step, plan)
    if step.kind == "map":
        return await run_map(context, step, plan, shard, shown)
    if step.kind == "reduce":
        return await run_reduce(context, step, plan, shown)
    if step.kind == "finish":
        return await run_finish(context, step, plan, artifact, shown)
    raise BugError(f"unknown step kind {step.kind}", where=step.name)


async def help_map(context: WorkContext, step: Step, plan: IterationPlan, shard: int) -> int:
    """What a map pod does once its own shard is done; how many examples of other shards it took."""
    _, shown = await _shown(context, step, plan)
    return await help_others(context, step, plan, shard, shown)


async def _shown(context: WorkContext, step: Step, plan: IterationPlan) -> tuple[Any, list[Rendered]]:
    """The artifact of an iteration, and the texts that its agents see."""
    artifact = await load_artifact(context, step.inputs["artifact"])
    return artifact, context.method.working(
        artifact, budget_tokens=plan.render_token_budget, verify=plan.verify, variants=plan.variants
    )


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
