"""From what steps left of the GPUs' counters to the energy of a run and of each prompt that it accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from combee.algo.energy import Interval, used
from combee.plan.types import StepSummary
from combee.report.result import AcceptedPrompt, EnergyUsed
from combee.steps import kind_of

Intervals = Mapping[str, Sequence[Interval]]
"""By step, what its shards left."""


def energy_of(intervals: Intervals, summaries: Iterable[StepSummary]) -> EnergyUsed | None:
    """Return the energy of the finished steps; None where no GPU was read before and after one."""
    done = [one for one in summaries if not one.error and kind_of(one.kind).asks_models]
    read = [one for one in done if used(intervals.get(one.step, ())) is not None]
    joules = used([pair for one in read for pair in intervals[one.step]])
    if joules is None:
        return None
    return EnergyUsed(joules=round(joules, 3), steps=len(read), of_steps=len(done))


def with_joules(
    accepted: Iterable[AcceptedPrompt], intervals: Intervals, summaries: Iterable[StepSummary]
) -> tuple[AcceptedPrompt, ...]:
    """Return the accepted prompts with the energy of the steps up to theirs."""
    listed = list(summaries)

    def by(iteration: int) -> float | None:
        energy = energy_of(intervals, (one for one in listed if _is_by(one, iteration)))
        return energy.joules if energy else None

    return tuple(one.model_copy(update={"joules": by(one.iteration)}) for one in accepted)


def _is_by(summary: StepSummary, iteration: int) -> bool:
    """Return whether a step was done by the end of an iteration, which counts from 1."""
    kind = kind_of(summary.kind)
    return summary.counts["iteration"] < iteration if kind.planned else not kind.looks_at_gate
