"""What happened in a step, from its recorded calls: where the time went, and the faults that were met.

Only calls that were really made count as faults: an answer from the memo met its faults when it was made.
The numbers end up in the step's record and from there in result.json, so their names are camelCase.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from combee.tasks.container import Fault
from combee.work.asker import CallRow, Fate
from combee.work.callgraph import scheduled_seconds

QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}


def happened(rows: Mapping[str, Sequence[CallRow]], slots: int) -> dict[str, Any]:
    """Return ``stages`` (in the order in which they ran), ``faults`` by reason, those of containers apart,
    ``hedges``, and ``limits``: how the calls in flight followed the server, in order, by the role that told.

    ``rows``: the recorded calls by step ("map", "reduce", ...), each in the order of its stages.
    """
    stages = [
        _stage(step, stage, [row for row in step_rows if row.stage == stage], seconds)
        for step, step_rows in rows.items()
        for stage, seconds in scheduled_seconds(step_rows, slots).items()
    ]
    calls = [row for step_rows in rows.values() for row in step_rows if not row.hit]
    faults = Counter(reason for row in calls for reason in row.retried_for)
    misbehaved = {reason: faults.pop(reason) for reason in sorted(set(faults) & set(Fault))}
    return {
        "stages": stages,
        "faults": dict(sorted(faults.items())),
        "hedges": sum(row.hedged for row in calls),
        "limits": _limits(calls),
        **({"rolloutFaults": misbehaved} if misbehaved else {}),
    }


def _limits(calls: Iterable[CallRow]) -> list[dict[str, Any]]:
    changes = sorted((row.role, change) for row in calls for change in row.limits)
    return [
        {"role": role, "call": call, "before": before, "after": after, "reason": reason}
        for role, (call, before, after, reason) in changes
    ]


def _stage(step: str, stage: str, rows: list[CallRow], seconds: float) -> dict[str, Any]:
    latencies = sorted(row.seconds for row in rows)
    return {
        "step": step,
        "stage": stage,
        "calls": len(rows),
        "scheduledSeconds": round(seconds, 6),
        **{name: round(quantile(latencies, share), 6) for name, share in QUANTILES.items()},
        "max": round(latencies[-1], 6),
        "promptTokens": sum(row.prompt_tokens for row in rows),
        "cachedTokens": sum(row.cached_tokens for row in rows),
        "cut": sum(row.unusable == Fate.CUT for row in rows),
        "unparsable": sum(row.unusable == Fate.UNPARSABLE for row in rows),
        **_in_flight([row.in_flight for row in rows if row.in_flight]),
        **_servers([row.look for row in rows if row.look is not None]),
    }


def _in_flight(sizes: Sequence[int]) -> dict[str, Any]:
    """Return how many calls went while so many were in flight, by the power of two at or below."""
    powers = Counter(1 << (size.bit_length() - 1) for size in sizes)
    return {"inFlight": {str(power): powers[power] for power in sorted(powers)}} if sizes else {}


def _servers(looks: Sequence[tuple[int, float | None, int, int]]) -> dict[str, Any]:
    """Return what the servers were seen to do, or nothing where nobody could look."""
    if not looks:
        return {}
    waiting, kv_uses, prompt_tokens, cached_tokens = zip(*looks, strict=True)
    seen = {
        "looks": len(looks),
        "waiting": round(sum(waiting) / len(looks), 6),
        "waitingMost": max(waiting),
        "kvUseMost": max((use for use in kv_uses if use is not None), default=None),
        "promptTokens": sum(prompt_tokens),
        "cachedTokens": sum(cached_tokens),
    }
    return {"servers": seen}


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile of ascending numbers, which is one of them. ``share``: in (0, 1].

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5), quantile([1.0, 2.0, 3.0, 4.0], 0.99)
    (2.0, 4.0)
    """
    # Rounding takes away what floating point adds to a whole number.
    return ordered[max(0, math.ceil(round(share * len(ordered), 9)) - 1)]


def union(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the counts by reason, added up."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(sorted(total.items()))
