"""What the operator remembers of a run between two ticks: ``status.state``, and nothing else.

It is written with the status in one patch, so it is never behind what the status says. What it does
not hold is derived from the objects that are there. Its names are those of the fields here, and not camelCase
as all others in a status: the version before reads them after a rollback, and a run whose memory an operator
cannot read stands still.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from combee.errors import BugError
from combee.plan.cluster.hardware import EngineGpus
from combee.plan.observed import Observed
from combee.plan.state import RunState
from combee.plan.types import MAX_SUMMARY_BYTES, Clocks, IterationPlan, StepSummary

MEMORY_VERSION = 1
PHASES = ("Profiling", "Learning", "Evaluating", "Publishing", "Complete")
"""Phases of ``RunState``. Only clusters have Publishing: the outcome is known, its playbook being written."""
MAX_NOTE_REASON = 300
"""The most characters of a reason in a note."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The one look at gate."""

    baseline: float
    best: float
    low: float
    high: float
    rows: int
    discordant: int

    @property
    def gain(self) -> float:
        """The best artifact's score minus the start's."""
        return self.best - self.baseline


@dataclass(frozen=True, slots=True)
class IterationNote:
    """One finished iteration, in short."""

    iteration: int
    epoch: int
    batch_size: int
    batch_reason: str
    seconds: float
    calls: int
    tokens: int
    rollouts: int
    artifact: str
    train: float | None = None
    select: float | None = None
    """None where the iteration was not scored. A status keeps no null: what may be one needs a default."""

    @classmethod
    def of(cls, plan: IterationPlan, after: RunState, summary: StepSummary) -> IterationNote:
        """Return the note on an iteration. ``after``: the state that it led to."""
        return cls(
            iteration=plan.iteration,
            epoch=plan.epoch,
            batch_size=plan.batch_size,
            batch_reason=plan.batch_reason[:MAX_NOTE_REASON],
            seconds=summary.seconds.get("wall", 0.0),
            calls=sum(usage.calls for usage in summary.usage.values()),
            tokens=sum(usage.tokens for usage in summary.usage.values()),
            rollouts=summary.counts.get("rollouts", 0),
            train=summary.scores.get("train"),
            select=summary.scores.get("select"),
            artifact=after.artifact,
        )


@dataclass(frozen=True, slots=True)
class Start:
    """The version of the Playbook that learning starts from, as it was active when the run began."""

    digest: str = ""
    """the version's digest; empty where there was none."""
    config_map: str = ""
    content_digests: Mapping[str, str] = field(default_factory=dict)
    """key of the ConfigMap -> the digest of its text, from the version's spec."""
    key: str = ""
    """the key that it starts from; empty where an earlier release noted the start, whose pods are kept."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model server that the run refers to, as it was ready last. The model stays that of the first time:
    answers of two models do not go into one artifact."""

    url: str
    model: str


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of a run. Times are seconds since 1970; 0 means not yet."""

    run: RunState = field(default_factory=RunState)
    started: float = 0.0
    ended: float = 0.0
    active_since: float = 0.0
    """the start of the stretch under way; 0 while suspended or waiting in a queue."""
    active_seconds: float = 0.0
    """the length of the earlier stretches: time suspended or in a queue does not count."""
    attempts: Mapping[str, int] = field(default_factory=dict)
    """unsettled step -> the attempt that counts, where it is not 0."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """unsettled step -> how many of its Jobs failed for good."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """unsettled step -> how many of its finished Jobs left nothing that can be read."""
    in_turn: tuple[str, ...] = ()
    """unsettled steps that are not placed early any more."""
    message_bytes: int = MAX_SUMMARY_BYTES
    """the fewest bytes that a pod of the run could leave: sidecars that the cluster adds are seen only in
    pods that are there."""
    mending: str = ""
    """a settled step that is done again, because a file that it left is damaged."""
    damaged: str = ""
    """the damaged file that was met last, by its path in the store."""
    mended: int = 0
    """how often a step was done again for a damaged file."""
    unplaced_since: float = 0.0
    idle_since: float = 0.0
    """since when no step's pod is at work."""
    engines_since: Mapping[str, float] = field(default_factory=dict)
    """engine -> since when its GPUs are held."""
    engine_users: Mapping[str, int] = field(default_factory=dict)
    """engine -> how many runs have used it since then, where it is more than this one."""
    gpu_seconds: float = 0.0
    """the GPU seconds of the earlier stretches."""
    halfway_since: float = 0.0
    """since when some engines have a node and others find none."""
    let_go_until: float = 0.0
    """until when the engines stay down for another run's."""
    let_goes: int = 0
    """how often they were taken down for that since they were all up."""
    stopped: Clocks | None = None
    """what the clocks showed when learning stopped in place of an iteration; None before, of earlier
    versions, and where a budget ended one."""
    baseline: str = ""
    """the artifact that the run started from."""
    notes: tuple[IterationNote, ...] = ()
    gate: Gate | None = None
    test: float | None = None
    record: str = ""
    """the digest of what evaluate found, example by example."""
    published: str = ""
    """the ConfigMap that holds the best playbook."""
    content_digests: Mapping[str, str] = field(default_factory=dict)
    """key of that ConfigMap -> the digest of what was published there."""
    error: str = ""
    """the code of the error that the run failed with; empty for a step that failed too often."""
    start: Start | None = None
    """where learning starts; only with ``initialPlaybook.activeVersion``."""
    images: Mapping[str, str] = field(default_factory=dict)
    """what the run's pods are made from, pinned when it started."""
    services: Mapping[str, Served] = field(default_factory=dict)
    """engine -> where the server that its ``ref`` names answers."""
    nodes: EngineGpus = field(default_factory=EngineGpus)
    """what the nodes said of the engines' GPUs before the run started."""
    version: int = MEMORY_VERSION

    @property
    def service_urls(self) -> dict[str, str]:
        """engine -> the address of the server that its ``ref`` names."""
        return {name: served.url for name, served in self.services.items()}

    def to_status(self) -> dict[str, Any]:
        """Return the memory as plain JSON values without nulls, which a status does not keep; under 24 KiB
        whatever the run is."""
        dumped: dict[str, Any] = _MEMORY.dump_python(self, mode="json", exclude_none=True)
        run = dumped["run"]
        run["observations"] = [list(observation.values()) for observation in run["observations"]]
        return dumped

    @classmethod
    def from_status(cls, raw: Mapping[str, Any] | None) -> Memory:
        """Return the memory in a status; a fresh one without any. Raises BugError for something else."""
        if not raw:
            return cls()
        try:
            memory = _MEMORY.validate_python(_named(raw))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise _unreadable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        wrong = next((violation for holds, violation in _invariants(memory) if not holds), None)
        if wrong is not None:
            raise _unreadable(wrong)
        return memory

    def attempt(self, step: str) -> int:
        return self.attempts.get(step, 0)

    def again(self, step: str, *, in_turn: bool = False) -> Memory:
        """Return the memory with a step's next attempt; ``in_turn``: it is not placed early any more."""
        turn = (*self.in_turn, step) if in_turn and step not in self.in_turn else self.in_turn
        return replace(self, attempts={**self.attempts, step: self.attempt(step) + 1}, in_turn=turn)

    def failed(self, step: str) -> Memory:
        """Return the memory with one more failed Job of a step, which is tried again."""
        again = self.again(step, in_turn=True)
        return replace(again, failures={**self.failures, step: self.failures.get(step, 0) + 1})

    def missed(self, step: str) -> Memory:
        """Return the memory with one more finished Job that left nothing; its step is done again."""
        again = self.again(step)
        return replace(again, lost={**self.lost, step: self.lost.get(step, 0) + 1})

    def settled(self, steps: Collection[str]) -> Memory:
        """Return the memory without notes on steps whose results are in: else it would always grow."""
        return replace(
            self,
            attempts=_without(self.attempts, steps),
            failures=_without(self.failures, steps),
            lost=_without(self.lost, steps),
            in_turn=tuple(step for step in self.in_turn if step not in steps),
        )

    def paused(self, now: float) -> Memory:
        return replace(self, active_seconds=self.elapsed(now), active_since=0.0)

    def elapsed(self, now: float) -> float:
        """Return how many seconds the run was active. A clock that was set back takes nothing away."""
        return self.active_seconds + (max(0.0, now - self.active_since) if self.active_since else 0.0)


