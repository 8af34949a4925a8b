"""What the Job that judges a canary is told, and how its judged pairs are written. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from combee.algo.tally import REPEATED, UNJUDGED, WHY_FAILED, LeftOut, Pair
from combee.api.common import Int, Label, Line, Model, Str, refuse
from combee.api.gateway import Upstream
from combee.api.metric import Rubric
from combee.api.parts import DataSource, Endpoint
from combee.api.prometheus import Prometheus
from combee.jsonread import MALFORMED, finite

Span = tuple[Int, Int]
LARGEST_RATIO = 1e6
"""A ratio as large as that cannot be."""


class JudgeTask(Model):
    """What one Job is to judge: the variable COMBEE_JUDGE."""

    playbook: Label = Field(description="Name of the Playbook.")
    namespace: Label = Field(description="Its namespace.")
    uid: Str = Field(description="Its uid: judged pairs go with it.")
    test: Str = Field(pattern="^[a-z0-9][a-z0-9-]{0,62}$", description="TrafficComparison.id.")
    mode: Literal["Shadow", "Replay", "Prometheus"] = Field(description="canary.mode.")
    evaluator: Endpoint | None = Field(default=None, description="Who judges; absent with Prometheus.")
    rubric: Rubric | None = Field(
        default=None, description="What it judges by; absent: in general, whether an answer is right."
    )
    store: Line = Field(
        default="",
        description="Where traffic is kept: a folder of the pod, or an address; with Prometheus nowhere.",
    )
    retention: Int = Field(default=0, ge=0, description="For how many seconds traffic is kept; 0: not told.")
    since: Int = Field(default=0, ge=0, description="When the comparison began, in seconds since 1970.")
    upstream: Upstream | None = Field(default=None, description="Who answers; with Replay only.")
    tested: Str = Field(default="", description="Digest of the version that is compared.")
    against: Str = Field(default="", description="Digest of the other one.")
    published: dict[Literal["tested", "against"], dict[Str, Str]] = Field(
        default_factory=dict, description="Digest of each key of the versions' ConfigMaps, by side."
    )
    requests: DataSource | None = Field(
        default=None, description="Requests to repeat; absent: what the gateway captured."
    )
    done: dict[Str, tuple[Span, ...]] = Field(
        default_factory=dict,
        description="Stretches of numbers, by stream, that are judged already, or left out for good.",
    )
    prometheus: Prometheus | None = Field(default=None, description="Whom to ask what; with Prometheus only.")
    begins: Int = Field(
        default=0, ge=0, description="With Prometheus: when window 0 begins, in seconds since 1970."
    )
    first: Int = Field(
        default=0, ge=0, description="With Prometheus: the first window that was not asked for yet."
    )

    @model_validator(mode="after")
    def _mode_has_its_part(self) -> Self:
        if (self.prometheus is None) is (self.mode == "Prometheus"):
            raise refuse("prometheus goes with mode Prometheus", "Only the operator writes it.")
        if self.mode != "Prometheus" and (self.evaluator is None or not self.store):
            raise refuse(f"mode {self.mode} needs an evaluator and a store", "Only the operator writes it.")
        return self

    def has(self, stream: str, number: int) -> bool:
        """Return whether that pair is judged already."""
        return any(first <= number <= last for first, last in self.done.get(stream, ()))


def write_pairs(pairs: Iterable[Pair], left_out: Iterable[LeftOut] = ()) -> str:
    """Write pairs in some forty bytes each. Equal pairs give equal text, whatever their order."""
    ordered = sorted(pairs, key=lambda pair: (pair.stream, pair.number))
    rows = [
        [p.stream, p.number, round(p.difference, 6), _short(p.latency_ratio), *filter(None, [p.failed])]
        for p in ordered
    ]
    refused = sorted(left_out, key=lambda request: (request.stream, request.number))
    body: dict[str, Any] = {"version": 1, "pairs": rows}
    if any(pair.time is not None for pair in ordered):
        body["times"] = [None if pair.time is None else round(pair.time) for pair in ordered]
    if any(pair.cost_ratio is not None for pair in ordered):
        body["costs"] = [_short(pair.cost_ratio) for pair in ordered]
    if refused:
        body["leftOut"] = [[request.stream, request.number, request.status] for request in refused]
    return json.dumps(body, separators=(",", ":"))


def read_pairs(text: str) -> tuple[Pair, ...]:
    """Return the pairs in ``text``; those that cannot be are left out: a ConfigMap can be anybody's."""
    rows = _rows(text, "pairs")
    columns = (_rows(text, name) for name in ("times", "costs"))
    times, costs = (column if len(column) == len(rows) else [None] * len(rows) for column in columns)
    pairs = ((_pair(row), time, cost) for row, time, cost in zip(rows, times, costs, strict=True))
    return tuple(
        replace(pair, time=_time(time), cost_ratio=_cost(cost))
        for pair, time, cost in pairs
        if pair is not None
    )


def read_left_out(text: str) -> tuple[LeftOut, ...]:
    """Return the requests in ``text`` of which no pair can be made; those that cannot be are left out."""
    return tuple(out for row in _rows(text, "leftOut") if (out := _refused(row)) is not None)


def _rows(text: str, name: str) -> Sequence[Any]:
    try:
        raw = json.loads(text)
        rows = raw.get(name, []) if raw["version"] == 1 else []
    except (*MALFORMED, RecursionError):
        return ()
    return rows if isinstance(rows, list) else ()


def _refused(row: Any) -> LeftOut | None:
    try:
        stream, number, status = row
    except (TypeError, ValueError):
        return None
    if not isinstance(stream, str) or type(number) is not int or type(status) is not int:
        return None
    known = status in (REPEATED, UNJUDGED) or 200 <= status < 500
    fits = 0 < len(stream) <= 128 and 0 <= number < 2**53 and known
    return LeftOut(stream, number, status) if fits else None


def _pair(row: Any) -> Pair | None:
    try:
        stream, number, difference, ratio, *more = row
        failed = more[0] if more else ""
        if not isinstance(stream, str) or not isinstance(number, int) or isinstance(number, bool):
            return None
        difference = finite(difference)
        ratio = None if ratio is None else finite(ratio)
    except MALFORMED:
        return None
    fits = -1.0 <= difference <= 1.0 and 0 <= number < 2**53 and 0 < len(stream) <= 128
    fits = fits and (ratio is None or 0 < ratio < LARGEST_RATIO) and len(more) <= 1
    known = not more or (abs(difference) == 1 and isinstance(failed, str) and WHY_FAILED.fullmatch(failed))
    return Pair(stream, number, difference, ratio, failed) if fits and known else None


def _time(value: Any) -> float | None:
    """Return a time in seconds since 1970; None for what is none."""
    return float(value) if type(value) is int and 0 < value < 2**40 else None


def _cost(value: Any) -> float | None:
    """Return a ratio of costs; None for what is none."""
    return float(value) if type(value) in (int, float) and 0 < value < LARGEST_RATIO else None


def _short(ratio: float | None) -> float | None:
    return None if ratio is None else float(f"{ratio:.6g}")
