"""``Playbook``, what a service uses and when that may change, and ``PlaybookVersion``, one candidate for it.

A Playbook is kept in git, like a Deployment. A PlaybookVersion is made by the operator, one for each
candidate, and is never in git; people set only its ``decision``.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, Strict, model_validator

from combee.api.canary import Canary
from combee.api.common import (
    LARGEST_INT,
    Bool,
    Digest,
    Float,
    Form,
    Int,
    Model,
    NameRef,
    ObjectName,
    Str,
    Words,
    refuse,
)
from combee.api.gateway import LONGEST_MODEL, Gateway
from combee.api.metric import Rubric
from combee.api.objectmeta import ObjectMeta
from combee.api.playbook_status import PlaybookStatus, VersionStatus
from combee.api.run import RunSpec
from combee.api.stakes import WEAKEST, FailureCost, Stakes, too_weak

CRON = Form(
    "Cron",
    "[^ ]+( [^ ]+){4}",
    "not a schedule",
    'Write five fields of cron, such as "0 3 * * 1" for Mondays at three, UTC.',
)
Cron = Annotated[str, Strict(), Field(max_length=100), CRON]


class RunTemplate(RunSpec):
    """The spec of the runs that a Playbook makes; playbookRef is filled in."""

    @model_validator(mode="after")
    def _playbook_is_named(self) -> Self:
        if self.playbook_ref is not None:
            raise refuse("playbookRef is given in a template", "Remove it: the runs are this Playbook's.")
        return self


class Learn(Model):
    """Runs made by the Playbook, named by the template's hash."""

    trigger: Literal["OnChange", "Schedule", "Manual"] = Field(
        default="OnChange",
        description="OnChange: when the template or what its data hold changes; Schedule: by cron; Manual: "
        "by `kubectl combee`.",
    )
    schedule: Cron | None = Field(
        default=None, description="When, in five fields of cron, UTC; with trigger Schedule only."
    )
    poll_seconds: Int = Field(
        default=300,
        ge=10,
        le=86_400,
        description="With trigger OnChange: how often the template's data are looked at.",
    )
    history_limit: Int = Field(default=5, ge=1, le=100, description="Finished runs kept.")
    template: RunTemplate = Field(
        description="A run's spec, without playbookRef; `kubectl explain plr.spec` explains its fields."
    )

    @model_validator(mode="after")
    def _schedule_goes_with_trigger(self) -> Self:
        if self.trigger == "Schedule" and self.schedule is None:
            raise refuse("trigger Schedule without schedule", 'Add schedule: "0 3 * * 1".')
        if self.trigger != "Schedule" and self.schedule is not None:
            raise refuse(f"schedule is given with trigger {self.trigger}", "Set trigger: Schedule.")
        return self


class VersionPolicy(Model):
    """Who decides which version is active."""

    policy: Literal["Automatic", "Manual"] = Field(
        default="Automatic",
        description="Automatic: a candidate that passes its gates; Manual: people, by decision or pin.",
    )
    pinned_digest: Digest | None = Field(
        default=None,
        description="The version that is to be active, whatever the gates say; a refused one never is.",
    )
    history_limit: Int = Field(
        default=10,
        ge=1,
        le=1000,
        description="Versions kept beside the active one, those in use and those that were refused.",
    )


class HeldOutGate(Model):
    """What a candidate must show on heldOut. Whatever stands here, none passes whose own run did not show a
    gain: the 95 % interval of what it measured on gate must lie above 0. Each further candidate on the same
    heldOut must show more."""

    min_score: Float | None = Field(default=None, ge=0, le=1, description="Least score; absent: any.")
    min_gain: Float = Field(
        default=0.0,
        ge=-1,
        le=1,
        description="Least gain over the active version, at the interval's lower end.",
    )
    confidence: Float = Field(
        default=0.95,
        ge=0.5,
        lt=1,
        description="Confidence of the first candidate's interval. Later ones are judged by wider intervals: "
        "of Playbooks whose candidates gain nothing, 1 - confidence at most ever promote one on a heldOut.",
    )
    digest: Digest | None = Field(
        default=None,
        description="The heldOut that versions are compared on; absent: the first one's. Changed data are "
        "refused as HeldOutMoved until their digest stands here.",
    )
    reason: Words | None = Field(
        default=None,
        max_length=500,
        description="Why digest names other rows than candidates were compared on before; shown with each "
        "verdict. Under discipline Strict it is asked for where no gain was shown on those rows.",
    )

    @model_validator(mode="after")
    def _reason_goes_with_digest(self) -> Self:
        if self.reason is not None and self.digest is None:
            raise refuse("reason is given without digest", "Add digest: of the new rows, or remove reason.")
        return self


