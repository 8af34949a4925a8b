"""How many calls of one role may be in flight, as the server lets it be seen.

A server that is asked too much says so: 429, 503, or no answer before the deadline. The share of
refused requests in a window of as many answers as there are slots (32 at least) is the share that is
too much, so the limit falls by just that share, once a window; it grows again quickly to nine tenths
of where it last fell, and from there one slot at a time, every fourth window. A share below a tenth is a bad
day and not an overload: back-off alone deals with it. So it settles instead of swinging.
"""

from __future__ import annotations

from dataclasses import dataclass

OVERLOAD_SHARE = 0.1
MIN_WINDOW = 32
"""Fewer answers than this say little: one refusal in eight may be one in a hundred."""
CAREFUL_FROM = 0.9
CAREFUL_WINDOWS = 4


@dataclass(slots=True)
class AdaptiveLimit:
    """``allowed`` calls in flight, between 1 and ``most``."""

    most: int
    allowed: int = 0
    ceiling: float = float("inf")
    """where the server last refused too much."""
    _answers: int = 0
    _refused: int = 0
    _quiet_windows: int = 0

    def __post_init__(self) -> None:
        self.allowed = self.most

    def answered(self, *, overloaded: bool) -> bool:
        """Count one answer (or refusal); True when ``allowed`` changed."""
        self._answers += 1
        self._refused += overloaded
        if self._answers < max(self.allowed, MIN_WINDOW):
            return False
        share, self._answers, self._refused = self._refused / self._answers, 0, 0
        before = self.allowed
        if share > OVERLOAD_SHARE:
            self.allowed = max(1, int(self.allowed * (1.0 - share)))
            self.ceiling = before
            self._quiet_windows = 0
        else:
            self._quiet_windows += 1
            self.allowed = min(self.most, self.allowed + self._step())
        return self.allowed != before

    def _step(self) -> int:
        if self.allowed < CAREFUL_FROM * self.ceiling:
            return max(1, self.allowed // 8)
        return 1 if self._quiet_windows % CAREFUL_WINDOWS == 0 else 0
