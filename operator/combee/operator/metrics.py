"""The operator's metrics, and whether it is alive."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from combee.api.parts import Models
from combee.api.status import Phase, RunStatus
from combee.operator.tick import Key
from combee.plan.playbook.types import EVENTS

DIRECTIONS = ("prompt_tokens", "completion_tokens")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
STALE_AFTER_SECONDS = 180.0
"""The operator is not alive when there are runs and no tick has ended for so long (or for so many resyncs, if
that is longer)."""
STALE_AFTER_RESYNCS = 3.0


@dataclass(slots=True)
class Metrics:
    """The operator's metrics. Names and labels are promises; labels never hold a run's name."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    resync_seconds: float = 60.0
    clock: Callable[[], float] = time.monotonic
    tick_seconds: Histogram = field(init=False)
    reaction_seconds: Histogram = field(init=False)
    failures: Counter = field(init=False)
    made: Counter = field(init=False)
    runs: Gauge = field(init=False)
    finished: Counter = field(init=False)
    iterations: Counter = field(init=False)
    rollouts: Counter = field(init=False)
    tokens: Counter = field(init=False)
    versions: Counter = field(init=False)
    _phases: dict[Key, RunStatus] = field(default_factory=dict)
    _last_tick: float = field(init=False)

    def __post_init__(self) -> None:
        self._last_tick = self.clock()
        to = self.registry
        self.tick_seconds = Histogram(
            "combee_reconcile_seconds", "Duration of one reconcile of one run.", buckets=SECONDS, registry=to
        )
        self.reaction_seconds = Histogram(
            "combee_reaction_seconds",
            "From an event to the reconcile it caused.",
            buckets=SECONDS,
            registry=to,
        )
        self.failures = Counter("combee_reconcile_failures_total", "Reconciles that failed.", registry=to)
        self.made = Counter(
            "combee_objects_created_total", "Objects created, by kind.", ["kind"], registry=to
        )
        self.runs = Gauge("combee_runs", "Runs, by phase.", ["phase"], registry=to)
        self.finished = Counter(
            "combee_runs_finished_total", "Runs that ended, by phase.", ["phase"], registry=to
        )
        self.iterations = Counter("combee_iterations_total", "Iterations finished.", registry=to)
        self.rollouts = Counter(
            "combee_rollouts_total", "Task-model calls that runs were charged.", registry=to
        )
        self.tokens = Counter(
            "combee_tokens_total", "Tokens of model calls, by model role.", ["role", "direction"], registry=to
        )

        self.versions = Counter(
            "combee_playbook_events_total",
            "What happened to versions of Playbooks: Promoted, RolledBack, Refused, Inconclusive, ...",
            ["event"],
            registry=to,
        )
        self._begin()

    def _begin(self) -> None:
        """Let counters that alerts and people look at stand at 0 before anything happens: of a counter that
        comes with its first event, Prometheus sees no increase."""
        for event in EVENTS:
            self.versions.labels(event)
        for phase in Phase:
            if phase.over:
                self.finished.labels(phase.value)
        for role, direction in product(Models.model_fields, DIRECTIONS):
            self.tokens.labels(role, direction.removesuffix("_tokens"))

    def saw(self, key: Key, status: RunStatus | None) -> None:
        """Record a run's current status; None when the run is gone."""
        before = self._phases.pop(key, None)
        if status is not None:
            self._phases[key] = _slim(status)
            if before is not None:
                self._charge(before, status)
        if (before.phase if before else None) != (status.phase if status else None):
            tally = Tally(run_status.phase.value for run_status in self._phases.values())
            for phase in type(status.phase) if status else type(before.phase) if before else ():
                self.runs.labels(phase.value).set(tally[phase.value])

    def _charge(self, before: RunStatus, after: RunStatus) -> None:
        if after.phase.over and not before.phase.over:
            self.finished.labels(after.phase.value).inc()
        self.iterations.inc(max(0, after.iteration - before.iteration))
        self.rollouts.inc(max(0, after.spend.rollouts - before.spend.rollouts))
        for role, usage in after.usage.items():
            earlier = before.usage.get(role)
            for direction in DIRECTIONS:
                growth = getattr(usage, direction) - (getattr(earlier, direction) if earlier else 0)
                self.tokens.labels(role, direction.removesuffix("_tokens")).inc(max(0, growth))

    def ticked(self, seconds: float) -> None:
        """Record the end of a tick that took so many seconds."""
        self.tick_seconds.observe(seconds)
        self._last_tick = self.clock()

    def alive(self, waiting: int) -> bool:
        """Return whether reconciles still end. With no key ``waiting`` the operator counts as alive."""
        if not waiting:
            self._last_tick = self.clock()
        stale = max(STALE_AFTER_SECONDS, STALE_AFTER_RESYNCS * self.resync_seconds)
        return self.clock() - self._last_tick < stale


def _slim(status: RunStatus) -> RunStatus:
    """Return only the fields that are compared next time: phase, iteration, spend and usage."""
    return RunStatus(phase=status.phase, iteration=status.iteration, spend=status.spend, usage=status.usage)
