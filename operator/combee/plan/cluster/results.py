"""What a finished Job says of its step, and whether that can be relied on. Pure.

A summary comes out of a pod, and so from anybody who may write into one: it counts only when it is of
its step, of the right types, and holds what the fold over it reads.
"""

from __future__ import annotations

from dataclasses import asdict

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from combee.plan.cluster.seen import YIELDED, JobSeen
from combee.plan.types import StepSummary
from combee.steps import Result, kind_of

_TYPES: TypeAdapter[StepSummary] = TypeAdapter(StepSummary)


def result_of(job: JobSeen) -> StepSummary | None:
    """What came of a Job's step; None while it is not done or says nothing that can be relied on.

    The pods of a map leave their results in the store: it is done when its Job is. The one pod of any
    other step is done when it has ended, which the Job says a second or two later.
    """
    if not (job.complete or job.ended):
        return None
    if kind_of(job.kind).sharded:
        return StepSummary(job.step, job.kind)
    return None if job.summary is None or yielded(job) or not _whole(job, job.summary) else job.summary


def yielded(job: JobSeen) -> bool:
    """Whether its pod waited for inputs as long as it may and let its place go."""
    return job.summary is not None and job.summary.error == YIELDED


def _whole(job: JobSeen, summary: StepSummary) -> bool:
    try:
        # A number that is not one becomes a null, which is none.
        _TYPES.validate_json(to_json(asdict(summary), inf_nan_mode="null"), strict=True)
    except (ValidationError, ValueError):
        return False
    if (summary.step, summary.kind) != (job.step, job.kind) or min(summary.counts.values(), default=0) < 0:
        return False
    needs = Result() if summary.error else kind_of(job.kind).result
    return (
        set(needs.outputs) <= set(summary.outputs)
        and set(needs.counts) <= set(summary.counts)
        and set(needs.scores) <= set(summary.scores)
        and all(summary.counts[name] > 0 for name in needs.not_zero)
    )
