"""When a run has pods of the user's image, each for one rollout, and when their next Job is made. Pure.

The pods are all alike and claim what the step at work has to roll out, so one Job serves step after step. It
comes with the first step whose pod is at work, since pods that find nothing to do must never hold a step's
place. Where there is agent-sandbox, a warm pool and a claim for each pod that is to be at work take the place
of the Job.
"""

from __future__ import annotations

from dataclasses import dataclass

from combee.api.run import RunSpec
from combee.plan.cluster.engines import UNPLACED
from combee.plan.cluster.seen import RolloutsMaker, RolloutsSeen, Seen
from combee.plan.types import Step
from combee.steps import KINDS, kind_of

LOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RolloutsWish:
    """The attempts that should be there, and the Jobs and claims that go. ``remove``: whether the Service
    goes, too."""

    attempts: tuple[int, ...] = ()
    delete: tuple[str, ...] = ()
    remove: bool = False
    kind: RolloutsMaker = "Job"
    pool: bool = False
    """whether there should be a warm pool."""


def by_warm_pool(spec: RunSpec, seen: Seen) -> bool:
    """Return whether the run's rollouts are made by a warm pool, and not by Jobs. The queue of a run admitted
    the pods of Jobs: those that wait in a pool would come on top. A Job that is there is not ended for it."""
    jobs = [job for job in seen.rollouts.values() if job.kind == "Job" and not job.over and not job.deleting]
    return seen.warm_pools and spec.queue is None and not jobs


def rollouts_wished(spec: RunSpec, seen: Seen, due: Step) -> RolloutsWish:
    """Return the wished Jobs of rollouts while ``due`` is to be done."""
    if spec.task.container is None:
        return RolloutsWish()
    if not KINDS[due.kind].asks_models or _in_the_way(seen, due):
        return rollouts_down(seen)
    jobs = sorted(seen.rollouts.values(), key=lambda job: job.attempt)
    if not jobs and not _at_work(seen):
        return RolloutsWish(pool=seen.pool)
    pool = by_warm_pool(spec, seen)
    kind: RolloutsMaker = "SandboxClaim" if pool else "Job"
    stuck = [job for job in troubled(seen) if job.trouble is not None and job.trouble.reason in UNPLACED]
    # A claim that found no pod ready waits for one of its own, whose room the pool's may hold: the claim that
    # is made in its place takes one of these.
    again = stuck[: seen.pool_ready] if pool else []
    kept = [job for job in jobs if job.kind == kind and job not in again]
    going = [job for job in kept if not job.over and not job.deleting]
    gone = tuple(job.name for job in jobs if job not in going and not job.deleting)
    if pool:
        missing = max(0, spec.task.container.concurrency - len(going))
    else:
        missing = int(all(job.used_up for job in going))
    next_attempt = jobs[-1].attempt + 1 if jobs else 0
    attempts = (*(job.attempt for job in going), *range(next_attempt, next_attempt + missing))
    return RolloutsWish(attempts, gone, kind=kind, pool=pool)


def rollouts_down(seen: Seen) -> RolloutsWish:
    """Return the wish for no rollouts: their Jobs or claims, the pool and the Service go."""
    present = tuple(sorted(job.name for job in seen.rollouts.values() if not job.deleting))
    return RolloutsWish(delete=present, remove=bool(present) or seen.pool)


def troubled(seen: Seen) -> list[RolloutsSeen]:
    """Return the Jobs of rollouts, or claims, whose pods do not come up."""
    jobs = sorted(seen.rollouts.values(), key=lambda job: job.attempt)
    return [job for job in jobs if job.trouble is not None and not job.over and not job.deleting]


def next_look(seen: Seen) -> float | None:
    """Return the seconds to the next look at Jobs of which no pod ended well yet; None without any."""
    jobs = seen.rollouts.values()
    waiting = any(not (job.proven or job.over or job.held or job.deleting) for job in jobs)
    # No event of the Job says that its pod cannot start.
    return LOOK_SECONDS if waiting else None


def _at_work(seen: Seen) -> bool:
    return any(job.live and job.ready and kind_of(job.kind).rolls_out for job in seen.jobs.values())


def _in_the_way(seen: Seen, due: Step) -> bool:
    """Return whether a pod of the due step finds no place: the pods of rollouts may keep it out."""
    return any(
        job.live and job.step == due.name and job.trouble is not None and job.trouble.reason in UNPLACED
        for job in seen.jobs.values()
    )
