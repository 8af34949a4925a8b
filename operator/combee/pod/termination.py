"""What the pods of a run do with their result."""

from __future__ import annotations

from combee.errors import BugError, CombeeError, TransientError, UnreachableError
from combee.plan.types import MAX_SUMMARY_BYTES, StepSummary
from combee.pod.environment import TERMINATION_LOG, Pod
from combee.pod.log import PodLog


def permanent(error: CombeeError) -> bool:
    """Return whether another pod would meet the same error: then it is the step's result."""
    return not isinstance(error, TransientError | BugError | UnreachableError)


def tell(pod: Pod, summary: StepSummary, log: PodLog) -> None:
    """Write a summary as the pod's termination message, where the kubelet reads it."""
    try:
        limit = pod.step.params.get("summaryBytes", MAX_SUMMARY_BYTES)
        pod.settings.path(TERMINATION_LOG).write_bytes(summary.encode(limit))
    except OSError as error:
        log.say("WARNING", f"the termination message cannot be written ({error.strerror})")
