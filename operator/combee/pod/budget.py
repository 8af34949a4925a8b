"""The part of the run's remaining budget that one pod may spend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from combee.algo.budget import Limits, Spend
from combee.api.run import Budget, RunSpec
from combee.errors import BugError
from combee.plan.cluster.engines import gpus_in_use
from combee.plan.money import money_of
from combee.plan.state import spend_of
from combee.plan.types import Step, StepSummary, add_usage
from combee.steps import KINDS, kind_of


def spent_before(spec: RunSpec, params: Mapping[str, Any], inputs: Iterable[StepSummary]) -> Spend:
    """Return what the run had spent when this step began.

    The operator says what was spent before the iteration (``spent``: rollouts, tokens, gpuSeconds,
    wallClockSeconds, money); the receipts of the iteration's own steps say what those spent.
    """
    spend = _amounts(params, "spent")
    for summary in inputs:
        own = spend_of(summary)
        spend += Spend(own.rollouts, own.tokens, money=money_of(spec, summary.usage))
    return spend


def with_shards(failed: StepSummary, inputs: Iterable[StepSummary]) -> StepSummary:
    """Return the summary of a step that failed, or passes an error on, with what the shards among its inputs
    spent. Only a finish that did its work adds up an iteration, and a map's Job says nothing."""
    shards = [one for one in inputs if kind_of(one.kind).sharded]
    rollouts = sum(one.counts.get("rollouts", 0) for one in (failed, *shards))
    usage = add_usage(failed.usage, *(one.usage for one in shards))
    return replace(failed, counts={**failed.counts, "rollouts": rollouts}, usage=usage)


def kept_by(params: Mapping[str, Any], parts: int) -> Spend:
    """Return what each of a step's pods may not spend, of what the operator keeps for the closing look. Time
    is not divided: all pods use the same."""
    kept = _amounts(params, "kept")
    return Spend(
        rollouts=-(-kept.rollouts // parts),
        tokens=-(-kept.tokens // parts),
        gpu_seconds=kept.gpu_seconds / parts,
        wall_clock_seconds=kept.wall_clock_seconds,
        money=kept.money / parts,
    )


def gpus_by(spec: RunSpec, step: Step) -> float:
    """Return the GPUs that the run is charged for while a step works: of an engine that several runs use, the
    operator says this run's part. An earlier operator said nothing, and all of them count."""
    stated = step.params.get("gpus")
    try:
        return gpus_in_use(spec, KINDS[step.kind]) if stated is None else float(stated)
    except (TypeError, ValueError):
        raise BugError("gpus is no number", where="COMBEE_STEP") from None


def _amounts(params: Mapping[str, Any], name: str) -> Spend:
    """Return a table of a step's parameters; what an earlier operator did not give is 0."""
    table = params.get(name) or {}
    try:
        return Spend(
            rollouts=int(table.get("rollouts", 0)),
            tokens=int(table.get("tokens", 0)),
            gpu_seconds=float(table.get("gpuSeconds", 0.0)),
            wall_clock_seconds=float(table.get("wallClockSeconds", 0.0)),
            money=float(table.get("money", 0.0)),
        )
    except (AttributeError, TypeError, ValueError):
        raise BugError(f"{name} is no table of numbers", where="COMBEE_STEP") from None


def with_budget(spec: RunSpec, params: Mapping[str, Any]) -> RunSpec:
    """Return ``spec`` with the budget that the operator gives, if any: a run's budget may be raised while
    it works, and the file that shows a pod its run never changes."""
    budget = params.get("budget")
    if budget is None:
        return spec
    try:
        return spec.model_copy(update={"budget": Budget.model_validate(budget)})
    except ValidationError:
        raise BugError("budget is not one of a run", where="COMBEE_STEP") from None


def shared_limits(limits: Limits, spent: Spend, parts: int, index: int) -> Limits:
    """Return limits that let all pods of a step together spend what is left and no more.

    >>> limits, spent = Limits(rollouts=110), Spend(rollouts=100)
    >>> shares = [shared_limits(limits, spent, 3, index).rollouts for index in range(3)]
    >>> shares, sum(share - 100 for share in shares)
    ([104, 103, 103], 10)
    """
    return replace(
        limits,
        rollouts=_part(limits.rollouts, spent.rollouts, parts, index),
        tokens=_part(limits.tokens, spent.tokens, parts, index),
        gpu_seconds=_share(limits.gpu_seconds, spent.gpu_seconds, parts),
        money=_share(limits.money, spent.money, parts),
    )


def _share(limit: float | None, spent: float, parts: int) -> float | None:
    return None if limit is None else spent + max(0.0, limit - spent) / parts


def _part(limit: int | None, spent: int, parts: int, index: int) -> int | None:
    if limit is None:
        return None
    left = max(0, limit - spent)
    return spent + left // parts + (index < left % parts)
