"""What is said of a run's place in its queue, and of Jobs that the cluster put into one. Pure."""

from __future__ import annotations

from combee.api.run import RunSpec
from combee.plan.cluster.seen import QueueSeen


def not_admitted(spec: RunSpec, queue: QueueSeen) -> str:
    """Return the sentence about a run that its queue does not let go on."""
    name = spec.queue.name if spec.queue is not None else ""
    if queue.lacks:
        return f"queue {name} cannot be asked: {queue.lacks}"
    because = f": {queue.because}" if queue.because else ""
    if queue.evicted:
        return f"queue {name} took back what it had admitted{because}"
    return f"queue {name} has not admitted the run yet{because}"


def held_back(job: str, queue: str) -> str:
    """Return the sentence about a Job that is suspended, as none of ours is made. ``queue``: the one that the
    cluster put it into; empty where it is in none."""
    if not queue:
        return f"Job {job} is suspended and in no queue: see who suspends Jobs here"
    return (
        f"queue {queue} has not admitted Job {job} yet: the cluster put the Job into it, the run did not "
        "(`kubectl describe workloads` says why, docs/gitops.md how to keep Kueue from it)"
    )