class Delivery(Model):
    """How services get the active version."""

    config_map: NameRef | None = Field(
        default=None, description="ConfigMap that holds it; absent: named as the Playbook, with -playbook."
    )
    gateway: Gateway = Field(default_factory=Gateway, description="The gateway.")
    deletion_policy: Literal["Orphan", "Delete"] = Field(
        default="Orphan",
        description="Orphan: the delivered ConfigMap outlives the Playbook; Delete: it goes with it.",
    )


class PlaybookSpec(Model):
    """The spec of a Playbook."""

    learn: Learn | None = Field(default=None, description="Runs made by the Playbook; absent: none.")
    version: VersionPolicy = Field(
        default_factory=VersionPolicy, description="Who decides which version is active."
    )
    held_out: HeldOutGate = Field(
        default_factory=HeldOutGate, description="What a candidate must show on heldOut."
    )
    failure_cost: FailureCost = Field(
        default="Medium",
        description="What a wrong answer costs the service. It sets the least minSamples and durationSeconds "
        "of a canary that compares, and the largest epsilon of each: "
        + "; ".join(
            f"{cost}: {least.min_samples:,}, {least.duration_seconds:,} s, {least.epsilon:g}"
            for cost, least in WEAKEST.items()
        )
        + ".",
    )
    canary: Canary | None = Field(
        default=None,
        description="What it must show on traffic; absent: a version that passed heldOut waits until "
        "somebody approves it.",
    )
    delivery: Delivery = Field(default_factory=Delivery, description="How services get the active version.")

    @model_validator(mode="after")
    def _canary_has_traffic(self) -> Self:
        mode, gateway = self.canary.mode if self.canary is not None else None, self.delivery.gateway
        if mode == "Shadow" and not gateway.enabled:
            raise refuse(
                "a canary of mode Shadow without gateway",
                "Set delivery.gateway.enabled: true with an upstream: the gateway mirrors requests.",
            )
        if mode == "Replay" and gateway.upstream is None:
            raise refuse(
                "a canary of mode Replay without upstream",
                "Add delivery.gateway.upstream: {url: ...}, the API that answers the requests.",
            )
        return self

    @model_validator(mode="after")
    def _replay_has_requests(self) -> Self:
        captures = self.delivery.gateway.enabled and self.delivery.gateway.capture.enabled
        if self.canary is None or self.canary.mode != "Replay" or captures:
            return self
        if self.canary.replay.requests is None:
            raise refuse(
                "a canary of mode Replay without requests",
                "Add canary.replay.requests, or let the gateway keep some with "
                "delivery.gateway.capture.enabled.",
            )
        return self

    @model_validator(mode="after")
    def _canary_fits_failure_cost(self) -> Self:
        canary, cost, least = self.canary, self.failure_cost, WEAKEST[self.failure_cost]
        if canary is None:
            return self
        # Nobody counts samples for a person's word or a waiver; the watch afterwards has an epsilon, too.
        uncounted = canary.mode in (None, "Manual")
        weak = [
            too_weak(name, cost)
            for name, holds in (
                ("minSamples", uncounted or canary.min_samples >= least.min_samples),
                ("durationSeconds", uncounted or canary.duration_seconds >= least.duration_seconds),
                ("epsilon", canary.epsilon <= least.epsilon),
            )
            if not holds
        ]
        if weak:
            raise refuse("; ".join(weak), "Make the canary as strict as that, or give another failureCost.")
        return self


class Playbook(Model):
    """The artifact that a service uses, and when a new version of it may be."""

    api_version: Literal["combee.dev/v1alpha1"] = Field(description="Version of this API.")
    kind: Literal["Playbook"] = Field(description="Kind of the object.")
    metadata: ObjectMeta = Field(description="Name, and what Kubernetes adds.")
    spec: PlaybookSpec = Field(description="What to deliver, and when.")
    status: PlaybookStatus | None = Field(default=None, description="Written by the operator.")


class RunRef(Model):
    """The run that made a version."""

    name: Str = Field(min_length=1, max_length=253, description="Its name.")
    uid: Str | None = Field(default=None, max_length=64, description="Its UID; it may be gone by now.")


