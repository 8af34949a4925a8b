"""The progress of several parts of one step that are done side by side, reported as that of one."""

from __future__ import annotations

from dataclasses import dataclass, field

from combee.work.context import Progress


@dataclass(slots=True)
class _Stage:
    done: int = 0
    total: int = 0


@dataclass(slots=True)
class Together:
    """Reports the stage that was begun last, with what all parts have to do in it."""

    inner: Progress
    stages: dict[str, _Stage] = field(default_factory=dict)
    current: str = ""

    def part(self) -> PartProgress:
        """Return the progress of one more part."""
        return PartProgress(self)


@dataclass(slots=True)
class PartProgress:
    """One part's share of the progress."""

    whole: Together
    stage: str = ""

    def begin(self, stage: str, total: int) -> None:
        """Begin a stage in which the part has ``total`` units to do."""
        shared = self.whole.stages.setdefault(stage, _Stage())
        shared.total += total
        self.stage = self.whole.current = stage
        self.whole.inner.begin(stage, shared.total)
        if shared.done:
            self.whole.inner.advance(shared.done)

    def advance(self, units: int = 1) -> None:
        """Count ``units`` more of the part's stage as done."""
        if self.stage in self.whole.stages:
            self.whole.stages[self.stage].done += units
        if self.stage == self.whole.current:
            self.whole.inner.advance(units)

    def note(self, text: str) -> None:
        """Say something that a person should know."""
        self.whole.inner.note(text)
