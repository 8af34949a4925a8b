"""Conditions of a Playbook and of a PlaybookVersion: the types, and which reason may go with which status.

A Playbook has all of them; a version has HeldOutPassed, CanaryPassed and Promoted, which the Playbook shows of
its candidate (or of the last one). Ready: services get what they should, the active version, or nothing while none is; a
first version may take days and the very traffic of services that wait for a sync, so it is not waited for. Reconciling and
Stalled say of Ready's reason what kstatus reads: whether to wait for it, or for a person. Reasons are never renamed.

============= ======= =====================================================================
type          status  reasons
============= ======= =====================================================================
Ready         True    Delivered, NothingActive
              False   Delivering, ContentMissing, DeliveryBlocked, InvalidManifest, VersionUnreadable
Reconciling   True    Delivering, ContentMissing
              False   Delivered, NothingActive, DeliveryBlocked, InvalidManifest, VersionUnreadable
Stalled       True    DeliveryBlocked, InvalidManifest, VersionUnreadable
              False   Delivered, NothingActive, Delivering, ContentMissing
HeldOutPassed True    HeldOutPassed
              False   ScoreTooLow, NotBetter, HeldOutMoved, NotMeasured, StaleBase, LeakFound, InjectionFound
              Unknown NoCandidate, NotLookedAt, TooFewExamples
CanaryPassed  True    CanaryPassed, Approved
              False   CanaryWorse, DeadlineExceeded, NotAvailable
              Unknown NoCandidate, NoCanary, NotReached, NoTraffic, NeedPairs, TooSlow, TooEarly,
                      WaitingForApproval, NotJudged, QueryError
Promoted      True    ByGates, ByDecision, ByPin, ByRollback
              False   Refused, RolledBack, GatesFailed, Inconclusive, Superseded, WaitingForDecision,
                      HeldByPin, HeldByDecision, ContentMissing
              Unknown NoCandidate, Testing, Waiting
Pinned        True    Pinned
              False   NotPinned, PinnedRefused, PinnedUnknown
============= ======= =====================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from combee.api.common import one_line
from combee.api.conditions import MAX_MESSAGE
from combee.api.playbook_status import PlainCondition

Status = Literal["True", "False", "Unknown"]
READY, RECONCILING, STALLED, HELD_OUT, CANARY, PROMOTED, PINNED = (
    "Ready",
    "Reconciling",
    "Stalled",
    "HeldOutPassed",
    "CanaryPassed",
    "Promoted",
    "Pinned",
)
ORDER = (READY, RECONCILING, STALLED, HELD_OUT, CANARY, PROMOTED, PINNED)

TABLE: Mapping[tuple[str, Status], tuple[str, ...]] = {
    (READY, "True"): ("Delivered", "NothingActive"),
    (READY, "False"): (
        "Delivering",
        "ContentMissing",
        "DeliveryBlocked",
        "InvalidManifest",
        "VersionUnreadable",
    ),
    (RECONCILING, "True"): ("Delivering", "ContentMissing"),
    (RECONCILING, "False"): (
        "Delivered",
        "NothingActive",
        "DeliveryBlocked",
        "InvalidManifest",
        "VersionUnreadable",
    ),
    (STALLED, "True"): ("DeliveryBlocked", "InvalidManifest", "VersionUnreadable"),
    (STALLED, "False"): ("Delivered", "NothingActive", "Delivering", "ContentMissing"),
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
    (HELD_OUT, "Unknown"): ("NoCandidate", "NotLookedAt", "TooFewExamples"),
    (CANARY, "True"): ("CanaryPassed", "Approved"),
    (CANARY, "False"): ("CanaryWorse", "DeadlineExceeded", "NotAvailable"),
    (CANARY, "Unknown"): (
        "NoCandidate",
        "NoCanary",
        "NotReached",
        "NoTraffic",
        "NeedPairs",
        "TooSlow",
        "TooEarly",
        "WaitingForApproval",
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
    ),
    (PROMOTED, "Unknown"): ("NoCandidate", "Testing", "Waiting"),
    (PINNED, "True"): ("Pinned",),
    (PINNED, "False"): ("NotPinned", "PinnedRefused", "PinnedUnknown"),
}


@dataclass(frozen=True, slots=True)
class Said:
    """A condition without its times."""

    type: str
    reason: str
    message: str

    @property
    def status(self) -> Status:
        """The status that the table has the reason under."""
        for (type_, status), reasons in TABLE.items():
            if type_ == self.type and self.reason in reasons:
                return status
        raise KeyError(f"{self.type} has no reason {self.reason}")


def merge(
    before: Iterable[PlainCondition], said: Iterable[Said], generation: int, now: str
) -> tuple[PlainCondition, ...]:
    """The conditions said, in their order, and with Ready what follows from it; the time of those whose status did not
    change is kept, and what a newer generation said is not overwritten."""
    known = {condition.type: condition for condition in before}
    told = list(said)
    for ready in [one for one in told if one.type == READY]:
        told += [replace(ready, type=RECONCILING), replace(ready, type=STALLED)]
    for one in told:
        old = known.get(one.type)
        if old is not None and old.observed_generation > generation:
            continue
        same = old is not None and old.status == one.status and old.last_transition_time
        known[one.type] = PlainCondition(
            type=one.type,
            status=one.status,
            reason=one.reason,
            message=one_line(one.message, MAX_MESSAGE),
            observed_generation=generation,
            last_transition_time=old.last_transition_time if old is not None and same else now,
        )
    return tuple(known[type_] for type_ in ORDER if type_ in known)