_MEMORY: TypeAdapter[Memory] = TypeAdapter(Memory)
MAX_ITERATIONS = 1_000_000
MAX_ATTEMPTS = 1_000
_OBSERVED = tuple(field.name for field in fields(Observed))


def _without(of: Mapping[str, int], steps: Collection[str]) -> dict[str, int]:
    return {step: number for step, number in of.items() if step not in steps}


def _named(raw: Mapping[str, Any]) -> Any:
    """Return ``raw`` with the names of observations' fields, which ``to_status`` leaves out to save room."""
    run = raw.get("run") if isinstance(raw, Mapping) else None
    rows = run.get("observations") if isinstance(run, Mapping) else None
    if not isinstance(run, Mapping) or not isinstance(rows, list):
        return raw
    named = [dict(zip(_OBSERVED, row, strict=False)) if isinstance(row, list) else row for row in rows]
    return {**raw, "run": {**run, "observations": named}}


def _invariants(memory: Memory) -> Iterator[tuple[bool, str]]:
    """Yield whether each thing holds that decide relies on, and a sentence for where it does not."""
    run, phase = memory.run, memory.run.phase
    known = (MEMORY_VERSION, MEMORY_VERSION - 1)
    yield memory.version in known, f"version {memory.version}, this is version {MEMORY_VERSION}"
    yield phase in PHASES, f"run.phase: {phase!r} is none of {', '.join(PHASES)}"
    yield 0 <= run.iteration < MAX_ITERATIONS, f"run.iteration: {run.iteration} cannot be"
    begun = run.facts is not None and run.best is not None
    yield begun or phase in ("Profiling", "Complete"), f"run: {phase} without what profile found"
    stopped = run.stop is not None or phase != "Evaluating"
    yield stopped, "run: Evaluating without a reason why learning stopped"
    over = run.outcome is not None
    yield over or phase not in ("Publishing", "Complete"), f"run: {phase} without an outcome"
    yield over or not memory.ended, "ended without an outcome"
    counted = (*memory.attempts.values(), *memory.failures.values(), *memory.lost.values())
    yield all(0 <= number < MAX_ATTEMPTS for number in counted), "attempts: a number cannot be"
    yield all(users > 0 for users in memory.engine_users.values()), "engine_users: a number cannot be"
    yield 0 < memory.message_bytes <= MAX_SUMMARY_BYTES, "message_bytes: a number cannot be"
    spans = (memory.started, memory.ended, memory.active_since, memory.active_seconds, memory.gpu_seconds)
    halves = (memory.halfway_since, memory.let_go_until)
    times = (*spans, *halves, memory.unplaced_since, memory.idle_since, *memory.engines_since.values())
    yield all(map(math.isfinite, times)), "a time is not a number"


def _unreadable(what: str) -> BugError:
    return BugError(
        f"the state in the status cannot be read: {what}",
        where="status.state",
        fix="Only the operator writes it: install the version that wrote it, or delete the run and apply it "
        "again; what was asked of the models is kept",
    )
