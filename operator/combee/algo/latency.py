"""The latency law of a model server, and the time a recorded call graph takes under it (modelled time).

A server that decodes a batch gives each of ``n`` running calls one token every ``a + b n`` seconds, and no
call decodes while it reads prompts. So a call of ``out`` tokens among ``n`` equal ones takes ``out (a + b n)
+ c (uncached prompt tokens in flight)``. The defaults were measured with vLLM on one H200 (8B, bf16, prefix
caching on; DESIGN's facts: within 15 % of every row up to 512 calls in flight).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from combee.algo.schedule import Beside, Schedule, Stage, schedule_of, turns
from combee.errors import BugError

Call = tuple[float, float]
"""(uncached prompt tokens, completion tokens), both finite and at least 0."""


@dataclass(frozen=True, slots=True)
class LatencyLaw:
    """Seconds from tokens. All three are finite and at least 0, decode_seconds above 0."""

    decode_seconds: float = 0.0163
    """a: seconds per token of a call, however few calls run."""
    decode_per_concurrent: float = 0.000094
    """b: additional seconds per token for each running call."""
    prefill_seconds_per_token: float = 31e-6
    """c: seconds to read one prompt token that is not in the prefix cache."""

    def __post_init__(self) -> None:
        values = (self.decode_seconds, self.decode_per_concurrent, self.prefill_seconds_per_token)
        if not all(math.isfinite(value) and value >= 0 for value in values) or self.decode_seconds == 0:
            raise BugError(f"not a latency law: {values}", where="LatencyLaw")

    def step(self, concurrent: int) -> float:
        """Return the seconds in which each of ``concurrent`` running calls decodes one token."""
        return self.decode_seconds + self.decode_per_concurrent * concurrent

    def seconds(self, out_tokens: float, concurrent: int, uncached_in_flight: float) -> float:
        """Return the seconds of one call among ``concurrent`` equal ones.

        >>> round(LatencyLaw().seconds(256, 64, 64 * 1024), 2)
        7.74
        """
        return out_tokens * self.step(concurrent) + self.prefill_seconds_per_token * uncached_in_flight


H200 = LatencyLaw()
"""The default of all that is timed."""


def retime(
    stages: Sequence[Stage[Call]], slots: int, law: LatencyLaw, beside: Beside | None = None
) -> Schedule:
    """Seconds that recorded calls take on ``slots`` under ``law``, and of each stage. No clock enters.

    A stage is a set of chains, a chain is calls made one after the other; who waits for whom: ``turns``.
    Calls that run share the decoder: it serves all of them at the pace of how many there are at that moment,
    and stands still while the prompts of those just started are read. The next event is always the end of the
    call with the fewest tokens to go, so the schedule is exact and deterministic. Empty stages and chains
    take no time. ``slots`` < 1, and NaN, infinite or negative token counts, raise ``BugError``. Source:
    DESIGN section 6 ("Modelled time"). Cost: O(c log slots) for c calls.

    >>> law = LatencyLaw(decode_seconds=0.01, decode_per_concurrent=0.001, prefill_seconds_per_token=0.0)
    >>> [round(retime([[[(0, 100)], [(0, 100)]]], slots, law).seconds, 6) for slots in (1, 2)]
    [2.2, 1.2]
    """
    ends = [0.0] * len(stages)
    seconds = decoded = 0.0
    for end, ended, began, ran in turns(stages, slots, beside, _out_tokens):
        reading = sum(law.prefill_seconds_per_token * uncached for uncached, _ in began)
        seconds += reading + (end - decoded) * law.step(ran)
        decoded = end
        for stage in ended:
            ends[stage] = seconds
    return schedule_of(ends)


def _out_tokens(call: Call) -> float:
    if not all(math.isfinite(tokens) and tokens >= 0 for tokens in call):
        raise BugError(f"a call cannot have {call} tokens", where="retime")
    return call[1]
