"""Hedging: a second request for a call that takes much longer than similar ones; the first answer wins.

One server, one slow pod or one unlucky queue makes a straggler, and a stage waits for its slowest
call. A hedge costs a second request, so hedges are rationed: at most the share ``budget`` of all calls
(one is always allowed), only in one of the run's slots, and only once there are latencies to compare with.
Source: Dean and Barroso, "The Tail at Scale", CACM 2013 (hedged requests).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MIN_SAMPLES = 8
KEPT_SAMPLES = 256
SLOW_QUANTILE = 0.9
BEYOND_QUANTILE = 1.25
BEYOND_MEDIAN = 1.4
MIN_WAIT_SECONDS = 0.05
"""With a shorter wait a second request would only race the network's noise."""


@dataclass(slots=True)
class Hedger:
    """Decides when calls are hedged; the clients of a run share one. Latencies are compared within a *kind*
    of call."""

    budget: float
    calls: int = 0
    hedges: int = 0
    _latencies: dict[str, deque[float]] = field(default_factory=dict)
    _waits: dict[str, tuple[int, float]] = field(default_factory=dict)

    def observe(self, kind: str, seconds: float) -> None:
        """Record how many seconds a call of this kind took."""
        self.calls += 1
        self._latencies.setdefault(kind, deque(maxlen=KEPT_SAMPLES)).append(seconds)

    def wait_seconds(self, kind: str) -> float | None:
        """Return how many seconds a call may take before it is hedged; None with fewer than 8 samples.

        This is the larger of 1.4 times the median and 1.25 times the 90 % quantile of the last 256 calls.
        """
        latencies = self._latencies.get(kind)
        if self.budget <= 0 or latencies is None or len(latencies) < MIN_SAMPLES:
            return None
        measured_at, wait = self._waits.get(kind, (-MIN_SAMPLES, 0.0))
        if self.calls - measured_at >= MIN_SAMPLES:
            ordered = sorted(latencies)
            median = ordered[len(ordered) // 2]
            slow = ordered[min(len(ordered) - 1, int(SLOW_QUANTILE * len(ordered)))]
            wait = max(MIN_WAIT_SECONDS, BEYOND_MEDIAN * median, BEYOND_QUANTILE * slow)
            self._waits[kind] = (self.calls, wait)
        return wait

    @property
    def may_hedge(self) -> bool:
        """Whether the budget has room for one more hedge."""
        return self.budget > 0 and self.hedges < max(1.0, self.budget * self.calls)

    def hedged(self) -> None:
        """Count one hedge that was sent."""
        self.hedges += 1
