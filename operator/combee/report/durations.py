"""How long calls and steps of each kind took, and how many tokens the task model's calls had: quantiles over
the whole run, from what was recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from combee.report.parts_cost import Durations, Quantiles, TaskTokens
from combee.report.result import IterationRecord, Result, StepRecord
from combee.report.rollouts import CallGraphs
from combee.report.text import Table, count, duration
from combee.steps import order_of
from combee.work.asker import decode_rows
from combee.work.happened import quantile


def call_seconds(graphs: CallGraphs) -> dict[str, list[float]]:
    """Return the seconds of every recorded call, as the client saw the answered attempt, by kind of step."""
    seconds: dict[str, list[float]] = {}
    for summary, parts in graphs:
        for data in parts:
            seconds.setdefault(summary.kind, []).extend(row.seconds for row in decode_rows(data))
    return seconds


def step_seconds(
    iterations: Iterable[IterationRecord], around: Mapping[str, StepRecord]
) -> dict[str, list[float]]:
    """Return the wall-clock seconds of every finished step by kind; a map's are those of its longest
    shard."""
    seconds = {name: [one.wall_seconds] for name, one in around.items()}
    for iteration in iterations:
        for name, taken in iteration.step_seconds.items():
            seconds.setdefault(name, []).append(taken)
    return seconds


def durations(
    calls: Mapping[str, Sequence[float]], steps: Mapping[str, Sequence[float]]
) -> tuple[Durations, ...]:
    """Return the quantiles by kind of step, in the order of a run.

    >>> (one,) = durations({"map": [1.0, 2.0, 3.0]}, {"map": [4.0]})
    >>> one.calls.p50, one.calls.p95, one.steps.n
    (2.0, 3.0, 1)
    """
    kinds = sorted(calls.keys() | steps.keys(), key=order_of)
    return tuple(
        Durations(step=kind, calls=_quantiles(calls.get(kind, ())), steps=_quantiles(steps.get(kind, ())))
        for kind in kinds
    )


def task_tokens(graphs: CallGraphs) -> TaskTokens | None:
    """Return how long the task model's calls were; None where it was asked nothing."""
    rows = [
        (row.prompt_tokens, row.completion_tokens)
        for _, parts in graphs
        for data in parts
        for row in decode_rows(data)
        if row.role == "task"
    ]
    prompt, completion = map(_quantiles, zip(*rows, strict=True)) if rows else (None, None)
    return TaskTokens(prompt=prompt, completion=completion) if prompt and completion else None


def _quantiles(numbers: Sequence[float]) -> Quantiles | None:
    if not numbers:
        return None
    ordered = sorted(numbers)
    p50, p95, p99 = (round(quantile(ordered, share), 6) for share in (0.5, 0.95, 0.99))
    return Quantiles(n=len(ordered), p50=p50, p95=p95, p99=p99)


def lengths(result: Result) -> str:
    """Return in words how long the task model's calls were; empty where it was asked nothing."""
    if (tokens := result.task_tokens) is None:
        return ""
    prompt, answer = (
        f"{one.p50:,.0f} tokens in the median, {one.p95:,.0f} at p95"
        for one in (tokens.prompt, tokens.completion)
    )
    calls = count(tokens.prompt.n, "call")
    return f"a call with its prompt {prompt}; its answer {answer} (measured over {calls} of the task model)"


def table(result: Result) -> Table:
    """Return the quantiles of calls and of steps."""

    def cells(one: Quantiles | None) -> tuple[str, ...]:
        return (
            ("", "", "", "") if one is None else (f"{one.n:,}", *map(duration, (one.p50, one.p95, one.p99)))
        )

    rows = tuple((one.step, *cells(one.calls), *cells(one.steps)) for one in result.durations)
    columns = ("step", "#calls", "#p50", "#p95", "#p99", "#steps", "#step p50", "#step p95", "#step p99")
    note = (
        "Over the whole run, by nearest rank: of few steps the upper quantiles are the longest one. A call's "
        "time is that of the attempt that was answered, and of an answer from memory what it took when made; "
        "a step's is wall time, of a map that of its longest shard."
    )
    return Table("durations", "How long calls and steps took", columns, rows, "not shown", note)
