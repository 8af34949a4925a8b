"""What a tick sees of a run on a cluster, as plain data: the Snapshot that ``decide_cluster`` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from combee.plan.types import IterationPlan, StepSummary

YIELDED = "Yielded"
"""A step that waited for inputs as long as it may and let its place go: not a failure."""


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
    """name of the step it does: its own name at attempt 0."""
    kind: str
    iteration: int = 0
    attempt: int = 0
    completions: int = 1
    ready: int = 0
    """pods at work."""
    succeeded: int = 0
    complete: bool = False
    ended: bool = False
    """its one pod ended well: the Job will be complete in a second or two."""
    failed: str = ""
    """why it failed for good; empty while it has not."""
    disrupted: bool = False
    """its pods were taken away and none died by itself: evicted, preempted, deleted, or on a lost node."""
    held: bool = False
    """held back by a queue: not admitted yet."""
    deleting: bool = False
    expiring: bool = False
    """it takes itself away after a while."""
    summary: StepSummary | None = None
    """what the pod of a one-pod Job left when it ended; None when it left nothing that can be read."""
    trouble: Trouble | None = None

    @property
    def placed(self) -> bool:
        """Whether each of its pods runs or has run. A pod that is being started again is not."""
        return self.ready + self.succeeded >= self.completions

    @property
    def open(self) -> bool:
        """Whether its Job is not over yet."""
        return self.live or self.ended

    @property
    def live(self) -> bool:
        """Whether it still has something to do."""
        return not (self.complete or self.ended or self.failed or self.deleting)


@dataclass(frozen=True, slots=True)
class RolloutsSeen:
    """A Job of pods that each do one rollout in the user's image."""

    name: str
    attempt: int
    used_up: bool = False
    """each of its pods was begun: no more will come."""
    proven: bool = False
    """one of its pods ended well: the image is there and can be started."""
    over: bool = False
    held: bool = False
    deleting: bool = False
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """An engine of the run."""

    name: str
    replicas: int
    """servers asked for."""
    ready: int = 0
    trouble: Trouble | None = None
    probed: str = ""
    """why its startup probe failed last, while no server is ready."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One tick's facts. Times are seconds since 1970."""

    now: float
    suspend: bool = False
    jobs: Mapping[str, JobSeen] = field(default_factory=dict)
    """by object name."""
    engines: Mapping[str, EngineSeen] = field(default_factory=dict)
    """by the name that the manifest gives; absent ones are not there."""
    rollouts: Mapping[str, RolloutsSeen] = field(default_factory=dict)
    """by object name; with a task in a container only."""
    plans: Mapping[int, IterationPlan] = field(default_factory=dict)
    """the frozen plan of the iteration under way, where there is one."""
    fetching: Mapping[str, Trouble] = field(default_factory=dict)
    """engine -> how the Job stands that fetches its weights, until it is complete."""
