"""What a tick sees of a run on a cluster, as plain data for ``decide_cluster``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from combee.plan.playbook.changed import Looks
from combee.plan.types import MAX_SUMMARY_BYTES, IterationPlan, StepSummary

YIELDED = "Yielded"
"""Marks a step that waited for inputs as long as it may and gave up its place: not a failure."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why something does not run or died, in a stable word and in a sentence that says what to do."""

    reason: str
    """a reason of the conditions PodsPlaced or EnginesReady, or "" where none fits."""
    message: str


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A Job of the run."""

    name: str
    step: str
    """the name of the step it does: its own name at attempt 0."""
    kind: str
    iteration: int = 0
    attempt: int = 0
    completions: int = 1
    ready: int = 0
    """the number of pods at work."""
    succeeded: int = 0
    replaced: int = 0
    """the number of pods that failed, in whose place others are made."""
    since: str = ""
    """when it was made, as the API writes times."""
    complete: bool = False
    ended: bool = False
    """whether its pods ended, one of them well: the Job will be complete in a second or two."""
    failed: str = ""
    """why it failed for good; empty while it has not."""
    disrupted: bool = False
    """whether its pods were only evicted, preempted, deleted or on a lost node, and none died by itself."""
    held: bool = False
    """whether it is suspended, as no Job of ours is made: the cluster put it into a queue, say."""
    queue: str = ""
    """the queue that the cluster put it into, by its label."""
    deleting: bool = False
    expiring: bool = False
    """whether it deletes itself after a while."""
    summary: StepSummary | None = None
    """what a pod left that did the whole step, when it ended; None when none left what can be read."""
    trouble: Trouble | None = None
    message_bytes: int = MAX_SUMMARY_BYTES
    """how many bytes its pod could leave, where it ended: beside many sidecars fewer than else."""

    @property
    def placed(self) -> bool:
        """Whether each of its pods runs or has succeeded. A pod that is being started again does neither."""
        return self.ready + self.succeeded >= self.completions

    @property
    def open(self) -> bool:
        """Whether its Job is not over yet."""
        return self.live or self.ended

    @property
    def live(self) -> bool:
        """Whether it still has something to do."""
        return not (self.complete or self.ended or self.failed or self.deleting)


RolloutsMaker = Literal["Job", "SandboxClaim"]
"""What pods of rollouts come by: a Job makes many, a claim takes one out of a warm pool."""


@dataclass(frozen=True, slots=True)
class RolloutsSeen:
    """A Job of pods that each do one rollout in the user's image, or the claim of one such pod."""

    name: str
    attempt: int
    kind: RolloutsMaker = "Job"
    used_up: bool = False
    """whether each of its pods was begun, so that no more will come."""
    proven: bool = False
    """whether one of its pods ended well, so that the image is there and can be started."""
    over: bool = False
    held: bool = False
    deleting: bool = False
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """An engine of the run."""

    name: str
    replicas: int
    """the number of servers asked for."""
    ready: int = 0
    trouble: Trouble | None = None
    held: bool = False
    """whether a queue holds all its pods back, so that it has no GPU."""
    probed: str = ""
    """why its startup probe failed last, while no server is ready."""
    users: int = 1
    """the runs that use it now, this one among them; more than one only where it is shared."""
    place: int = 0
    """this run's place among them."""
    reachable: bool = True
    """whether the Service is there by which it is asked."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """Where a queue sends the pods of one set, and how many of them it admitted."""

    count: int
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """The run's place in the queue that it names: its Workload in Kueue."""

    made: bool = False
    """whether it has a place."""
    hidden: bool = False
    """whether nobody lets us see if it has one."""
    admitted: bool = False
    evicted: bool = False
    """whether the queue wants back what it had admitted, and waits for it."""
    stale: bool = False
    """whether the place is of no more use: it was finished by somebody, and a new one is needed."""
    because: str = ""
    """why it is not admitted, in Kueue's words; empty while it has said nothing."""
    lacks: str = ""
    """why nothing can be asked for, in words; empty where it can."""
    priority: int = 0
    """of the run's priority class; read while it has no place."""
    ready: bool = False
    """whether Kueue was told that its pods came up."""
    assigned: Mapping[str, Assigned] = field(default_factory=dict)
    """set of pods -> where they go, while it is admitted."""


@dataclass(frozen=True, slots=True)
class ServiceSeen:
    """A model server that the run refers to."""

    url: str = ""
    """its base address; empty while it is not ready."""
    model: str = ""
    waits_for: str = ""
    """what it lacks, in words; empty when it is ready."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One tick's facts. Times are seconds since 1970."""

    now: float
    suspend: bool = False
    jobs: Mapping[str, JobSeen] = field(default_factory=dict)
    """Jobs by object name."""
    engines: Mapping[str, EngineSeen] = field(default_factory=dict)
    """engines by the name that the manifest gives; absent ones are not there."""
    rollouts: Mapping[str, RolloutsSeen] = field(default_factory=dict)
    """Jobs of rollouts, or claims of their pods, by object name; only with a task in a container."""
    warm_pools: bool = False
    """whether rollouts may be made by warm pools of agent-sandbox, which the run's pods know."""
    pool: bool = False
    """whether the run has a warm pool."""
    pool_ready: int = 0
    """how many of its pods are ready to be taken."""
    plans: Mapping[int, IterationPlan] = field(default_factory=dict)
    """the frozen plan of the iteration under way, where there is one."""
    services: Mapping[str, ServiceSeen] = field(default_factory=dict)
    """engine -> the server that its ``ref`` names; empty while nothing is to be asked."""
    looks: Looks | None = None
    """what its Playbook knows of heldOuts; None where nothing is asked about them."""
    fetching: Mapping[str, Trouble] = field(default_factory=dict)
    """engine -> the state of the Job that fetches its weights, until it is complete."""
    queue: QueueSeen | None = None
    """the run's place in its queue; None where it names none."""
