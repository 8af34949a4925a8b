"""How a run was set up, and what its accepted prompts cost: parts of ``result.json``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from combee.report.parts import Amount, Count, Model, Share


class Setup(Model):
    """How the run learned, in the manifest's words; empty where unknown."""

    task: str = ""
    metric: str = "accuracy"
    scored_by: str = ""
    """That the proposer's own model scored the answers, and why; empty where it did not."""
    method: str = ""
    diversity: bool = False
    """Whether edits of several kinds were asked for."""
    strategy: str = ""
    merge: str = ""
    redundancy: str = ""
    verify: str = ""
    batching: str = ""
    seed: int | None = None
    steward: str = ""
    """Who keeps heldOut."""
    used_for_tuning: bool = False
    """Whether anything was tuned on heldOut before."""
    failure_cost: str = ""
    """What a wrong answer costs."""
    epochs: Count = 0
    patience: Count = 0
    """Evaluations without a better score after which learning stops; 0 in results of older versions."""
    target_score: Share | None = None
    """Score on select at which learning stops; null where none was set."""
    sizes: tuple[Count, ...] = ()
    """Batch sizes that may be planned: one where it is fixed."""
    batching_reason: str = ""
    """Why the batch size is fixed; empty where it is planned."""
    concurrency: Count = 0
    """Model calls in flight over all pods."""
    pods: Count = 0
    """Worker pods; on a laptop shards of one process. 0 in results of older versions."""
    max_input_tokens: Count = 0
    """The most tokens of an aggregator call."""
    leaf_size: Count = 0
    max_fan_in: Count = 0
    temperatures: dict[str, Amount] = Field(default_factory=dict)
    """By role of models that are asked."""
    engines: dict[str, Count] = Field(default_factory=dict)
    """GPUs of each engine that the run brings up; empty where the servers were there already."""
    shared_engines: tuple[str, ...] = ()
    """Those of them whose servers other runs may use, too: their energy is not told by run."""
    shared_model: bool = False
    """Whether one server answers as task model and as proposer."""
    hardware: str = ""
    """What task model and proposer run on, and whether they share it: as the manifest states it, or as the
    labels of a cluster's nodes name it. Empty in results of older versions."""
    waivers: tuple[str, ...] = ()
    """What the manifest leaves out for a stated reason, a sentence each without a full stop."""
    playbook: str = ""
    """The Playbook that the result becomes a candidate of."""
    release: str = ""
    """The version of combee that learned; empty in results of older versions."""


class CostPerPoint(Model):
    """The cost of one point (0.01) of gain."""

    tokens: Amount
    rollouts: Amount
    wall_seconds: Amount | None = None
    """null in results of older versions."""
    gpu_seconds: Amount | None = None
    """null where the run held no GPUs of its own, and for a prompt before the last."""
    money: Amount | None = None
    """By the manifest's prices, in the currency of ``budget``; null without prices."""


class AcceptedPrompt(Model):
    """A prompt that took the lead on the select half, and what the run had used when it did."""

    iteration: Annotated[int, Field(ge=1)]
    select: Share
    rollouts: Count
    tokens: Count
    wall_seconds: Amount
    """Seconds of the steps so far."""
    money: Amount | None = None
    """By the manifest's prices, without GPU time, whose course is not recorded; null without prices."""
    cost_per_point: CostPerPoint | None = None
    """For each point of select above the start; null where it is not above."""
    joules: Amount | None = None
    """Energy of the GPUs in the steps so far; null where it was not read."""
    serial_seconds: Amount | None = None
    """Seconds after which the stated serial baseline scored as much; null without one, where it never did,
    and where it was measured."""
    serial_rollouts: Count | None = None
    """Rollouts after which the measured serial baseline scored as much; null likewise, and where it was
    stated."""


class EnergyUsed(Model):
    """What the GPUs on the page of ``spec.energy`` used while the run's steps were at work."""

    joules: Amount
    steps: Annotated[int, Field(ge=1)]
    """Steps at whose beginning and end the counters were read."""
    of_steps: Annotated[int, Field(ge=1)]
    """Finished steps that asked models. Where fewer were read, the joules are too few."""


class SerialPoint(Model):
    """One point of the serial baseline's curve."""

    examples: Count
    seconds: Amount
    score: Share


class SerialBaseline(Model):
    """What learning one example at a time achieves, as the manifest states it."""

    method: str
    curve: tuple[SerialPoint, ...]
    converged: Share
    """Its best held-out score."""
    examples_to_converge: Count
    """Examples learned from when it first scored that."""
    seconds_per_point: Amount | None = None
    """Seconds up to there for each point above its first score; null where it never rose."""
    source: str = ""
    """Who measured it; empty where the manifest does not say."""
    hardware: str = ""
    """What it was measured on; empty where the manifest does not say."""
    measured_here: bool | None = None
    """Whether that is the task model's class of hardware; null where it is not known. Where it is not,
    nothing is compared with the curve's seconds."""


class Quantiles(Model):
    """Quantiles by nearest rank."""

    n: Annotated[int, Field(ge=1)]
    p50: Amount
    p95: Amount
    p99: Amount


class TaskTokens(Model):
    """How many tokens the task model's calls had in the whole run."""

    prompt: Quantiles
    """The playbook and all else that it is asked with."""
    completion: Quantiles


class Durations(Model):
    """How long one kind of step took in the whole run, in seconds."""

    step: str
    calls: Quantiles | None = None
    """Of its calls, as the client saw the answered attempt; null where it made none."""
    steps: Quantiles | None = None
    """Of its steps, by the wall clock; a map's is that of its longest shard. null where none was finished."""
