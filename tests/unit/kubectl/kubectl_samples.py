"""Statuses and objects that the views of `kubectl combee` are tested with."""

from __future__ import annotations

from typing import Any

from combee.api.run import Budget
from combee.api.status import RunStatus
from combee.cli.cluster.status_text import Shown, when

NOW = when("2026-01-01T00:11:00Z") or 0.0


def condition(type: str, status: str, reason: str, message: str = "so it is") -> dict[str, Any]:
    return {"type": type, "status": status, "reason": reason, "message": message}


LEARNING: dict[str, Any] = {
    "observedGeneration": 1,
    "phase": "Learning",
    "message": "iteration 3, 84 examples",
    "startTime": "2026-01-01T00:00:00Z",
    "iteration": 3,
    "iterationsPlanned": 6,
    "examplesDone": 250,
    "examplesPlanned": 500,
    "etaSeconds": 130.0,
    "batchSize": 84,
    "batchReason": "growing further saves less than 45 % of the time",
    "heldOut": {"baseline": 0.64, "current": 0.855, "best": 0.861, "bestIteration": 1, "selectRows": 60},
    "gain": 0.221,
    "usage": {
        "task": {"calls": 312, "hits": 40, "promptTokens": 1000, "completionTokens": 50, "cachedTokens": 500}
    },
    "spend": {"rollouts": 312, "tokens": 56_100},
    "history": [
        {
            "iteration": n,
            "batchSize": 84,
            "seconds": 41.0,
            "select": s,
            "rollouts": 104,
            "calls": 200,
            "best": b,
        }
        for n, (s, b) in enumerate([(0.7, False), (0.861, True), (0.855, False)])
    ],
    "steps": [{"name": "formula-3fa9c1d2-i003-map-a0", "kind": "map", "shards": 4, "succeeded": 1}],
    "conditions": [
        condition("Ready", "False", "Learning"),
        condition("PodsPlaced", "False", "Unschedulable", "no node has two free GPUs"),
        condition("EnginesReady", "True", "Serving"),
        condition("Converging", "True", "Improving"),
    ],
}


def shown(changes: dict[str, Any] | None = None, *, suspend: bool = False, **budget: Any) -> Shown:
    """A run's view; ``changes`` to the status of one that learns."""
    status = RunStatus.model_validate({**LEARNING, **(changes or {})})
    limits = Budget.model_validate(budget or {"rollouts": 4000})
    return Shown("formula", "team-a", status, limits, NOW, suspend)
