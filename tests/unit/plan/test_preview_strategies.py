"""What a preview says of the strategies that make one aggregator call."""

from __future__ import annotations

from typing import Any

import pytest

from combee.api.run import RunSpec
from combee.plan.preview import Batch, DataShape, Preview, preview
from combee.plan.state import DataFacts

ENDPOINT = {"endpoint": {"url": "http://h/v1", "model": "m"}}


def shown(strategy: str, size: int, **aggregation: Any) -> Preview:
    """A run over 100 rows in batches of ``size``."""
    spec = RunSpec.model_validate(
        {
            "task": {
                "type": "Formula",
                "data": {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}},
            },
            "method": {"type": "ACE"},
            "models": dict.fromkeys(("task", "proposer", "embedder"), ENDPOINT),
            "aggregation": {"strategy": strategy, **aggregation},
            "batching": {"mode": "Fixed", "size": size, "reason": "test"},
        }
    )
    return preview(spec, DataShape(DataFacts(100, 50, 50, 0, {}), 300.0))


def first(strategy: str, size: int, **aggregation: Any) -> Batch:
    return shown(strategy, size, **aggregation).batches[0]


@pytest.mark.parametrize(
    ("strategy", "size", "fan_in", "leaves", "inputs", "levels", "calls"),
    [
        ("Naive", 100, 32, 1, 100, (), 1),
        ("TopK", 100, 32, 1, 32, (), 1),
        ("TopK", 20, 32, 1, 20, (), 1),
        ("Summarize", 100, 32, 4, 25, (1,), 5),
        ("Summarize", 20, 32, 1, 20, (1,), 2),
        ("Summarize", 100, 4, 25, 4, (7, 2, 1), 35),
    ],
)
def test_calls_and_inputs_of_an_iteration(
    strategy: str, size: int, fan_in: int, leaves: int, inputs: int, levels: tuple[int, ...], calls: int
) -> None:
    batch = first(strategy, size, maxFanIn=fan_in)
    assert (batch.leaves, batch.leaf_inputs, batch.levels) == (leaves, inputs, levels)
    assert (batch.aggregator_calls.low, batch.aggregator_calls.high) == (calls, calls)


def test_embeddings_are_estimated_too() -> None:
    naive, topk = shown("Naive", 100), shown("TopK", 100)
    assert topk.tokens.low > naive.tokens.low and topk.tokens.high > naive.tokens.high


def test_replays_and_the_check_at_the_end_are_counted_where_replay_verifies() -> None:
    replay, support = (shown("ParallelScan", 50, verify=rule).rollouts for rule in ("Replay", "Support"))
    assert (replay.low, replay.high - support.high) == (support.low, 3 * 100 + 3 * 50)
