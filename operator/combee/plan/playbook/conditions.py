"""Conditions of a Playbook and of a PlaybookVersion: the types, and which reason may go with which status.

A Playbook has all of them. A version has HeldOutPassed, CanaryPassed and Promoted; the Playbook shows those
of its candidate (or of the last one). Ready means that services get what they should: the active version, or
nothing while none is active. A first version may take days, and needs the traffic of services that wait for
a sync, so Ready does not wait for it. Reconciling and Stalled translate Ready's reason for kstatus: whether
to wait for it, or for a person. Reasons are never renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from combee.api.common import one_line
from combee.api.conditions import MAX_MESSAGE
from combee.api.playbook_status import PlainCondition

Status = Literal["True", "False", "Unknown"]
READY, RECONCILING, STALLED, HELD_OUT, CANARY, PROMOTED, PINNED, SERVED_AS_LEARNED = (
    "Ready",
    "Reconciling",
    "Stalled",
    "HeldOutPassed",
    "CanaryPassed",
    "Promoted",
    "Pinned",
    "ServedAsLearned",
)
ORDER = (READY, RECONCILING, STALLED, HELD_OUT, CANARY, PROMOTED, PINNED, SERVED_AS_LEARNED)

_SETTLED = ("Delivered", "NothingActive")
_UNDER_WAY = ("Delivering", "ContentMissing")
_BROKEN = ("ContentReplaced", "DeliveryBlocked", "InvalidManifest", "VersionUnreadable")
"""Reasons that only a person can mend."""

TABLE: Mapping[tuple[str, Status], tuple[str, ...]] = {
    (READY, "True"): _SETTLED,
    (READY, "False"): (*_UNDER_WAY, *_BROKEN),
    (RECONCILING, "True"): _UNDER_WAY,
    (RECONCILING, "False"): (*_SETTLED, *_BROKEN),
    (STALLED, "True"): _BROKEN,
    (STALLED, "False"): (*_SETTLED, *_UNDER_WAY),
    (HELD_OUT, "True"): ("HeldOutPassed",),
    (HELD_OUT, "False"): (
        "ScoreTooLow",
        "NotBetter",
        "HeldOutMoved",
        "NotMeasured",
        "StaleBase",
        "LeakFound",
        "InjectionFound",
    ),
    (HELD_OUT, "Unknown"): ("NoCandidate", "NotLookedAt", "TooFewExamples", "ChangeUnexplained"),
    (CANARY, "True"): ("CanaryPassed", "Approved"),
    (CANARY, "False"): ("CanaryWorse", "DeadlineExceeded", "NotAvailable"),
    (CANARY, "Unknown"): (
        "NoCandidate",
        "NoCanary",
        "CanaryWaived",
        "NotReached",
        "NoTraffic",
        "NeedPairs",
        "TooSlow",
        "TooCostly",
        "TooEarly",
        "Unstable",
        "WaitingForApproval",
        "WaiverNotAllowed",
        "NotJudged",
        "QueryError",
    ),
    (PROMOTED, "True"): ("ByGates", "ByDecision", "ByPin", "ByRollback"),
    (PROMOTED, "False"): (
        "Refused",
        "RolledBack",
        "GatesFailed",
        "Inconclusive",
        "Superseded",
        "WaitingForDecision",
        "HeldByPin",
        "HeldByDecision",
        "ContentMissing",
        "ContentReplaced",
    ),
    (PROMOTED, "Unknown"): ("NoCandidate", "Testing", "Waiting"),
    (PINNED, "True"): ("Pinned",),
    (PINNED, "False"): ("NotPinned", "PinnedRefused", "PinnedUnknown"),
    (SERVED_AS_LEARNED, "True"): ("SameModel",),
    (SERVED_AS_LEARNED, "False"): ("AnotherModel",),
    (SERVED_AS_LEARNED, "Unknown"): ("NothingActive", "VersionUnreadable", "ModelNotStated", "NoTaskModel"),
}


@dataclass(frozen=True, slots=True)
class Statement:
    """A condition without its times."""

    type: str
    reason: str
    message: str

    @property
    def status(self) -> Status:
        """The status under which the table has the reason. Raises KeyError where it is under none."""
        for (type_, status), reasons in TABLE.items():
            if type_ == self.type and self.reason in reasons:
                return status
        raise KeyError(f"{self.type} has no reason {self.reason}")


def merge(
    before: Iterable[PlainCondition], statements: Iterable[Statement], generation: int, now: str
) -> tuple[PlainCondition, ...]:
    """Put the new conditions over those ``before``, in order, and with Ready those that follow from it. A
    status that did not change keeps its time; the condition of a newer generation is not overwritten."""
    merged = {condition.type: condition for condition in before}
    latest = list(statements)
    for ready in [new for new in latest if new.type == READY]:
        latest += [replace(ready, type=RECONCILING), replace(ready, type=STALLED)]
    for new in latest:
        old = merged.get(new.type)
        if old is not None and old.observed_generation > generation:
            continue
        unchanged = old is not None and old.status == new.status
        merged[new.type] = PlainCondition(
            type=new.type,
            status=new.status,
            reason=new.reason,
            message=one_line(new.message, MAX_MESSAGE),
            observed_generation=generation,
            last_transition_time=(old.last_transition_time if old and unchanged else "") or now,
        )
    return tuple(merged[type_] for type_ in ORDER if type_ in merged)
