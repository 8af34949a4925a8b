"""The parts of a run's spec that say what to learn from and with: task, data, engines, models."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, field_validator, model_validator

from combee import extensions
from combee.api.common import (
    LARGEST_INT,
    MAP_BY_NAME,
    OUR_PREFIX,
    Annotations,
    Bool,
    ClaimPath,
    ConfigMapKeyRef,
    DataUri,
    Digest,
    EndpointUrl,
    Int,
    Labels,
    Model,
    NameRef,
    ObjectName,
    SecretKeyRef,
    Str,
    Words,
    distinct,
    refuse,
)
from combee.api.extension import Names
from combee.api.metric import FRACTIONS, OWN, RUBRIC, Ceiling, Scored
from combee.api.sampling import Sampling
from combee.api.stakes import Stakes
from combee.api.tasks import CustomContainer, CustomTask, TracesOptions
from combee.api.texts import EnvName, ResourceList

TASK_NAMES = Names(extensions.TASKS, ("Formula", "FiNER", "Reply", "Traces", "Custom"))
TaskType = Annotated[str, Strict(), Field(max_length=63), TASK_NAMES]


RowId = Annotated[str, Strict(), Field(min_length=1, max_length=160)]
"""the id of a row or a trace; of a row without one, the number of its line."""


def secret_goes_with_uri(place: Any) -> Any:
    """Check a model with ``uri`` and ``secret_ref``, the credentials for it."""
    if place.secret_ref is not None and place.uri is None:
        raise refuse("secretRef is given without uri", "Remove secretRef: only a uri needs credentials.")
    return place


class DataSource(Model):
    """One split of the data: JSON lines, from exactly one place."""

    exactly_one = ("uri", "config_map", "pvc")
    uri: DataUri | None = Field(
        default=None,
        description="s3://, gs://, az:// or https:// address of a JSON-lines file; on a laptop also file: "
        "or a path relative to the manifest.",
    )
    config_map: ConfigMapKeyRef | None = Field(
        default=None, description="A ConfigMap's key that holds the rows."
    )
    pvc: ClaimPath | None = Field(default=None, description="A file on a PersistentVolumeClaim.")
    secret_ref: NameRef | None = Field(default=None, description="Secret with the credentials for uri.")
    forgotten: tuple[RowId, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="Ids of rows that the run learns without, as if they had never been. Those of train keep "
        "their places in the order.",
    )

    _secret_goes_with_uri = model_validator(mode="after")(secret_goes_with_uri)


class HeldOutSource(DataSource):
    """The split that candidates are selected and gated on."""

    steward: Words | None = Field(
        default=None, max_length=253, description="Who keeps this split; shown with every verdict it gives."
    )
    used_for_tuning: Bool | None = Field(
        default=None,
        description="Whether anything (prompts, thresholds) was tuned on these rows before; if true, "
        "reports say so. Absent: nobody said.",
    )


class DataSplits(Model):
    """Learn on train, select and gate on heldOut, touch test once at the end."""

    train: DataSource = Field(description="Rows to learn from.")
    held_out: HeldOutSource | None = Field(
        default=None,
        description="Rows that select and gate candidates; never learned from. All types but Traces need "
        "them.",
    )
    test: DataSource | None = Field(default=None, description="Rows scored once, at the very end.")

    @property
    def forgotten(self) -> tuple[str, ...]:
        """What is learned without: rows of train by their ids, and those of heldOut marked as such, by a word
        that no id holds. Test teaches nothing."""
        held_out = self.held_out.forgotten if self.held_out is not None else None
        return (*(self.train.forgotten or ()), *(f"heldOut {one}" for one in held_out or ()))


class InitialPlaybook(Model):
    """The playbook that learning starts from."""

    exactly_one = ("uri", "config_map", "active_version")
    uri: DataUri | None = Field(default=None, description="Path or address of prompt.md or artifact.json.")
    config_map: ConfigMapKeyRef | None = Field(default=None, description="A ConfigMap's key that holds it.")
    active_version: Literal[True] | None = Field(
        default=None, description="true: the active version of the Playbook that playbookRef names."
    )
    sha256: Digest | None = Field(
        default=None, description="Digest of that text, as sha256sum prints it; absent: what is there."
    )


class Task(Scored):
    """What is learned, from which rows."""

    type: TaskType = Field(description="Task of the worker's registry, or Custom.")
    custom: CustomTask | None = Field(default=None, description="Your own task; with type Custom only.")
    traces: TracesOptions | None = Field(default=None, description="With type Traces only.")
    data: DataSplits = Field(description="Rows, by split.")
    failure_cost: Words | None = Field(
        default=None, max_length=500, description="What a wrong answer costs, in words; shown in reports."
    )
    initial_playbook: InitialPlaybook | None = Field(
        default=None, description="Playbook to start from; absent: an empty one."
    )

    @property
    def stakes(self) -> Stakes:
        """What the verdicts on what is learned are worth, in the manifest's words."""
        held_out = self.data.held_out
        return Stakes(
            (held_out.steward or "") if held_out is not None else "",
            held_out is not None and bool(held_out.used_for_tuning),
            self.failure_cost or "",
        )

    @property
    def scores_itself(self) -> bool:
        """Whether answers come with their score: those in recordings, containers and adapters do."""
        custom = self.custom
        return self.type == "Traces" or (custom is not None and custom.class_ is None)

    @property
    def container(self) -> CustomContainer | None:
        """The container that rolls out, where one does."""
        return self.custom.container if self.custom is not None else None

    @model_validator(mode="after")
    def _custom_goes_with_type(self) -> Self:
        if self.type == "Custom" and self.custom is None:
            raise refuse(
                "type Custom without custom",
                'Add custom: {class: "module:Class"}, {container: ...} or {adapter: ...}.',
            )
        if self.type != "Custom" and self.custom is not None:
            raise refuse(f"custom is given with type {self.type}", "Set type: Custom, or remove custom.")
        if self.type != "Traces" and self.traces is not None:
            raise refuse(f"traces is given with type {self.type}", "Set type: Traces, or remove traces.")
        return self

    @model_validator(mode="after")
    def _metric_fits(self) -> Self:
        if self.metric != OWN and self.scores_itself:
            raise refuse(
                f"metric {self.metric}, and what rolls out gives the score itself", f"Set metric: {OWN}."
            )
        if self.type == "Reply" and self.metric == OWN:
            raise refuse(
                f"metric {OWN} with type Reply, whose answers have no score of their own",
                f"Set metric: {RUBRIC}, or one that compares with the rows' targets.",
            )
        if self.metric == RUBRIC and self.rubric is None:
            raise refuse("metric rubric without rubric", "Add rubric: {criteria: [...]}.")
        if self.metric != RUBRIC and self.rubric is not None:
            raise refuse(
                f"rubric is given with metric {self.metric}", "Set metric: rubric, or remove rubric."
            )
        if self.metric != "numeric" and self.tolerance is not None:
            raise refuse(
                f"tolerance is given with metric {self.metric}", "Set metric: numeric, or remove tolerance."
            )
        if self.metric not in FRACTIONS and self.right_from is not None:
            raise refuse(
                f"rightFrom is given with metric {self.metric}",
                f"Set metric: {' or '.join(FRACTIONS)}, or remove rightFrom.",
            )
        return self

    @model_validator(mode="after")
    def _rows_are_scored(self) -> Self:
        for field, given in (("clusterBy", self.cluster_by), ("passK", self.pass_k)):
            if given is not None and self.type == "Traces":
                raise refuse(
                    f"{field} is given with type Traces, which scores nothing by rows", f"Remove {field}."
                )
        return self

    @model_validator(mode="after")
    def _held_out_goes_with_type(self) -> Self:
        if self.type != "Traces" and self.data.held_out is None:
            raise refuse(
                "data.heldOut is required and missing", "Add heldOut: rows that select and gate candidates."
            )
        if self.type == "Traces" and (self.data.held_out is not None or self.data.test is not None):
            named = "heldOut" if self.data.held_out is not None else "test"
            raise refuse(
                f"data.{named} is given with type Traces, which has no rollouts to score on it",
                f"Remove {named}; the Playbook's canary or a person judges what comes of traces.",
            )
        return self


