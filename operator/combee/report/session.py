"""A session at its end: what every file of a run is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from combee.api.run import PromptLearningRun
from combee.plan.decide import Identity
from combee.plan.state import RunState
from combee.plan.types import IterationPlan, Outcome, StepSummary
from combee.report.result import DataInfo, ModelInfo
from combee.work.context import WorkContext


@dataclass(frozen=True, slots=True)
class Session:
    """The state of a session at its end."""

    run: PromptLearningRun
    who: Identity
    manifest_digest: str
    context: WorkContext
    state: RunState
    outcome: Outcome
    plans: Mapping[int, IterationPlan]
    summaries: Mapping[str, StepSummary]
    models: Mapping[str, ModelInfo]
    wall_seconds: float
    data: DataInfo
    gpu_seconds: float = 0.0
    """seconds times GPUs of engines of its own; a laptop has none."""
