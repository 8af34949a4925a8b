"""The status of a Playbook and of a PlaybookVersion. Digests, scores and sentences; never content."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from combee.api.common import MAP_BY_TYPE, Int
from combee.api.status import Part


class VersionPhase(StrEnum):
    """Where a version stands."""

    CANDIDATE = "Candidate"
    """waiting, or being compared."""
    ACTIVE = "Active"
    """what services get."""
    PREVIOUS = "Previous"
    """what a rollback goes back to."""
    REFUSED = "Refused"
    """by a person, a gate or an automatic rollback (``refusedBy``); never active again unless named."""
    INCONCLUSIVE = "Inconclusive"
    """compared as long as allowed, and it could not be told; it can be promoted by name."""
    SUPERSEDED = "Superseded"
    """was active, or was overtaken while it waited."""


Outcome = Literal["Passed", "Failed", "Inconclusive", "Error", "Waived"]
RefusedBy = Literal["", "Decision", "Gates", "Rollback"]


class PlainCondition(Part):
    """One condition, as Kubernetes has them, of any type and reason."""

    type: str = Field(description="What it speaks about.")
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    reason: str = Field(description="Why, in one stable word.")
    message: str = Field(default="", description="Why, for people.")
    observed_generation: Int = Field(default=0, ge=0, description="metadata.generation it speaks about.")
    last_transition_time: str = Field(default="", description="When status last changed.")


class Verdict(Part):
    """What a gate says of a candidate."""

    outcome: Outcome | None = Field(
        default=None, description="Passed, Failed, Inconclusive, Error, or Waived where nothing was asked."
    )
    reason: str = Field(default="", description="Why, in one stable word.")
    message: str = Field(default="", description="The numbers, in a sentence.")
    score: float | None = Field(default=None, description="Score of the candidate.")
    gain: float | None = Field(default=None, description="Score minus the active version's.")
    low: float | None = Field(default=None, description="Lower end of the gain's confidence interval.")
    high: float | None = Field(default=None, description="Upper end of it.")
    shrunk_gain: float | None = Field(
        default=None,
        description="The gain as it probably is: what passed was chosen for its gain, which is too large.",
    )
    samples: int = Field(default=0, ge=0, description="Examples or requests compared.")
    needed: int | None = Field(
        default=None,
        ge=0,
        description="Examples or requests still needed to tell; absent: none, or not known.",
    )
    against: str = Field(default="", description="Digest that it was compared with; empty: no playbook.")


class Comparison(Part):
    """A version and another one on the same heldOut examples, as measured."""

    against: str = Field(default="", description="Digest of the other one; empty: no playbook.")
    held_out_digest: str = Field(default="", description="Digest of heldOut.")
    score: float = Field(description="Score of this version.")
    other: float = Field(description="Score of the other one.")
    low: float = Field(description="Lower end of the difference's confidence interval.")
    high: float = Field(description="Upper end of it.")
    confidence: float = Field(default=0.95, description="Confidence of that interval.")
    rows: int = Field(ge=0, description="Examples compared.")
    discordant: int | None = Field(default=None, ge=0, description="Examples on which the two differ.")


class Look(Part):
    """Which look at a heldOut a version is. It is counted once and never changes."""

    held_out_digest: str = Field(default="", description="Digest of heldOut.")
    number: int = Field(ge=1, description="Its number, from 1: the higher, the more must be shown.")


class ErrorBudget(Part):
    """How much of the error that heldOut.confidence allows was spent on one heldOut."""

    held_out_digest: str = Field(default="", description="Digest of heldOut.")
    looks: int = Field(default=0, ge=0, description="Candidates looked at on it.")
    spent: float = Field(default=0.0, description="Part of 1 - confidence that they spent.")
    left: float = Field(default=0.0, description="What is left of it for all that come.")
    next_confidence: float = Field(
        default=0.0, description="Confidence of the interval that the next candidate is judged by."
    )
    message: str = Field(default="", description="The same in a sentence, and what to do when it is used up.")


class Thresholds(Part):
    """What a candidate is judged by, frozen when its comparison began."""

    digest: str = Field(default="", description="Digest of the rest.")
    min_score: float | None = Field(default=None, description="heldOut.minScore.")
    min_gain: float = Field(default=0.0, description="heldOut.minGain.")
    confidence: float = Field(default=0.95, description="heldOut.confidence.")
    mode: str = Field(default="", description="canary.mode; empty: no canary.")
    epsilon: float = Field(default=0.0, description="canary.epsilon.")
    min_samples: int = Field(default=0, description="canary.minSamples.")
    duration_seconds: int = Field(default=0, description="canary.durationSeconds.")
    deadline_seconds: int = Field(default=0, description="canary.deadlineSeconds.")
    max_latency_ratio: float = Field(default=0.0, description="canary.maxLatencyRatio.")
    evaluator: str = Field(
        default="", description="The evaluator: model, revision and address; empty: none, or not recorded."
    )
    asked: str = Field(
        default="",
        description="Digest of what is asked: requests and upstream of mode Replay, or the queries; empty: "
        "none of them.",
    )


class TrafficComparison(Part):
    """A comparison on traffic that is under way: what the gateway and the evaluating Job go by."""

    id: str = Field(description="Names this comparison; pairs of another one do not count.")
    kind: Literal["Promotion", "Watch"] = Field(
        description="Promotion: a candidate against the active version; Watch: the active against the one "
        "before."
    )
    mode: str = Field(description="canary.mode.")
    against: str = Field(default="", description="Digest of the other version.")
    traffic_percent: float = Field(
        default=0.0, description="Share of requests that is looked at, in percent."
    )
    since: str = Field(default="", description="When it began.")
    until: str = Field(default="", description="When it ends, told or not.")


class VersionStatus(Part):
    """What a PlaybookVersion says about itself."""

    observed_generation: int = Field(default=0, ge=0, description="metadata.generation this speaks about.")
    phase: VersionPhase = Field(default=VersionPhase.CANDIDATE, description="Where the version stands.")
    message: str = Field(default="", description="The same in a sentence.")
    conditions: tuple[PlainCondition, ...] = Field(
        default=(), description="Conditions, one of a type.", json_schema_extra=MAP_BY_TYPE
    )
    refused_by: RefusedBy = Field(
        default="", description="Who refused it: a person's Decision, the Gates, or an automatic Rollback."
    )
    promoted_by: Literal["", "Gates", "Decision", "Pin", "Rollback"] = Field(
        default="", description="What made it active last."
    )
    promoted_time: str = Field(default="", description="When it became active last.")
    thresholds: Thresholds | None = Field(default=None, description="What it is judged by, frozen.")
    restarts: int = Field(
        default=0,
        ge=0,
        description="How often its comparison began anew because thresholds or the other version changed.",
    )
    comparison: Comparison | None = Field(default=None, description="What was measured on heldOut.")
    look: Look | None = Field(
        default=None, description="Which look at heldOut it is; absent: it was not compared."
    )
    content: Verdict | None = Field(default=None, description="What the leak and injection checks say.")
    held_out: Verdict | None = Field(default=None, description="What heldOut says.")
    canary: Verdict | None = Field(default=None, description="What the canary says.")
    watch: Verdict | None = Field(
        default=None, description="What traffic says of it since it became active, against the one before."
    )
    test: TrafficComparison | None = Field(
        default=None, description="The comparison on traffic that is under way."
    )
    state: dict[str, Any] = Field(default_factory=dict, description="The operator's memory; not for people.")


class HistoryEntry(Part):
    """Something that happened to a version."""

    time: str = Field(description="When.")
    event: Literal["Promoted", "RolledBack", "Refused", "Inconclusive", "Restarted"] = Field(
        description="What happened."
    )
    digest: str = Field(description="To which version.")
    by: str = Field(default="", description="Decision, Pin, Gates or Rollback.")
    message: str = Field(default="", description="The numbers, or why.")


class HistoryLine(Part):
    """One decision about a version: a line of the Playbook's history, which only grows."""

    number: int = Field(default=0, ge=0, description="Its number, from 1.")
    time: str = Field(default="", description="When it was decided.")
    event: str = Field(
        default="",
        description="What was decided, in one word: docs/promotion.md has them. New ones may come.",
    )
    digest: str = Field(default="", description="Of which version; empty: of none.")
    by: str = Field(default="", description="Decision, Pin, Gates or Rollback.")
    who: str = Field(
        default="",
        description="The program that last wrote the decision or the pin, and when, as the API server noted.",
    )
    policy: str = Field(default="", description="What versions were judged by at that time.")
    message: str = Field(default="", description="The numbers, or why.")
    before: str = Field(default="", description="Digest of the line before; empty of the first.")