class Toleration(Model):
    """A pod's toleration, as in Kubernetes."""

    key: Str | None = Field(default=None, max_length=317, description="Taint key.")
    operator: Literal["Equal", "Exists"] | None = Field(default=None, description="How value is compared.")
    value: Str | None = Field(default=None, max_length=63, description="Taint value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect."
    )
    toleration_seconds: Int | None = Field(
        default=None, ge=0, le=LARGEST_INT, description="Seconds a NoExecute taint is tolerated."
    )


class EnvVar(Model):
    """An environment variable with a plain value."""

    name: EnvName = Field(description="Name; operations.md lists those allowed.")
    value: Str = Field(default="", max_length=4096, description="Value; never a secret.")


class Resources(Model):
    """What a container asks for and may use at most, as in Kubernetes."""

    requests: ResourceList = Field(
        default_factory=dict, description="Asked for: cpu, memory, ephemeral-storage, such as cpu: 500m."
    )
    limits: ResourceList = Field(
        default_factory=dict, description="Used at most; the same names. GPUs are gpusPerReplica's."
    )


class PodTemplateMeta(Model):
    """Labels and annotations added to the pods."""

    labels: Labels = Field(default_factory=dict, description="Labels added to the pods.")
    annotations: Annotations = Field(default_factory=dict, description="Annotations added to the pods.")

    @field_validator("labels", "annotations")
    @classmethod
    def _not_ours(cls, value: dict[str, str]) -> dict[str, str]:
        for key in value:
            if key.startswith(OUR_PREFIX):
                raise refuse(f"{key[:60]!r} is the operator's to set", "Use a prefix of your own.")
        return value


