"""Where the time went and what went wrong, as the figures and tables of the report share it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from combee.algo.grouping import grouped
from combee.report.parts import Servers
from combee.report.result import IterationRecord, Result, StageTime
from combee.steps import DIAGNOSE, EVALUATE, LEADING, PROFILE, order_of

LEARNING = (*LEADING, "verification", "select")
"""The parts of an iteration as a reader sees them; of its last step, those that call models."""


def stage_sums(result: Result) -> tuple[StageTime, ...]:
    """Return every stage of the whole run, in the order in which they first ran, profile first, evaluation
    last. Quantiles are the means of the iterations', weighted by calls."""
    stages = grouped(_all_stages(result), lambda stage: (stage.step, stage.stage))
    return tuple(_sum(stages[key]) for key in sorted(stages, key=lambda key: order_of(key[0])))


def _all_stages(result: Result) -> Iterable[StageTime]:
    if result.profile:
        yield from result.profile.stages
    if result.diagnosis and result.diagnosis.step:
        yield from result.diagnosis.step.stages
    for it in result.iterations:
        yield from it.stages
    if result.evaluation:
        yield from result.evaluation.stages


def _sum(stages: list[StageTime]) -> StageTime:
    calls = sum(stage.calls for stage in stages)

    def mean(name: str) -> float:
        return sum(float(getattr(stage, name)) * stage.calls for stage in stages) / max(1, calls)

    return StageTime(
        step=stages[0].step,
        stage=stages[0].stage,
        calls=calls,
        scheduled_seconds=sum(stage.scheduled_seconds for stage in stages),
        p50=mean("p50"),
        p90=mean("p90"),
        p99=mean("p99"),
        max=max(stage.max for stage in stages),
        prompt_tokens=sum(stage.prompt_tokens for stage in stages),
        cached_tokens=sum(stage.cached_tokens for stage in stages),
        cut=sum(stage.cut for stage in stages),
        unparsable=sum(stage.unparsable for stage in stages),
        in_flight=batches(stages),
        servers=_seen([stage.servers for stage in stages if stage.servers is not None]),
    )


def _seen(parts: list[Servers]) -> Servers | None:
    if not parts:
        return None
    looks = sum(part.looks for part in parts)
    return Servers(
        looks=looks,
        waiting=sum(part.waiting * part.looks for part in parts) / looks,
        waiting_most=max(part.waiting_most for part in parts),
        kv_use_most=max((part.kv_use_most for part in parts if part.kv_use_most is not None), default=None),
        prompt_tokens=sum(part.prompt_tokens for part in parts),
        cached_tokens=sum(part.cached_tokens for part in parts),
    )


def batches(stages: Iterable[StageTime]) -> dict[str, int]:
    """Return the calls of all stages by the batch that they joined, the smallest first."""
    total: Counter[str] = Counter()
    for stage in stages:
        total.update(stage.in_flight)
    return {power: total[power] for power in sorted(total, key=int)}


def step_walls(result: Result) -> dict[str, float]:
    """Return the wall-clock seconds by step, over the whole run."""
    walls: dict[str, float] = {}
    if result.profile:
        walls[PROFILE.name] = result.profile.wall_seconds
    if result.diagnosis and result.diagnosis.step:
        walls[DIAGNOSE.name] = result.diagnosis.step.wall_seconds
    for it in result.iterations:
        for step, seconds in it.step_seconds.items():
            walls[step] = walls.get(step, 0.0) + seconds
    if result.evaluation:
        walls[EVALUATE.name] = result.evaluation.wall_seconds
    return walls


def parts(it: IterationRecord) -> dict[str, float]:
    """Return the seconds of an iteration's critical path by ``LEARNING`` part; ``other`` is the rest."""
    seconds = dict.fromkeys(LEARNING, 0.0)
    for stage in it.stages:
        name = (
            stage.step if stage.step in seconds else "select" if stage.stage == "select" else "verification"
        )
        seconds[name] += stage.scheduled_seconds
    return {**seconds, "other": max(0.0, it.wall_seconds - sum(seconds.values()))}
