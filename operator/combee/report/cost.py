"""What a run cost for each accepted prompt and each point of gain, beside the serial baseline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from combee.algo.budget import Spend
from combee.api.discipline import curve_is_from_here
from combee.api.run import RunSpec
from combee.plan.money import money_of
from combee.plan.state import RunState, after_iteration, after_profile, charge
from combee.plan.types import IterationPlan, StepSummary
from combee.report.parts import DiagnosisRecord
from combee.report.result import AcceptedPrompt, BudgetLine, CostPerPoint, Paired, SerialBaseline, SerialPoint
from combee.report.session import Session
from combee.steps import kind_of

POINTS = 100
"""points in a score of 1."""


def whole_cost(session: Session, gate: Paired | None) -> CostPerPoint | None:
    """Return what a point of the gate half cost; None where nothing was gained."""
    if gate is None or gate.gain <= 0:
        return None
    money = _money(session.run.spec, session.state, session.gpu_seconds)
    cost = _per_point(session.state.spend, gate.gain, money, session.wall_seconds)
    held = round(session.gpu_seconds / (gate.gain * POINTS), 3) if session.gpu_seconds else None
    return cost.model_copy(update={"gpu_seconds": held})


def folded(session: Session) -> Iterator[tuple[IterationPlan, StepSummary, RunState, RunState]]:
    """Yield each finished iteration: its plan, its summary, and the state before and after it. The state is
    folded again, so that it is what the iteration's own decisions saw."""
    good = [one for one in session.summaries.values() if not one.error]
    profile = next((one for one in good if kind_of(one.kind).opens), None)
    if profile is None:
        return
    state = _with_diagnosis(after_profile(RunState(), profile), good)
    ends = [one for one in good if kind_of(one.kind).sums_up]
    for summary in sorted(ends, key=lambda one: one.counts["iteration"]):
        plan, before = session.plans[summary.counts["iteration"]], state
        state = after_iteration(state, plan, summary)
        yield plan, summary, before, state


def _with_diagnosis(state: RunState, summaries: list[StepSummary]) -> RunState:
    """Return the state once the diagnosis, if one was made, is charged."""
    for summary in summaries:
        kind = kind_of(summary.kind)
        state = charge(state, summary) if kind.phase == "Profiling" and not kind.opens else state
    return state


def accepted(session: Session) -> tuple[AcceptedPrompt, ...]:
    """Return the prompts that took the lead on select."""
    return tuple(
        _accepted(session, after, after.best.select)
        for _, _, before, after in folded(session)
        if before.facts and before.facts.select_rows and after.best and after.best != before.best
    )


def _accepted(session: Session, state: RunState, select: float) -> AcceptedPrompt:
    spec, spend, gain = session.run.spec, state.spend, select - state.baseline_select
    money = _money(spec, state)
    return AcceptedPrompt(
        iteration=state.iteration,
        select=select,
        rollouts=int(spend.rollouts),
        tokens=int(spend.tokens),
        wall_seconds=round(spend.wall_clock_seconds, 3),
        money=money,
        cost_per_point=_per_point(spend, gain, money, spend.wall_clock_seconds) if gain > 0 else None,
        serial_seconds=_reached(spec, select),
    )


def _per_point(spend: Spend, gain: float, money: float | None, wall_seconds: float) -> CostPerPoint:
    points = gain * POINTS
    return CostPerPoint(
        tokens=round(spend.tokens / points, 1),
        rollouts=round(spend.rollouts / points, 2),
        wall_seconds=round(wall_seconds / points, 3),
        money=None if money is None else round(money / points, 6),
    )


def _money(spec: RunSpec, state: RunState, gpu_seconds: float = 0.0) -> float | None:
    if spec.prices is None:
        return None
    return round(money_of(spec, state.usage, gpu_seconds), 6)


def serial_baseline(spec: RunSpec, diagnosis: DiagnosisRecord | None) -> SerialBaseline | None:
    """Return the curve that a diagnosis was read from as earlier versions told it; None where it was
    measured, since its seconds are modelled, or where there is none."""
    stated = spec.serial_baseline
    points = () if diagnosis is None or stated is None else diagnosis.points
    curve = tuple(
        SerialPoint(examples=one.at, seconds=one.seconds, score=one.score)
        for one in points
        if one.seconds is not None
    )
    if stated is None or not curve:
        return None
    best = max(one.score for one in curve)
    top, rise = next(one for one in curve if one.score == best), best - curve[0].score
    return SerialBaseline(
        method=stated.method,
        curve=curve,
        converged=best,
        examples_to_converge=top.examples,
        seconds_per_point=round(top.seconds / (rise * POINTS), 3) if rise > 0 else None,
        source=stated.source or "",
        hardware=stated.hardware or "",
        measured_here=curve_is_from_here(spec),
    )


def _reached(spec: RunSpec, score: float) -> float | None:
    """Return the seconds after which the stated curve first scored as much; None where it never did, or was
    measured on other hardware."""
    stated = spec.serial_baseline
    if stated is None or curve_is_from_here(spec) is False:
        return None
    curve = sorted(stated.curve, key=lambda one: (one.examples, one.seconds))
    return next((one.seconds for one in curve if one.score >= score), None)


def with_serial(
    accepted: Iterable[AcceptedPrompt], diagnosis: DiagnosisRecord | None
) -> tuple[AcceptedPrompt, ...]:
    """Return the accepted prompts with the rollouts that measured serial learning took to score as much."""
    points = diagnosis.points if diagnosis is not None and diagnosis.measured else ()

    def reached(score: float) -> int | None:
        return next((point.at for point in points if point.score >= score), None)

    return tuple(one.model_copy(update={"serial_rollouts": reached(one.select)}) for one in accepted)


def budget_lines(session: Session) -> tuple[BudgetLine, ...]:
    """Return what was spent of each limit, the binding one first."""
    spec, spend = session.run.spec, session.state.spend
    budget, prices = spec.budget, spec.prices
    money = round(money_of(spec, session.state.usage, session.gpu_seconds), 4)
    cost = (
        ()
        if prices is None
        else (BudgetLine(name="money", spent=money, limit=budget.money, currency=prices.currency),)
    )
    held = (
        (BudgetLine(name="gpuSeconds", spent=round(session.gpu_seconds, 3), limit=budget.gpu_seconds),)
        if session.gpu_seconds
        else ()
    )
    lines = (
        BudgetLine(name="rollouts", spent=spend.rollouts, limit=budget.rollouts),
        BudgetLine(name="tokens", spent=spend.tokens, limit=budget.tokens),
        BudgetLine(
            name="wallClockSeconds", spent=round(session.wall_seconds, 3), limit=budget.wall_clock_seconds
        ),
        *held,
        *cost,
    )
    return tuple(sorted(lines, key=lambda line: line.name != budget.first))
