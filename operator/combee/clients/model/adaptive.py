"""How many calls of one role may be in flight, learned from the server's answers.

An overloaded server answers 429 or 503, or not before the deadline. A window holds as many answers as
there are slots (32 at least). The share of refused requests in a window is the share of load that is
too much, so the limit falls by that share, once a window. It then grows quickly to nine tenths of the
limit at which it fell, and from there by one slot every fourth window. A share of at most a tenth counts
as noise, which back-off alone handles. (With one refusal in twenty, about one window of 64 in twenty-five
exceeds a tenth by chance, and lowers the limit by its share.) So the limit settles instead of swinging.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

OVERLOAD_SHARE = 0.1
MIN_WINDOW = 32
"""Fewer answers than this say little: one refusal in eight may stand for one in a hundred."""
CAREFUL_FROM = 0.9
CAREFUL_WINDOWS = 4


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A limit that went from ``before`` to ``after`` at the ``call``-th answer (or refusal) of its role in
    this process. ``reason``: the most frequent refusal of the window; empty where the limit grew."""

    call: int
    before: int
    after: int
    reason: str


@dataclass(slots=True)
class AdaptiveLimit:
    """The limit of one role: ``allowed`` calls in flight, between 1 and ``most``."""

    most: int
    allowed: int = 0
    ceiling: float = float("inf")
    """The limit at which the server last refused too much."""
    _answers: int = 0
    _reasons: Counter[str] = field(default_factory=Counter)
    _quiet_windows: int = 0
    _calls: int = 0

    def __post_init__(self) -> None:
        self.allowed = self.most

    def answered(self, *, overloaded: bool, reason: str = "overload") -> LimitChange | None:
        """Count one answer, or a refusal and its reason. Return the change when ``allowed`` changed."""
        self._calls += 1
        self._answers += 1
        if overloaded:
            self._reasons[reason] += 1
        if self._answers < max(self.allowed, MIN_WINDOW):
            return None
        share, most = self._reasons.total() / self._answers, self._reasons.most_common(1)
        self._answers, self._reasons = 0, Counter()
        before = self.allowed
        if share > OVERLOAD_SHARE:
            self.allowed = max(1, int(self.allowed * (1.0 - share)))
            self.ceiling = before
            self._quiet_windows = 0
        else:
            self._quiet_windows += 1
            self.allowed = min(self.most, self.allowed + self._step())
        if self.allowed == before:
            return None
        return LimitChange(self._calls, before, self.allowed, most[0][0] if self.allowed < before else "")

    def _step(self) -> int:
        if self.allowed < CAREFUL_FROM * self.ceiling:
            return max(1, self.allowed // 8)
        return 1 if self._quiet_windows % CAREFUL_WINDOWS == 0 else 0