class GateScore(Model):
    """The one look at the gate rows."""

    baseline: Float = Field(ge=0, le=1, description="Score of the start.")
    best: Float = Field(ge=0, le=1, description="Score of this version.")
    low: Float = Field(ge=-1, le=1, description="Lower end of the gain's confidence interval.")
    high: Float = Field(ge=-1, le=1, description="Upper end of it.")
    rows: Int = Field(ge=0, le=LARGEST_INT, description="Examples compared.")
    discordant: Int | None = Field(
        default=None, ge=0, le=LARGEST_INT, description="Examples on which the two differ."
    )


class Origin(Model):
    """Where a version comes from."""

    iteration: Int | None = Field(
        default=None, ge=0, le=LARGEST_INT, description="Iteration that it is the artifact of."
    )
    method: Str | None = Field(default=None, max_length=63, description="Base method.")
    models: dict[Str, Annotated[str, Strict(), Field(max_length=LONGEST_MODEL)]] = Field(
        default_factory=dict, max_length=8, description="Model of each role."
    )
    data_digests: dict[Str, Digest] = Field(
        default_factory=dict,
        max_length=8,
        description="Digest of each split that it learned from or was scored on.",
    )
    forgotten: tuple[Annotated[str, Strict(), Field(max_length=170)], ...] = Field(
        default=(),
        max_length=2000,
        description="Rows that it was learned without: ids of train, and ids of heldOut after that word.",
    )
    seed: Int | None = Field(default=None, ge=0, le=LARGEST_INT, description="The run's seed.")
    rollouts: Int | None = Field(default=None, ge=0, le=LARGEST_INT, description="Rollouts that it cost.")
    tokens: Int | None = Field(default=None, ge=0, le=LARGEST_INT, description="Tokens that it cost.")
    gpu_seconds: Float | None = Field(default=None, ge=0, description="Seconds times GPUs that it cost.")
    steward: Str = Field(default="", max_length=253, description="Who keeps heldOut.")
    used_for_tuning: Bool = Field(default=False, description="Whether anything was tuned on heldOut before.")
    failure_cost: Str = Field(default="", max_length=500, description="What a wrong answer costs, in words.")
    rubric: Rubric | None = Field(
        default=None,
        description="What its answers were scored by: a canary's evaluator judges by the same.",
    )

    @property
    def stakes(self) -> Stakes:
        """What its verdicts are worth, in the run's words."""
        return Stakes(self.steward, self.used_for_tuning, self.failure_cost)


class Scores(Model):
    """How the version scored when it was learned."""

    select: Float | None = Field(default=None, ge=0, le=1, description="Score on heldOut's select half.")
    gate: GateScore | None = Field(default=None, description="The one look at heldOut's gate half.")
    test: Float | None = Field(default=None, ge=0, le=1, description="Score on test.")


class VersionSpec(Model):
    """The spec of a PlaybookVersion: a record that never changes, and people's decision on it."""

    playbook_ref: NameRef = Field(description="The Playbook it is a version of.")
    digest: Digest = Field(description="The artifact.")
    parent_digest: Digest | None = Field(
        default=None, description="The artifact that learning started from; absent: an empty one."
    )
    run_ref: RunRef | None = Field(
        default=None, description="The run that made it; absent: given by a person."
    )
    origin: Origin = Field(default_factory=Origin, description="Where it comes from.")
    scores: Scores = Field(default_factory=Scores, description="How it scored when it was learned.")
    config_map_name: ObjectName = Field(description="Immutable ConfigMap with the content.")
    content_digests: dict[Str, Digest] = Field(
        default_factory=dict,
        max_length=16,
        description="SHA-256 of each key of that ConfigMap, as the run published it. Nobody reads one that "
        "differs. Absent, as of an earlier release: only the digest in its annotation is looked at.",
    )
    decision: Literal["Approve", "Auto", "Promote", "Refuse"] = Field(
        default="Auto",
        description="Auto: the gates decide; Approve: they decide, and a canary of mode Manual, or one that "
        "is not given, is passed; Promote: make it active, also when it was refused; Refuse: never, and at "
        "once. Refuse, then a pin, then Promote, then the gates.",
    )


class PlaybookVersion(Model):
    """One candidate for a Playbook. Made by the operator; only ``decision`` can change."""

    api_version: Literal["combee.dev/v1alpha1"] = Field(description="Version of this API.")
    kind: Literal["PlaybookVersion"] = Field(description="Kind of the object.")
    metadata: ObjectMeta = Field(description="Name, and what Kubernetes adds.")
    spec: VersionSpec = Field(description="What it is, and what people decided.")
    status: VersionStatus | None = Field(default=None, description="Written by the operator.")
