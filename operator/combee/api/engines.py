"""The engines of a run's spec: model servers of its own, and those that it refers to."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from combee.api.common import Bool, Int, Label, Line, Model, ObjectName, Str, refuse
from combee.api.parts import Hardware, PodTemplate
from combee.api.texts import FlowId
from combee.api.weights import ModelCache, WeightsSource
from combee.errors import BugError
from combee.names import START_DATE

IDLE_TIMEOUT_SECONDS = 900
SET_BY_US = (
    "--host",
    "--port",
    "--model",
    "--revision",
    "--api-key",
    "--served-model-name",
    "--uds",
    "--root-path",
)


class Vllm(Model):
    """A vLLM server."""

    model: Str = Field(min_length=1, max_length=500, description="Model to serve, as vllm serve names it.")
    revision: Str | None = Field(
        default=None, min_length=1, max_length=200, description="Revision of the weights."
    )
    image: Str | None = Field(
        default=None, min_length=1, max_length=1000, description="Image; absent: the chart's."
    )
    gpus_per_replica: Int = Field(default=1, ge=0, le=64, description="GPUs of one replica; 0: CPU only.")
    replicas: Int = Field(default=1, ge=1, le=1000, description="Servers that share the calls.")
    args: tuple[Line, ...] = Field(default=(), max_length=256, description="More arguments of vllm serve.")
    model_cache: ModelCache | None = Field(
        default=None, description="Claim that keeps the weights between runs."
    )

    @property
    def weights_source(self) -> WeightsSource | None:
        """Where the weights are copied from; None where they are the hub's, or nothing keeps them."""
        return self.model_cache.source if self.model_cache is not None else None

    @property
    def is_named(self) -> bool:
        """Whether ``model`` is a name, and neither a folder nor an address."""
        return not self.model.startswith(("/", ".")) and "://" not in self.model

    @field_validator("args")
    @classmethod
    def _args_not_ours(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for arg in value:
            if arg[:2] + (flag := arg.split("=", 1)[0].replace("_", "-"))[2:] in SET_BY_US:
                raise refuse(
                    f"{flag} is set by the operator", "Remove it; model, revision and replicas have fields."
                )
        return value

    @model_validator(mode="after")
    def _source_has_a_name(self) -> Self:
        if self.weights_source is not None and not self.is_named:
            raise refuse(
                f"modelCache.source is given with model {self.model[:60]}, a folder or an address",
                "Write the name to serve the weights under, or remove source.",
            )
        return self


class ServiceRef(Model):
    """A model server of the run's namespace that somebody else brings up: it is asked and never changed."""

    kind: Literal["LLMInferenceService", "InferencePool"] = Field(
        description="LLMInferenceService: KServe's, asked at the address in its status. InferencePool: "
        "Gateway API's, asked through the HTTPRoute that leads to it."
    )
    name: ObjectName = Field(description="Name of the object, in the run's namespace.")
    model: Str | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        description="Model name, as the server lists it; absent: the one that an LLMInferenceService states "
        "when the run first sees it. An InferencePool states none.",
    )
    revision: Str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Revision of the weights; a new one voids remembered calls.",
    )
    objective: ObjectName | None = Field(
        default=None,
        description="InferenceObjective that the calls are made under; one of negative priority makes them "
        "the first to be shed. Absent: priority 0.",
    )
    fairness_id: FlowId | None = Field(
        default=None,
        description="Calls with the same id share one tenant's part of the servers. Absent: they share it "
        "with all others that name none.",
    )

    @model_validator(mode="after")
    def _pool_has_a_model(self) -> Self:
        if self.kind == "InferencePool" and self.model is None:
            raise refuse(
                "kind InferencePool without model",
                "Add model: the name that its servers list at /v1/models.",
            )
        return self


class Engine(Model):
    """A model server: of the run's own, which it brings up and takes down, or one that is there."""

    exactly_one = ("vllm", "ref")
    name: Label = Field(description="Name that engineRef uses.")
    vllm: Vllm | None = Field(default=None, description="A vLLM server that the run brings up.")
    ref: ServiceRef | None = Field(default=None, description="A model server that is there already.")
    hardware: Hardware | None = Field(
        default=None,
        description="What answers there, such as 4x H100, two nodes. Absent: of a server that the run brings "
        "up, its replicas and GPUs, which the labels of nodes may name; of one that is there already, nobody "
        "said.",
    )
    shared: Bool | None = Field(
        default=None,
        description="Whether runs of the namespace with the same entry (name, vllm, template) use the same "
        "servers, side by side (vllm). Absent: the run has servers of its own.",
    )
    template: PodTemplate = Field(
        default_factory=PodTemplate, description="Allow-listed overrides of the server's pods (vllm)."
    )
    idle_timeout_seconds: Int = Field(
        default=IDLE_TIMEOUT_SECONDS,
        ge=0,
        le=86_400,
        description="Seconds without work after which the engine is taken down (vllm).",
    )

    @model_validator(mode="after")
    def _pods_are_our_own(self) -> Self:
        for name, value, default in (
            ("template", self.template, PodTemplate()),
            ("shared", self.shared, None),
            ("idleTimeoutSeconds", self.idle_timeout_seconds, IDLE_TIMEOUT_SECONDS),
        ):
            if self.ref is not None and value != default:
                raise refuse(
                    f"{name} is given with ref", f"Remove {name}: the run changes no pods but its own."
                )
        return self

    @property
    def server(self) -> Vllm:
        """The server that the run brings up. Raises BugError for one that is there already."""
        if self.vllm is None:
            raise BugError(f"engine {self.name} is not the run's own")
        return self.vllm

    @property
    def model(self) -> str:
        """The model to ask for; empty where only the service that ``ref`` names can tell."""
        return self.vllm.model if self.vllm is not None else (self.ref and self.ref.model) or ""

    @property
    def only_counts_gpus(self) -> bool:
        """Whether the run brings up servers with GPUs and does not say which: ``hardware_class`` has only
        their number."""
        return self.hardware is None and self.vllm is not None and self.vllm.gpus_per_replica > 0

    @property
    def hardware_class(self) -> str:
        """What its servers run on, as stated, or as the run asks for it; empty where nobody said.

        >>> Engine(name="main", vllm=Vllm(model="m", gpusPerReplica=2, replicas=3)).hardware_class
        '3 x 2 GPUs'
        """
        if self.hardware is not None or self.vllm is None:
            return self.hardware or ""
        gpus = self.vllm.gpus_per_replica
        return f"{self.vllm.replicas} x {'CPU' if not gpus else '1 GPU' if gpus == 1 else f'{gpus} GPUs'}"

    @property
    def start_date(self) -> str | None:
        """The date that the template gives gpt-oss; None where it leaves that to the operator."""
        given = (variable.value for variable in self.template.spec.env if variable.name == START_DATE)
        return next(given, None)

    @property
    def served_with(self) -> tuple[str, ...]:
        """All that the user says of how the run's own server serves the model and that can change answers."""
        dated = [] if self.start_date is None else [f"{START_DATE}={self.start_date}"]
        return (*self.server.args, *dated)
