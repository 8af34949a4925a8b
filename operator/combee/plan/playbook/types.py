"""What ``decide_playbook`` reads and what it returns, as plain data.

    Playbook, its PlaybookVersions, runs, ConfigMaps, judged pairs
        -> observe -> PlaybookSeen
        -> decide_playbook(about, status, seen) -> PlaybookPlan
        -> the executor makes it true

The executor goes through a plan in this order, and stops where a write fails (the next tick decides
anew from what is there):

1. ``status`` onto the Playbook: the record of what is active, and of what was refused.
2. ``deliver``: the active content into the delivered ConfigMap; where it cannot be, the rest goes on.
3. ``events``, only when 1 was written.
4. The pending lines of ``status.trail``, each into a ConfigMap; where they cannot be, the rest goes on.
5. ``versions`` onto the PlaybookVersions, those that differ from what was seen.
6. ``runs``: wished for again until they are seen; then what is pruned.

Pairs that were handed in may be forgotten once 5 was written: the tally in the version's status holds
them. Handed in again, they count once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from combee.algo.tally import LeftOut, Pair
from combee.api.metric import Rubric
from combee.api.playbook import PlaybookSpec, VersionSpec
from combee.api.playbook_status import PlaybookStatus, TrafficComparison, VersionStatus
from combee.api.run import Discipline, RunSpec
from combee.methods.findings import Finding
from combee.plan.cluster.hardware import EngineGpus
from combee.plan.gatescores import GateScores
from combee.plan.playbook.readings import Reading
from combee.plan.playbook.serving import Version
from combee.plan.playbook.trail import FiledLine

When = Callable[[float], str]
"""Writes seconds since 1970 as the API writes times; empty for 0."""


@dataclass(frozen=True, slots=True)
class About:
    """The Playbook that a tick is about."""

    name: str
    generation: int
    spec: PlaybookSpec
    when: When
    learn_request: str = ""
    """the text of the annotation ``names.LEARN_ANNOTATION``: each new one asks for one run."""
    unreadable: str = ""
    """why the written spec cannot be followed; ``spec`` is then what is left of it (``salvaged``)."""
    allow_waived: bool = True
    """whether this installation lets a Playbook waive its canary."""
    pinned_by: str = ""
    """the program that last wrote the pin, and when; empty where that is not known."""
    discipline: Discipline = "Strict"
    """this installation's, for a template that names none."""
    nodes: EngineGpus = field(default_factory=EngineGpus)
    """what the nodes say of the template's engines."""

    @property
    def strict(self) -> bool:
        """Whether what is not stated is refused."""
        learn = self.spec.learn
        stated = learn.template.discipline if learn is not None else None
        return (stated or self.discipline) == "Strict"


@dataclass(frozen=True, slots=True)
class VersionSeen:
    """A PlaybookVersion of this Playbook, and what its ConfigMap holds."""

    name: str
    generation: int
    created: str
    """``metadata.creationTimestamp``, a text that sorts by time."""
    spec: VersionSpec
    status: VersionStatus
    has_content: bool = True
    """whether its immutable ConfigMap is there, says the same digest, and holds what was published."""
    replaced: tuple[str, ...] = ()
    """the keys of that ConfigMap that are not as they were published; then nothing of it is read."""
    gate: GateScores | None = None
    """the scores on heldOut, example by example, where the ConfigMap has them."""
    findings: tuple[Finding, ...] | None = None
    """the result of ``content.findings``; None while the content was not looked at."""
    decided_by: str = ""
    """the program that last wrote ``spec.decision``, and when; empty where that is not known."""

    @property
    def digest(self) -> str:
        return self.spec.digest

    @property
    def replaced_sentence(self) -> str:
        """What to say where its content was replaced."""
        keys = ", ".join(self.replaced)
        return (
            f"ConfigMap {self.spec.config_map_name} was replaced: {keys} is not what its run published; "
            "nothing is read from it until it is restored"
        )


@dataclass(frozen=True, slots=True)
class RunSeen:
    """A run made from this Playbook's ``spec.learn.template``, which the Playbook owns."""

    name: str
    created: str
    over: bool
    """whether its phase says that nothing more will happen."""
    looked_at: str = ""
    """the digest of the heldOut that it looked at and published nothing after; empty: none."""


