"""What the operator remembers of a run between two ticks: ``status.state``, and nothing else.

It is written with the status in one patch, so it is never behind what the status says; what it does
not hold is derived from the objects that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from combee.errors import BugError
from combee.plan.state import RunState

MEMORY_VERSION = 1


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
    train: float | None
    select: float | None
    artifact: str


@dataclass(frozen=True, slots=True)
class Memory:
    """Times are seconds since 1970; 0 means not yet."""

    run: RunState = field(default_factory=RunState)
    started: float = 0.0
    ended: float = 0.0
    active_since: float = 0.0
    """start of the stretch under way; 0 while suspended."""
    active_seconds: float = 0.0
    """of the stretches before: suspended time does not count."""
    attempts: Mapping[str, int] = field(default_factory=dict)
    """step -> the attempt that counts, where it is not 0."""
    in_turn: tuple[str, ...] = ()
    """steps that are not placed early any more."""
    unplaced_since: float = 0.0
    idle_since: float = 0.0
    """since when no step's pod is at work."""
    engines_since: Mapping[str, float] = field(default_factory=dict)
    """engine -> since when its GPUs are held."""
    gpu_seconds: float = 0.0
    """of the stretches before."""
    baseline: str = ""
    """the artifact that the run started from."""
    notes: tuple[IterationNote, ...] = ()
    gate: Gate | None = None
    test: float | None = None
    published: str = ""
    """the ConfigMap that holds the best playbook."""
    images: Mapping[str, str] = field(default_factory=dict)
    """what the run's pods are made from, pinned when it started."""
    version: int = MEMORY_VERSION

    def to_status(self) -> dict[str, Any]:
        """JSON-ready."""
        dumped: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        return dumped

    @classmethod
    def from_status(cls, raw: Mapping[str, Any] | None) -> Memory:
        """The memory in a status; a fresh one where there is none. BugError when it is not one."""
        if not raw:
            return cls()
        try:
            return _ADAPTER.validate_python(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise BugError(
                f"the state in the status cannot be read: {'.'.join(map(str, first['loc']))}: {first['msg']}",
                where="status.state",
                fix="It is written by the operator only; delete the run and apply it again: what was asked is kept",
            ) from None

    def attempt(self, step: str) -> int:
        """Which attempt of a step counts."""
        return self.attempts.get(step, 0)

    def again(self, step: str, *, in_turn: bool = False) -> Memory:
        """With the next attempt of a step; ``in_turn``: it is not placed early any more."""
        turn = (*self.in_turn, step) if in_turn and step not in self.in_turn else self.in_turn
        return replace(self, attempts={**self.attempts, step: self.attempt(step) + 1}, in_turn=turn)

    def elapsed(self, now: float) -> float:
        """Seconds the run was active."""
        return self.active_seconds + (now - self.active_since if self.active_since else 0.0)


_ADAPTER: TypeAdapter[Memory] = TypeAdapter(Memory)