class PodTemplateSpec(Model):
    """What of the pods may be overridden: placement and size, nothing that changes what runs."""

    node_selector: Labels = Field(default_factory=dict, description="Labels that nodes must have.")
    tolerations: tuple[Toleration, ...] = Field(default=(), max_length=64, description="Tolerations.")
    affinity: dict[str, Any] | None = Field(default=None, description="Affinity, as in Kubernetes.")
    topology_spread_constraints: tuple[dict[str, Any], ...] = Field(
        default=(), max_length=16, description="Topology spread constraints, as in Kubernetes."
    )
    priority_class_name: ObjectName | None = Field(default=None, description="Priority class.")
    runtime_class_name: ObjectName | None = Field(default=None, description="Runtime class.")
    scheduler_name: ObjectName | None = Field(default=None, description="Scheduler.")
    service_account_name: ObjectName | None = Field(
        default=None, description="Service account; the requester must be allowed to use it."
    )
    image_pull_secrets: tuple[NameRef, ...] = Field(
        default=(), max_length=16, description="Image pull Secrets."
    )
    env: tuple[EnvVar, ...] = Field(
        default=(),
        max_length=64,
        description="Environment variables added; ours are never replaced.",
        json_schema_extra=MAP_BY_NAME,
    )
    resources: Resources | None = Field(default=None, description="Resources; absent: the chart's.")

    @field_validator("env")
    @classmethod
    def _env_names_differ(cls, value: tuple[EnvVar, ...]) -> tuple[EnvVar, ...]:
        return distinct(value, "variables")


class PodTemplate(Model):
    """Allow-listed overrides of the pods."""

    metadata: PodTemplateMeta = Field(default_factory=PodTemplateMeta, description="Labels and annotations.")
    spec: PodTemplateSpec = Field(default_factory=PodTemplateSpec, description="Placement and size.")


Hardware = Annotated[Words, Field(max_length=200)]
"""GPU or CPU type, count and network, in words: one class of hardware is told from another by them."""


class Endpoint(Model):
    """An OpenAI-compatible API that exists already."""

    url: EndpointUrl = Field(max_length=2000, description="Base address of the API, usually ending in /v1.")
    model: Str = Field(min_length=1, max_length=500, description="Model name, as the API lists it.")
    revision: Str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Revision of the weights; a new one voids remembered calls.",
    )
    api_key_secret_ref: SecretKeyRef | None = Field(default=None, description="The API key.")
    hardware: Hardware | None = Field(
        default=None, description="What answers there, such as 8x H100, one node. Absent: nobody said."
    )


class RoleModel(Model):
    """The model behind one role."""

    exactly_one = ("engine_ref", "endpoint")
    engine_ref: NameRef | None = Field(default=None, description="An engine of this run.")
    endpoint: Endpoint | None = Field(default=None, description="An API that exists already.")
    sampling: Sampling = Field(default_factory=Sampling, description="Sampling.")


class EvaluatorModel(RoleModel):
    """The model that scores answers."""

    same_as_proposer: Words | None = Field(
        default=None,
        max_length=500,
        description="Why the proposer's own model scores, such as its cost; refused without a reason.",
    )
    score_again: Words | None = Field(
        default=None,
        max_length=500,
        description="Why answers that this evaluator scored before are scored again; once for each reason. "
        "Absent: each is scored once.",
    )
    ceiling: Ceiling | None = Field(
        default=None, description="Where a verdict takes more, the proxy scores all but gate and test."
    )


class Models(Model):
    """Models by role; roles are never mixed."""

    task: RoleModel = Field(description="Answers the examples.")
    proposer: RoleModel = Field(description="Reflects and aggregates.")
    evaluator: EvaluatorModel | None = Field(
        default=None, description="Scores answers with metric rubric; with others it is never asked."
    )
    referee: RoleModel | None = Field(
        default=None,
        description="Scores some of the same answers before anything is learned, so that the evaluator is "
        "calibrated; not asked where rows carry labels.",
    )
    proxy: RoleModel | None = Field(
        default=None,
        description="Scores instead of the evaluator in map, replays and select where a verdict takes more "
        "than evaluator.ceiling; it is compared with the evaluator first.",
    )
    embedder: RoleModel | None = Field(
        default=None, description="Embeds reflections for strategy TopK; other strategies never ask it."
    )
