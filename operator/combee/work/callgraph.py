"""The recorded calls of a step as a graph: stages, their chains, and what each chain waits for.

From it and the recorded latencies the critical path and the modelled time are computed, with no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from combee.algo.latency import LatencyLaw, retime
from combee.algo.schedule import Beside, Schedule, list_schedule
from combee.work.asker import CallRow


@dataclass(frozen=True, slots=True)
class CallGraph:
    """Stages in the order of their first calls; of each, the calls of its chains, by the chains' numbers."""

    names: tuple[str, ...]
    stages: tuple[tuple[tuple[CallRow, ...], ...], ...]
    beside: Beside


def graph_of(rows: Iterable[CallRow]) -> CallGraph:
    """Return the graph of the recorded calls of a step. A chain that names what it waits for is in a stage
    beside the one before; it waits for all of that where nothing it names has a call there that was answered.
    """
    by_stage: dict[str, dict[int, list[CallRow]]] = {}
    for row in rows:
        by_stage.setdefault(row.stage, {}).setdefault(row.chain, []).append(row)
    stages = {name: dict(sorted(chains.items())) for name, chains in by_stage.items()}
    beside: dict[int, Sequence[Sequence[int]]] = {}
    before: dict[int, int] = {}
    for number, chains in enumerate(stages.values()):
        if number and any(calls[0].after for calls in chains.values()):
            beside[number] = [
                [before[name] for name in calls[0].after if name in before] or list(before.values())
                for calls in chains.values()
            ]
        before = {chain: index for index, chain in enumerate(chains)}
    return CallGraph(
        tuple(stages),
        tuple(tuple(tuple(calls) for calls in chains.values()) for chains in stages.values()),
        beside,
    )


def scheduled_seconds(rows: Iterable[CallRow], slots: int) -> dict[str, float]:
    """Return by stage what the recorded calls add to the critical path, list-scheduled on ``slots``."""
    graph = graph_of(rows)
    seconds = [[[row.seconds for row in calls] for calls in chains] for chains in graph.stages]
    return dict(zip(graph.names, list_schedule(seconds, slots, graph.beside).per_stage, strict=True))


def modelled_seconds(rows: Iterable[CallRow], slots: int) -> float:
    """Return how many seconds the recorded calls take on ``slots``."""
    return sum(scheduled_seconds(rows, slots).values())


def load_seconds(steps: Iterable[Sequence[CallRow]], slots: int) -> dict[str, float]:
    """Return what the recorded calls of steps, which follow each other, take on the slots (``modelled``), one
    after the other (``busy``) and on as many slots as there are calls (``path``)."""
    took = {"modelled": 0.0, "busy": 0.0, "path": 0.0}
    for rows in steps:
        took["modelled"] += modelled_seconds(rows, slots)
        took["busy"] += sum(row.seconds for row in rows)
        took["path"] += modelled_seconds(rows, max(1, len(rows)))
    return {name: round(seconds, 6) for name, seconds in took.items()}


def retimed(graph: CallGraph, slots: int, law: LatencyLaw) -> Schedule:
    """Return how long the recorded calls take on ``slots`` of a server with this latency law."""
    tokens = [
        [[(row.uncached_tokens, row.completion_tokens) for row in chain] for chain in chains]
        for chains in graph.stages
    ]
    return retime(tokens, slots, law, graph.beside)
