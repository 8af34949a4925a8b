"""How many calls may be in flight at one server, learned from its answers and its metrics.

Refusals: an overloaded server answers 429 or 503, or not before the deadline. A window holds as many answers
as there are calls in flight (32 at least). The share of refused requests in a window is the share of load
that is too much, so the limit falls by that share, once a window. It then grows quickly to nine tenths of the
limit at which it fell, and from there by one slot every fourth window. A share of at most a tenth counts as
noise, which back-off alone handles. (With one refusal in twenty, about one window of 64 in twenty-five
exceeds a tenth by chance, and lowers the limit by its share.) So the limit settles instead of swinging.

Latency, by its cause, where metrics show it: a server that batches continuously takes up what fits at each
moment. What it runs slows down with each further call, but it answers more of them in a second, so that is no
reason to send fewer. What waits in its queue wins nothing, as long as that does not run empty, and the wait
counts against a call's deadline. So the limit is twice what the server runs while calls wait there. It does
not grow then, and doubles, to nine tenths of the limit at which it fell for refusals at most, at each look at
which none does. A burst waits, too, while its prompts are read: what counts is a queue at two looks in a row
beside no more calls that run.

Answers to calls that were in flight when the limit fell say nothing of the new one, and are passed over.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from combee.clients.model.looks import Look

OVERLOAD_SHARE = 0.1
MIN_WINDOW = 32
"""Fewer answers than this say little: one refusal in eight may stand for one in a hundred."""
CAREFUL_FROM = 0.9
CAREFUL_WINDOWS = 4
QUEUED = 2
"""Calls in flight for each that a server with a queue runs."""
QUEUE = "queue"
"""The reason of a fall beside refusals: calls waited at the server."""


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A limit that went from ``before`` to ``after`` at the ``call``-th answer (or refusal) in this process.
    ``reason``: the most frequent refusal of the window, or ``queue``; empty where it grew."""

    call: int
    before: int
    after: int
    reason: str


@dataclass(slots=True)
class AdaptiveLimit:
    """The limit of one server: ``allowed`` calls in flight, between 1 and ``most``."""

    most: int
    allowed: int = 0
    ceiling: float = math.inf
    """The limit at which the server last had too much."""
    _answers: int = 0
    _reasons: Counter[str] = field(default_factory=Counter)
    _most_in_flight: int = 0
    """in this window."""
    _quiet_windows: int = 0
    _calls: int = 0
    _stale: int = 0
    """Answers to come of calls that were in flight when the limit fell."""
    _before: Look | None = None
    """The last look at the server's metrics."""

    def __post_init__(self) -> None:
        self.allowed = self.most

    def answered(self, *, in_flight: int, refusal: str = "") -> LimitChange | None:
        """Count one answer, or a refusal by its reason, while ``in_flight`` calls were made, itself included.
        Return the change when ``allowed`` changed."""
        self._calls += 1
        if self._stale > 0:
            self._stale -= 1
            return None
        self._answers += 1
        self._most_in_flight = max(self._most_in_flight, in_flight)
        if refusal:
            self._reasons[refusal] += 1
        reached = min(self.allowed, max(self._most_in_flight, MIN_WINDOW))
        if self._answers < max(reached, MIN_WINDOW):  # a lower limit has windows as long, too
            return None
        share, most = self._reasons.total() / self._answers, self._reasons.most_common(1)
        if share > OVERLOAD_SHARE:
            self.ceiling, self._quiet_windows = reached, 0
            return self._set(int(reached * (1.0 - share)), most[0][0], in_flight)
        self._quiet_windows += 1
        queued = self._before is not None and self._before.waiting > 0
        return self._set(self.allowed + (0 if queued else self._step()), "", in_flight)

    def looked(self, look: Look, in_flight: int) -> LimitChange | None:
        """Take note of the server's metrics while ``in_flight`` calls were made. Return the change."""
        before, self._before = self._before, look
        if look.running is None:
            self._before = None
            return None
        if in_flight < self.allowed:  # a limit that does not bind is no cause of what is seen
            return None
        if not look.waiting:
            quickly = int(min(2 * self.allowed, self.most, CAREFUL_FROM * self.ceiling))
            return self._set(quickly, "", in_flight) if quickly > self.allowed else None
        if before is None or not before.waiting or look.running > (before.running or 0):
            return None
        runs = in_flight * look.running / (look.running + look.waiting)
        fewer = int(QUEUED * runs) + 1
        return self._set(fewer, QUEUE, in_flight) if fewer < self.allowed else None

    def _set(self, allowed: int, reason: str, in_flight: int) -> LimitChange | None:
        """Begin a window, under this limit."""
        self._answers, self._reasons, self._most_in_flight = 0, Counter(), 0
        before, self.allowed = self.allowed, max(1, min(self.most, allowed))
        if self.allowed == before:
            return None
        if self.allowed > before:
            return LimitChange(self._calls, before, self.allowed, "")
        self._stale = in_flight
        return LimitChange(self._calls, before, self.allowed, reason)

    def _step(self) -> int:
        if self.allowed < CAREFUL_FROM * self.ceiling:
            return max(1, self.allowed // 8)
        return 1 if self._quiet_windows % CAREFUL_WINDOWS == 0 else 0