class Trail(Part):
    """How far a Playbook's history goes. Its lines are in ConfigMaps that cannot be changed."""

    lines: int = Field(default=0, ge=0, description="Number of the last line.")
    digest: str = Field(default="", description="Digest of the last line.")
    pending: tuple[HistoryLine, ...] = Field(
        default=(), description="Lines that are still to be written into ConfigMaps."
    )


class PlaybookShown(Part):
    """Figures in words, for the columns of `kubectl get`."""

    active: str = Field(default="", description="First 12 digits of the active digest.")
    candidate: str = Field(default="", description="First 12 digits of the candidate's.")
    gain: str = Field(default="", description="Gain on heldOut over the active version, such as +0.221.")
    canary: str = Field(
        default="", description="What the canary says, or while it compares how far it is: 433/466 pairs."
    )
    next_look: str = Field(
        default="", description="Confidence that the next candidate is judged by, such as 99.82 %."
    )


class PlaybookStatus(Part):
    """What a Playbook says about itself; the candidate's verdicts are mirrored here."""

    observed_generation: int = Field(default=0, ge=0, description="metadata.generation this speaks about.")
    message: str = Field(default="", description="Where it stands, in a sentence.")
    conditions: tuple[PlainCondition, ...] = Field(
        default=(), description="Conditions, one of a type.", json_schema_extra=MAP_BY_TYPE
    )
    active_digest: str = Field(default="", description="The version that is delivered.")
    previous_digest: str = Field(default="", description="The version before it.")
    candidate_digest: str = Field(default="", description="The version that is compared.")
    held_out_digest: str = Field(default="", description="The heldOut that versions are compared on.")
    held_out: Verdict | None = Field(default=None, description="What heldOut says of the candidate.")
    error_budget: ErrorBudget | None = Field(
        default=None, description="What the candidates of its life may still err on this heldOut."
    )
    canary: Verdict | None = Field(default=None, description="What the canary says of the candidate.")
    watch: Verdict | None = Field(default=None, description="What traffic says of the active version since.")
    run_name: str = Field(default="", description="The latest run made from learn.template.")
    next_run_time: str = Field(default="", description="When the next scheduled run is made.")
    history: tuple[HistoryEntry, ...] = Field(default=(), description="The last 20 events, newest last.")
    trail: Trail | None = Field(
        default=None, description="How far the whole history goes; `kubectl combee playbook history` has it."
    )
    warnings: tuple[str, ...] = Field(
        default=(),
        description="What the spec asks for and can hardly get, and that it waives its canary or has none.",
    )
    shown: PlaybookShown = Field(
        default_factory=PlaybookShown, description="Figures as `kubectl get` shows them."
    )
    state: dict[str, Any] = Field(default_factory=dict, description="The operator's memory; not for people.")
