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
    ACTIVE = "Active"
    PREVIOUS = "Previous"
    REFUSED = "Refused"
    SUPERSEDED = "Superseded"


Outcome = Literal["Passed", "Failed", "Inconclusive", "Error"]


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

    outcome: Outcome | None = Field(default=None, description="Passed, Failed, Inconclusive or Error.")
    message: str = Field(default="", description="The numbers, in a sentence.")
    score: float | None = Field(default=None, description="Score of the candidate.")
    gain: float | None = Field(default=None, description="Score minus the active version's.")
    low: float | None = Field(default=None, description="Lower end of the gain's confidence interval.")
    high: float | None = Field(default=None, description="Upper end of it.")
    samples: int = Field(default=0, ge=0, description="Examples or requests compared.")


class VersionStatus(Part):
    """What a PlaybookVersion says about itself."""

    observed_generation: int = Field(default=0, ge=0, description="metadata.generation this speaks about.")
    phase: VersionPhase = Field(default=VersionPhase.CANDIDATE, description="Where the version stands.")
    message: str = Field(default="", description="The same in a sentence.")
    conditions: tuple[PlainCondition, ...] = Field(
        default=(), description="Conditions, one of a type.", json_schema_extra=MAP_BY_TYPE
    )
    held_out: Verdict | None = Field(default=None, description="What heldOut says.")
    canary: Verdict | None = Field(default=None, description="What the canary says.")
    state: dict[str, Any] = Field(default_factory=dict, description="The operator's memory; not for people.")


class PlaybookStatus(Part):
    """What a Playbook says about itself; the candidate's verdicts are mirrored here."""

    observed_generation: int = Field(default=0, ge=0, description="metadata.generation this speaks about.")
    message: str = Field(default="", description="Where it stands, in a sentence.")
    conditions: tuple[PlainCondition, ...] = Field(
        default=(), description="Conditions, one of a type.", json_schema_extra=MAP_BY_TYPE
    )
    active_digest: str = Field(default="", description="The version that is delivered.")
    previous_digest: str = Field(default="", description="The version before it.")
    candidate_digest: str = Field(default="", description="The version under test.")
    held_out: Verdict | None = Field(default=None, description="What heldOut says of the candidate.")
    canary: Verdict | None = Field(default=None, description="What the canary says of the candidate.")
    run_name: str = Field(default="", description="The latest run made from learn.template.")
    state: dict[str, Any] = Field(default_factory=dict, description="The operator's memory; not for people.")
