"""From a session to the result's part on serial learning: its curve, its verdict and what it took."""

from __future__ import annotations

import json
from collections.abc import Iterable

from combee.algo.convergence import Point
from combee.algo.gates import score_interval
from combee.api.discipline import curve_is_from_here
from combee.api.run import RunSpec
from combee.clients.store.store import Store
from combee.plan.decide import effective
from combee.plan.diagnosis import Diagnosis, curve_points, words
from combee.plan.money import money_of
from combee.plan.state import RunState, spend_of
from combee.plan.types import StepSummary
from combee.report.parts import CurvePointRecord, DiagnosisRecord, HeadroomRecord, StepRecord
from combee.steps import kind_of


async def diagnosis_of(
    spec: RunSpec,
    state: RunState,
    summaries: Iterable[StepSummary],
    store: Store,
    step: StepRecord | None,
    gpus: float = 0.0,
) -> DiagnosisRecord | None:
    """Return what is known of serial learning; None where nothing was asked, or is known yet. ``step``: the
    record of the step that measured it; ``gpus``: those that the run held on average."""
    diagnosis, done = state.diagnosis, [one for one in summaries if not one.error]
    if diagnosis is None:
        return None
    measured = next((one for one in done if "diagnosis" in one.outputs), None)
    points = await _points(spec, state, diagnosis, measured, store)
    curve = spec.serial_baseline.curve if spec.serial_baseline is not None else ()
    stated = {one.examples: one.seconds for one in curve}
    defaults, plateau = effective(spec, state), diagnosis.plateau_rollouts is not None
    gpu_seconds = round(gpus * measured.seconds["wall"], 3) if measured is not None else 0.0
    seconds = diagnosis.seconds_per_example
    run_seconds = _seconds_per_example(done)
    comparable = seconds and run_seconds and curve_is_from_here(spec) is not False
    speed_up = round(seconds / run_seconds, 3) if comparable and run_seconds else None
    return DiagnosisRecord.of(
        diagnosis.reading,
        verdict=diagnosis.verdict,
        go=diagnosis.go,
        words=words(diagnosis),
        measured=diagnosis.headroom is not None,
        points=tuple(_record(point, stated.get(point.at)) for point in points),
        plateau_at=diagnosis.reading.at if plateau else None,
        plateau_rollouts=diagnosis.plateau_rollouts,
        headroom=None if diagnosis.headroom is None else HeadroomRecord.of(diagnosis.headroom),
        examples=diagnosis.examples,
        rollouts=diagnosis.rollouts,
        tokens=spend_of(measured).tokens if measured is not None else 0,
        gpu_seconds=gpu_seconds or None,
        money=_money(spec, measured, gpu_seconds),
        seconds_per_example=seconds,
        run_seconds_per_example=run_seconds,
        speed_up=speed_up,
        target_score=defaults.stopping.target_score
        if plateau and spec.stopping.target_score is None
        else None,
        rollout_limit=defaults.budget.rollouts if plateau and spec.budget.rollouts is None else None,
        step=step,
    )


async def _points(
    spec: RunSpec, state: RunState, diagnosis: Diagnosis, measured: StepSummary | None, store: Store
) -> list[Point]:
    if measured is not None:
        blob = json.loads(await store.aget_blob(measured.outputs["diagnosis"]))
        return [Point(**point) for point in blob["points"]]
    stated = spec.serial_baseline.curve if spec.serial_baseline is not None else ()
    return curve_points(stated, state.baseline_select, diagnosis.rows) if stated else []


def _record(point: Point, seconds: float | None) -> CurvePointRecord:
    low, high = score_interval(point.score, point.n, 0.95)
    return CurvePointRecord.of(point, low=low, high=high, seconds=seconds)


def _money(spec: RunSpec, measured: StepSummary | None, gpu_seconds: float) -> float | None:
    if spec.prices is None or measured is None:
        return None
    return round(money_of(spec, measured.usage, gpu_seconds), 4)


def _seconds_per_example(done: Iterable[StepSummary]) -> float | None:
    """Return the modelled seconds of learning over the examples learned from; None before any."""
    observed = [one for summary in done if kind_of(summary.kind).sums_up for one in summary.observations]
    examples = sum(size for size, _ in observed)
    return round(sum(seconds for _, seconds in observed) / examples, 6) if examples else None
