"""Runs one step, whatever its kind: all of it on a laptop, one shard of it in a pod."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from combee.errors import BugError
from combee.methods.protocol import Rendered
from combee.plan.types import IterationPlan, Step, StepSummary, add_usage
from combee.steps import DIAGNOSE, EVALUATE, FINISH, KINDS, MAP, PROFILE, REDUCE
from combee.work.context import WorkContext, done_before, total
from combee.work.diagnose import run_diagnose
from combee.work.energy import metered
from combee.work.evaluate import run_evaluate
from combee.work.finish import run_finish
from combee.work.map import help_others, run_map
from combee.work.profile import run_profile
from combee.work.reduce import run_reduce


async def load_artifact(context: WorkContext, digest: str) -> Any:
    """Load the artifact of a digest."""
    return context.method.from_json(await context.store.aget_blob(digest))


async def run_step(
    context: WorkContext, step: Step, plans: Mapping[int, IterationPlan], baseline: str
) -> StepSummary:
    """Run all shards of a step; the receipt of a finished one is returned. ``baseline``: the digest of
    the untouched artifact, which the closing evaluation compares with."""
    plan = plans.get(step.iteration)
    if not KINDS[step.kind].sharded or plan is None:
        return await run_shard(context, replace(step, shards=1), plan, baseline)
    work = await _work(context, step, plan, baseline)
    context.progress.begin(step.kind, plan.batch_size)
    try:
        async with asyncio.TaskGroup() as group:
            shards = [
                group.create_task(_one_shard(replace(work, shard=shard))) for shard in range(step.shards)
            ]
    except BaseExceptionGroup as error_group:
        raise error_group.exceptions[0] from None
    return rolled_up(step, [shard.result() for shard in shards])


async def run_shard(
    context: WorkContext, step: Step, plan: IterationPlan | None, baseline: str, shard: int = 0
) -> StepSummary:
    """Run one shard of a step, as a pod does."""
    if step.kind not in _WORK:
        raise BugError(f"unknown step kind {step.kind}", where=step.name)
    return await _done(await _work(context, step, plan, baseline, shard))


@dataclass(frozen=True, slots=True)
class _Work:
    """One shard of a step with what it works on; a step outside iterations has no plan and no texts."""

    context: WorkContext
    step: Step
    baseline: str
    shard: int
    of: IterationPlan | None = None
    artifact: Any = None
    shown: Sequence[Rendered] = ()

    @property
    def plan(self) -> IterationPlan:
        """The plan of its iteration. Raises BugError where there is none."""
        if self.of is None:
            raise BugError(f"no plan for iteration {self.step.iteration}", where=self.step.name)
        return self.of


async def _work(
    context: WorkContext, step: Step, plan: IterationPlan | None, baseline: str, shard: int = 0
) -> _Work:
    """Return a shard with what its kind of step reads."""
    work = _Work(context, step, baseline, shard, plan)
    if not KINDS[step.kind].planned:
        return work
    artifact, shown = await _shown(context, step, work.plan)
    return replace(work, artifact=artifact, shown=shown)


async def _done(work: _Work) -> StepSummary:
    """Return the shard's summary: the receipt that it left, or the one made now."""
    receipt = await done_before(work.context, work.step.name, min(work.shard, work.step.results - 1))
    return (
        receipt
        if receipt is not None
        else await metered(work.context, work.step, work.shard, lambda: _WORK[work.step.kind](work))
    )


async def _one_shard(work: _Work) -> StepSummary:
    return await metered(work.context, work.step, work.shard, lambda: _WORK[work.step.kind](work))


async def _evaluate(work: _Work) -> StepSummary:
    best = await load_artifact(work.context, work.step.inputs["artifact"])
    return await run_evaluate(work.context, work.step, best, await load_artifact(work.context, work.baseline))


_WORK: Mapping[str, Callable[[_Work], Coroutine[Any, Any, StepSummary]]] = {
    PROFILE.name: lambda work: run_profile(work.context, work.step),
    DIAGNOSE.name: lambda work: run_diagnose(work.context, work.step),
    MAP.name: lambda work: run_map(work.context, work.step, work.plan, work.shard, work.shown),
    REDUCE.name: lambda work: run_reduce(work.context, work.step, work.plan, work.shown, work.shard),
    FINISH.name: lambda work: run_finish(work.context, work.step, work.plan, work.artifact, work.shown),
    EVALUATE.name: _evaluate,
}
"""What each kind of step does; ``publish`` belongs to the operator and has a program of its own."""


async def help_map(context: WorkContext, step: Step, plan: IterationPlan, shard: int) -> int:
    """Help other shards once a map pod's own is done; return how many of their examples it answered."""
    _, shown = await _shown(context, step, plan)
    return await help_others(context, step, plan, shard, shown)


async def _shown(context: WorkContext, step: Step, plan: IterationPlan) -> tuple[Any, list[Rendered]]:
    """Return the artifact of an iteration, and the texts that its agents see."""
    artifact = await load_artifact(context, step.inputs["artifact"])
    # Only a method that offers it is given it: others may come from packages that do not know of it.
    diversity = {"diversity": plan.diversity} if plan.diversity else {}
    return artifact, context.method.working(
        artifact,
        budget_tokens=plan.render_token_budget,
        verify=plan.verify,
        variants=plan.variants,
        **diversity,
    )


def rolled_up(step: Step, shards: list[StepSummary]) -> StepSummary:
    """Return one summary for a step of many shards."""
    names = sorted({name for shard in shards for name in shard.counts} - {"iteration"})
    counts = {"iteration": step.iteration, **{name: total(shards, name) for name in names}}
    return StepSummary(
        step=step.name,
        kind=step.kind,
        counts=counts,
        usage=add_usage(*(shard.usage for shard in shards)),
        seconds={"wall": max(shard.seconds["wall"] for shard in shards)},
    )