@dataclass(frozen=True, slots=True)
class PlaybookSeen:
    """One tick's facts. ``now``: seconds since 1970."""

    now: float
    versions: tuple[VersionSeen, ...] = ()
    runs: tuple[RunSeen, ...] = ()
    delivered: str | None = None
    """the digest that the delivered ConfigMap says it holds ("" for none); None without a ConfigMap."""
    altered: bool = False
    """whether the delivered ConfigMap holds something else than what was written into it."""
    pairs: Mapping[str, tuple[Pair, ...]] = field(default_factory=dict)
    """``TrafficComparison.id`` -> its judged pairs; those that were handed in before do no harm."""
    left_out: Mapping[str, tuple[LeftOut, ...]] = field(default_factory=dict)
    """``TrafficComparison.id`` -> requests that the upstream refuses, so that no pair can be made of them."""
    readings: Mapping[str, tuple[Reading, ...]] = field(default_factory=dict)
    """``TrafficComparison.id`` -> what Prometheus said."""
    not_judged: Mapping[str, str] = field(default_factory=dict)
    """``TrafficComparison.id`` -> why its pairs are not being judged, in a sentence that says what to do."""
    job_uids: Mapping[str, Collection[str]] = field(default_factory=dict)
    """``TrafficComparison.id`` -> uids of the Jobs that judge it and are there now."""
    opaque: tuple[Version, ...] = ()
    """versions that this release cannot read, as far as the serving rule needs them."""
    blocked: str = ""
    """why delivery waits for a person, and what that person must do; empty when nothing is in the way."""
    trail: tuple[FiledLine, ...] | None = None
    """the lines of the history that are in ConfigMaps; None where they need not be known."""
    filed: int = 0
    """the number up to which the lines of the history are known to be in ConfigMaps."""
    data_marks: Mapping[str, str] = field(default_factory=dict)
    """place of the template's data -> its mark, where it could be read now (``datawatch``)."""


@dataclass(frozen=True, slots=True)
class RunWish:
    """A PromptLearningRun to be made, owned by the Playbook; on a 409 the one there stays."""

    name: str
    spec: RunSpec


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the delivered ConfigMap must hold. It has no owner, and is never deleted by a plan."""

    config_map: str
    digest: str
    """the active version's digest; empty where there is none and the ConfigMap holds an empty playbook."""
    source: str
    """the immutable ConfigMap to copy from; empty where ``digest`` is empty."""
    current: bool
    """whether the delivered ConfigMap says so already and holds what was written."""


@dataclass(frozen=True, slots=True)
class CanaryWish:
    """A comparison on traffic that must be under way. It is in the version's ``status.test``, too."""

    digest: str
    version: str
    """the name of the PlaybookVersion."""
    comparison: TrafficComparison
    pairs: int
    """the number of pairs judged so far."""
    needed: int | None
    """the number of pairs still needed, as far as can be told."""
    rubric: Rubric | None = None
    """what the version's answers were scored by when it was learned; None: the task had its own score."""


EVENTS = (
    "Promoted",
    "ContentReplaced",
    "ContentRestored",
    "PairsRefused",
    "RolledBack",
    "Refused",
    "Inconclusive",
    "Restarted",
    "HeldOutSpent",
    "HeldOutChanged",
    "MissingInput",
    "RunCreated",
    "CanaryBegan",
    "CanaryPassed",
    "CanaryWaived",
    "WaitingForApproval",
    "WaiverNotAllowed",
    "NotJudged",
    "QueryError",
    "InvalidManifest",
)


@dataclass(frozen=True, slots=True)
class Happened:
    """An event, for the Playbook and for the version. ``reason``: one of ``EVENTS``."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class PlaybookPlan:
    """What must become true, in the order that the module's docstring gives."""

    status: PlaybookStatus
    versions: Mapping[str, VersionStatus]
    """the status of each version seen, by object name."""
    deliver: Delivery
    runs: tuple[RunWish, ...] = ()
    canaries: tuple[CanaryWish, ...] = ()
    prune_versions: tuple[str, ...] = ()
    """PlaybookVersions to delete with their ConfigMaps; never a refused one."""
    prune_contents: tuple[str, ...] = ()
    """refused PlaybookVersions that stay, but whose ConfigMaps are to be deleted."""
    prune_runs: tuple[str, ...] = ()
    events: tuple[Happened, ...] = ()
    wake_after_seconds: float | None = None
    """the seconds until the next look, even if nothing happens."""
