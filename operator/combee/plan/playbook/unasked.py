"""What stands for a canary's verdict where traffic is not asked: a stated reason, or a person's word. Pure.

A canary is waived with a reason, which every status shows. A Playbook that gives none, or whose waiver the
installation does not allow, keeps a candidate waiting until somebody approves it. It waits without a
deadline, since nothing is compared meanwhile; a version made later takes its place.
"""

from __future__ import annotations

from combee.api.common import one_line
from combee.api.playbook_status import Verdict
from combee.plan.playbook.board import Board, Record
from combee.plan.playbook.types import About

NO_CANARY = Verdict(
    reason="NoCanary",
    message="the Playbook has no canary: what passes heldOut waits until somebody approves it",
)
"""Stands for the verdict on a version that did not come so far."""
WITHOUT_CANARY = (
    f"{NO_CANARY.message}; give spec.canary a mode to ask traffic, or waived: why heldOut alone decides"
)
"""The warning of a Playbook that gives none, in the words of the chart's policy."""
FOR_A_PERSON = ("WaitingForApproval", "WaiverNotAllowed", "ChangeUnexplained")
"""Reasons with which a candidate waits for a person."""


def waiver(reason: str) -> str:
    """Return a waiver as a sentence.

    >>> waiver("a demo")
    'the canary is waived: a demo'
    """
    return f"the canary is waived: {one_line(reason, 500)}"


def let_through(verdict: Verdict | None) -> bool:
    """Return whether a canary's verdict stands in nobody's way."""
    return verdict is not None and verdict.outcome in ("Passed", "Waived")


def unreached(about: About) -> Verdict | None:
    """Return what stands for the canary's verdict on a version that did not come so far; None where traffic
    will be asked."""
    canary = about.spec.canary
    if canary is None:
        return NO_CANARY
    if canary.waived is None:
        return None
    return _waived(canary.waived) if about.allow_waived else _not_allowed(canary.waived, "")


def without_traffic(board: Board, record: Record) -> Verdict:
    """Return what stands for the canary's verdict on a candidate whose heldOut passed, and set its status.
    The first time it is told as an event, too."""
    verdict, before = _verdict(board.about, record), record.status.canary
    record.update(test=None, canary=verdict)
    record.remember(comparison="")
    if before is None or before.reason != verdict.reason:
        reason = "CanaryPassed" if verdict.outcome == "Passed" else verdict.reason
        message = f"{record.short} passed heldOut: {verdict.message}"
        board.note(reason, record.digest, message, warn=reason == "WaiverNotAllowed")
    return verdict


def _verdict(about: About, record: Record) -> Verdict:
    waived = about.spec.canary.waived if about.spec.canary is not None else None
    if waived is not None and about.allow_waived:
        return _waived(waived)
    if record.seen.spec.decision == "Approve":
        return Verdict(outcome="Passed", reason="Approved", message="somebody approved it")
    how = f"somebody must approve it: kubectl combee playbook approve {about.name} {record.short}"
    if waived is not None:
        return _not_allowed(waived, f"; {how}")
    message = f"the Playbook has no canary, so {how}"
    return Verdict(outcome="Inconclusive", reason="WaitingForApproval", message=message)


def _waived(reason: str) -> Verdict:
    return Verdict(outcome="Waived", reason="CanaryWaived", message=waiver(reason))


def _not_allowed(reason: str, how: str) -> Verdict:
    message = f"{waiver(reason)}. This installation does not allow that (playbooks.allowWaivedCanary){how}"
    return Verdict(outcome="Inconclusive", reason="WaiverNotAllowed", message=message)
