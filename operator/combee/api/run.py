"""``PromptLearningRun``: what a person writes to have a playbook learned. One-shot, like a Job."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from combee.api import evaluation
from combee.api.aggregation import Aggregation
from combee.api.baseline import SerialBaseline
from combee.api.common import (
    LARGEST_INT,
    MAP_BY_NAME,
    Bool,
    Float,
    Int,
    Model,
    NameRef,
    Words,
    distinct,
    refuse,
    yaml_name,
)
from combee.api.energy import Energy
from combee.api.engines import Engine
from combee.api.methods import OPTIONS, Method
from combee.api.objectmeta import ObjectMeta
from combee.api.parts import Models, PodTemplate, RoleModel, Task
from combee.api.prices import ModelPrice, Prices
from combee.api.stopping import Stopping as Stopping
from combee.api.stores import Queue, Store, default_store

LimitName = Literal["rollouts", "tokens", "gpuSeconds", "wallClockSeconds", "money"]
Discipline = Literal["Strict", "Advisory"]


class Batching(Model):
    """How many examples an iteration takes."""

    mode: Literal["Dynamic", "Fixed"] = Field(
        default="Dynamic",
        description="Dynamic: planned anew before each iteration; Fixed: size, with a reason.",
    )
    sizes: tuple[Annotated[Int, Field(ge=1, le=100_000)], ...] = Field(
        default=(5, 10, 25, 50, 100),
        min_length=1,
        max_length=32,
        description="Sizes that trials may take, ascending; the planned size stays between the first and the "
        "last (Dynamic).",
    )
    rule: Literal["Saving", "Paper"] = Field(
        default="Saving",
        description="Saving: grow while more than share of the time can still be saved; Paper: the paper's.",
    )
    share: Float = Field(
        default=0.45, gt=0, lt=1, description="Share of time that rule Saving compares with."
    )
    size: Int | None = Field(
        default=None, ge=1, le=100_000, description="Examples of every iteration (Fixed)."
    )
    reason: Words | None = Field(default=None, max_length=500, description="Why the size is fixed (Fixed).")

    @field_validator("sizes")
    @classmethod
    def _ascending(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(a >= b for a, b in pairwise(value)):
            raise refuse("not ascending", f"Write {sorted(set(value))}.")
        return value

    @model_validator(mode="after")
    def _fixed_is_stated(self) -> Self:
        if self.mode == "Fixed" and (self.size is None or self.reason is None):
            lacking = " and ".join(n for n in ("size", "reason") if getattr(self, n) is None)
            raise refuse(
                f"mode Fixed without {lacking}",
                'Write {mode: Fixed, size: 25, reason: "why this size"}, or mode: Dynamic.',
            )
        if self.mode == "Dynamic" and (self.size is not None or self.reason is not None):
            raise refuse(
                "size or reason is given with mode Dynamic", "Set mode: Fixed, or remove size and reason."
            )
        return self


class Budget(Model):
    """Hard limits of the run; absent means no limit."""

    rollouts: Int | None = Field(
        default=None, ge=1, le=LARGEST_INT, description="Task-model calls: map, replay and heldOut."
    )
    tokens: Int | None = Field(
        default=None, ge=1, le=LARGEST_INT, description="Tokens in and out, of all roles."
    )
    gpu_seconds: Int | None = Field(
        default=None, ge=1, le=LARGEST_INT, description="Seconds times GPUs of the engines."
    )
    wall_clock_seconds: Int | None = Field(
        default=None, ge=1, le=LARGEST_INT, description="Seconds from start to end."
    )
    money: Float | None = Field(
        default=None,
        gt=0,
        le=1e12,
        description="What models and GPUs may cost, by prices and in its currency.",
    )
    primary: LimitName | None = Field(
        default=None, description="The limit that binds, and is checked and told first. Absent: rollouts."
    )

    @model_validator(mode="after")
    def _primary_is_limited(self) -> Self:
        named = {yaml_name(name): getattr(self, name) for name in Budget.model_fields}
        if self.primary not in (None, "rollouts") and named[self.primary] is None:
            raise refuse(
                f"primary {self.primary} has no limit", f"Add {self.primary}: <limit>, or change primary."
            )
        return self

    @property
    def first(self) -> LimitName:
        """The limit that is told first."""
        return self.primary or "rollouts"


class Workers(Model):
    """Resources of the whole run; rates and concurrency are split over its pods."""

    parallelism: Int = Field(
        default=4, ge=1, le=1000, description="Worker pods; on a laptop without meaning."
    )
    concurrency: Int = Field(default=64, ge=1, le=10_000, description="Model calls in flight, over all pods.")
    overlap: Literal["Auto", "Never"] = Field(
        default="Auto", description="Auto: reduce pods are placed while the map runs."
    )
    wait_seconds: Int = Field(
        default=60, ge=1, le=3600, description="Seconds a reduce pod waits for inputs before it yields."
    )
    hedge_budget: Float = Field(
        default=0.05, ge=0, le=1, description="Share of calls that may be sent twice to win a race."
    )
    requests_per_minute: Int | None = Field(
        default=None, ge=1, le=LARGEST_INT, description="Model calls a minute; absent: no limit."
    )
    tokens_per_minute: Int | None = Field(
        default=None, ge=1, le=LARGEST_INT, description="Tokens a minute; absent: no limit."
    )
    call_deadline_seconds: Int = Field(
        default=600, ge=1, le=86_400, description="Seconds one model call may take."
    )
    template: PodTemplate | None = Field(
        default=None, description="Allow-listed overrides of the step pods; on a laptop without meaning."
    )


class RunSpec(Model):
    """The spec of a PromptLearningRun."""

    playbook_ref: NameRef | None = Field(
        default=None,
        description="Playbook that the result becomes a candidate of; may be absent on a laptop only.",
    )
    suspend: Bool = Field(default=False, description="true: nothing runs until it is false again.")
    discipline: Discipline | None = Field(
        default=None,
        description="Strict: a run that does not state its inputs is refused; Advisory: it is warned. "
        "Absent: the chart's value on a cluster, Advisory on a laptop.",
    )
    task: Task = Field(description="What is learned, from which rows.")
    method: Method = Field(description="The base method.")
    engines: tuple[Engine, ...] = Field(
        default=(),
        max_length=16,
        description="Model servers that this run brings up and takes down.",
        json_schema_extra=MAP_BY_NAME,
    )
    models: Models = Field(description="Models by role.")
    serial_baseline: SerialBaseline | None = Field(
        default=None, description="What learning serially achieves; diagnosis.md."
    )
    aggregation: Aggregation = Field(
        default_factory=Aggregation, description="How reflections become entries."
    )
    batching: Batching = Field(default_factory=Batching, description="How many examples an iteration takes.")
    stopping: Stopping = Field(default_factory=Stopping, description="When learning is over early.")
    budget: Budget = Field(default_factory=Budget, description="Hard limits.")
    prices: Prices | None = Field(
        default=None, description="What models and GPUs cost; absent: no cost is told."
    )
    energy: Energy | None = Field(
        default=None, description="Where GPUs say what energy they used; absent: none is told."
    )
    workers: Workers = Field(default_factory=Workers, description="Resources of the whole run.")
    queue: Queue | None = Field(default=None, description="Kueue's local queue; on a laptop without meaning.")
    store: Store = Field(
        default_factory=default_store,
        description="Where results are kept; absent: the claim combee-store. On a laptop the output folder "
        "is used instead.",
        json_schema_extra={"default": {"pvc": {"claimName": "combee-store"}}},
    )
    seed: Int = Field(default=0, ge=0, le=LARGEST_INT, description="Seed of everything random.")

    @field_validator("engines")
    @classmethod
    def _engine_names_differ(cls, value: tuple[Engine, ...]) -> tuple[Engine, ...]:
        return distinct(value, "engines")

    @model_validator(mode="after")
    def _engine_refs_hold(self) -> Self:
        names = [engine.name for engine in self.engines]
        for role, model in self.roles().items():
            if model.engine_ref is not None and model.engine_ref.name not in names:
                raise refuse(
                    f"models.{role}.engineRef names engine {model.engine_ref.name!r}, which is not under "
                    "engines",
                    f"Engines here: {', '.join(names) or 'none'}.",
                )
        return self

    @model_validator(mode="after")
    def _playbook_is_named(self) -> Self:
        initial = self.task.initial_playbook
        if initial is not None and initial.active_version and self.playbook_ref is None:
            raise refuse(
                "task.initialPlaybook.activeVersion without playbookRef", "Add playbookRef: {name: ...}."
            )
        return self

    @model_validator(mode="after")
    def _embedder_is_given(self) -> Self:
        if self.aggregation.traits.embeds and self.models.embedder is None:
            raise refuse(
                f"strategy {self.aggregation.strategy} without models.embedder",
                "Add models.embedder, a model that gives embeddings, or use another strategy.",
            )
        return self

    @model_validator(mode="after")
    def _evaluator_is_another(self) -> Self:
        evaluation.check(self)
        return self

    @model_validator(mode="after")
    def _traces_are_reflected_on(self) -> Self:
        if not self.rolls_out and self.method.stated.tries_out:
            others = [name for name, options in OPTIONS.items() if not options.tries_out]
            raise refuse(
                f"method {self.method.type} tries out what it learned, and type Traces has no rollouts",
                f"Set method.type: {' or '.join(others)}.",
            )
        return self

    @model_validator(mode="after")
    def _baseline_can_be_read(self) -> Self:
        baseline = self.serial_baseline
        if baseline is None or not (baseline.measure or baseline.curve):
            return self
        if baseline.method != self.method.type:
            raise refuse(
                f"serialBaseline.method is {baseline.method}, and method.type {self.method.type}",
                "Write the same: a run is compared with its own method, one example at a time.",
            )
        if not self.rolls_out:
            raise refuse("serialBaseline with type Traces, where nothing is scored", "Remove serialBaseline.")
        return self

    @model_validator(mode="after")
    def _method_accepts(self) -> Self:
        self.method.stated.accept(self)
        return self

    @model_validator(mode="after")
    def _money_has_prices(self) -> Self:
        if self.budget.money is not None and self.prices is None:
            raise refuse(
                "budget.money without prices", "Add prices: {currency: ..., models: [...], perGpuHour: ...}."
            )
        gpus_cost = self.prices is not None and self.prices.per_gpu_hour > 0
        held = {engine.name for engine in self.engines if engine.vllm is not None and gpus_cost}
        for role, model in self.unpriced().items():
            if model.engine_ref is None or model.engine_ref.name not in held:
                name = self.model_name(role) or "whose name is not stated"
                raise refuse(
                    f"prices say nothing of models.{role} ({name})",
                    "Add it under prices.models, with prices of 0 where it costs nothing.",
                )
        return self

    @property
    def rolls_out(self) -> bool:
        """Whether examples are rolled out and scored; recorded ones were, elsewhere."""
        return self.task.type != "Traces"

    @property
    def verify(self) -> Literal["Replay", "Support", "Off"]:
        """What an entry needs to be rendered: as stated, but nothing can be replayed without rollouts."""
        stated = self.aggregation.verify
        return "Support" if stated == "Replay" and not self.rolls_out else stated

    def roles_in_use(self) -> dict[str, RoleModel]:
        """Return the models that this run may ask, by role name: a task model only for rollouts, an embedder
        only where the strategy needs one, an evaluator, its proxy and a referee only for a rubric."""
        unused = set() if self.rolls_out else {"task"}
        unused |= set() if self.task.is_evaluated else {"evaluator", "proxy", "referee"}
        unused |= {"embedder"} if not self.aggregation.traits.embeds else set()
        return {role: model for role, model in self.roles().items() if role not in unused}

    def unpriced(self) -> dict[str, RoleModel]:
        """Return the models in use whose tokens have no price, by role; none where no prices are stated."""
        models = self.roles_in_use() if self.prices is not None else {}
        return {role: model for role, model in models.items() if self.price_of(role) is None}

    def price_of(self, role: str) -> ModelPrice | None:
        """Return what the tokens of a role's model cost; None where nothing says it."""
        if self.prices is None or role not in self.roles():
            return None
        return self.prices.of_model(self.model_name(role))

    def model_name(self, role: str) -> str:
        """Return the model of a role as its endpoint or engine names it; empty where only a service knows."""
        model = self.roles()[role]
        if model.endpoint is not None:
            return model.endpoint.model
        names = {engine.name: engine.model for engine in self.engines}
        return names.get(model.engine_ref.name, "") if model.engine_ref is not None else ""

    def roles(self) -> dict[str, RoleModel]:
        """Return the models given, by role name."""
        named = {role: getattr(self.models, role) for role in Models.model_fields}
        return {role: model for role, model in named.items() if model is not None}


class PromptLearningRun(Model):
    """One learning run: immutable once started."""

    api_version: Literal["combee.dev/v1alpha1"] = Field(description="Version of this API.")
    kind: Literal["PromptLearningRun"] = Field(description="Kind of the object.")
    metadata: ObjectMeta = Field(description="Name, and what Kubernetes adds.")
    spec: RunSpec = Field(description="What to learn.")
    status: dict[str, Any] | None = Field(default=None, description="Written by the operator; not read here.")

    @property
    def name(self) -> str:
        """The run's name."""
        return self.metadata.name
