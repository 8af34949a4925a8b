"""What a Playbook and its versions say about themselves, from the board as it stands in the end."""

from __future__ import annotations

from combee.api.common import one_line
from combee.api.playbook_status import PlaybookShown, PlaybookStatus, Verdict, VersionPhase, VersionStatus
from combee.plan.playbook.board import NO_CANARY, Board, Record
from combee.plan.playbook.conditions import CANARY, HELD_OUT, PINNED, PROMOTED, READY, Said, merge
from combee.plan.playbook.learn import Learning
from combee.plan.playbook.traffic import warnings
from combee.plan.playbook.types import Delivery

P = VersionPhase
MAX_SENTENCE = 500
"""bytes."""


def playbook_status(board: Board, learned: Learning, delivery: Delivery, held: str) -> PlaybookStatus:
    """The Playbook's status. Equal facts give an equal one."""
    about, before = board.about, board.before
    shown = _shown(board)
    active, candidate = board.get(board.active), board.get(board.candidate)
    ready = _ready(board, delivery)
    said = [ready, *_of_version(board, shown, held), _pinned(board)]
    held_out = _asked_first(shown) if shown else None
    # Reckoning them takes a while, and only the spec has a say in them.
    same = before.observed_generation == about.generation or bool(about.unreadable)
    warned = [*(w for w in before.warnings if same), *(() if same else warnings(about.spec))]
    if learned.warning and learned.warning not in warned:
        warned.append(learned.warning)
    return PlaybookStatus(
        observed_generation=about.generation,
        message=one_line(_sentence(board, ready, held), MAX_SENTENCE),
        conditions=merge(before.conditions, said, about.generation, board.now),
        active_digest=board.active,
        previous_digest=board.previous,
        candidate_digest=board.candidate,
        held_out_digest=about.spec.held_out.digest or board.held_out_digest,
        held_out=held_out,
        canary=shown.status.canary if shown else None,
        watch=active.status.watch if active else None,
        run_name=learned.latest or before.run_name,
        next_run_time=about.when(learned.next_time),
        history=tuple(board.history),
        warnings=tuple(warned),
        shown=PlaybookShown(
            active=active.short if active else "",
            candidate=candidate.short if candidate else "",
            gain="" if held_out is None or held_out.gain is None else f"{held_out.gain:+.3f}",
        ),
        state=board.memory.to_json(),
    )


def version_status(board: Board, record: Record, held: str) -> VersionStatus:
    """A version's status."""
    said = _of_version(board, record, held)
    promoted = next(one for one in said if one.type == PROMOTED)
    return record.status.model_copy(
        update={
            "observed_generation": record.seen.generation,
            "message": one_line(promoted.message, MAX_SENTENCE),
            "conditions": merge(record.status.conditions, said, record.seen.generation, board.now),
            "state": record.memory.to_json(),
        }
    )


def _shown(board: Board) -> Record | None:
    """The version whose verdicts the Playbook shows: the candidate, else the last one that was judged."""
    if (candidate := board.get(board.candidate)) is not None:
        return candidate
    judged = [record for record in board.latest_first() if _asked_first(record) is not None]
    return next(iter(judged), board.get(board.active))


def _asked_first(record: Record) -> Verdict | None:
    """What is said of it before its canary: its content's verdict where that refuses it, else heldOut's."""
    content = record.status.content
    return content if content is not None and content.outcome == "Failed" else record.status.held_out


def _ready(board: Board, delivery: Delivery) -> Said:
    active = board.get(board.active)
    if board.about.unreadable:
        return Said(READY, "InvalidManifest", board.about.unreadable)
    if board.opaque(board.active):
        what = f"the PlaybookVersion of {board.active[:12]}, which is active, cannot be read by this release: it stays"
        return Said(READY, "VersionUnreadable", what)
    if board.seen.blocked and not delivery.current:
        return Said(READY, "DeliveryBlocked", board.seen.blocked)
    if active is None and not delivery.current:
        return Said(
            READY, "Delivering", f"no version is active, and ConfigMap {delivery.config_map} is emptied"
        )
    if active is None:
        holds = f"still holds {delivery.digest[:12]}" if delivery.digest else "is empty"
        return Said(READY, "NothingActive", f"no version is active; ConfigMap {delivery.config_map} {holds}")
    if delivery.current:
        return Said(READY, "Delivered", f"{active.short} is active and in ConfigMap {delivery.config_map}")
    if not active.seen.has_content:
        return Said(READY, "ContentMissing", f"ConfigMap {delivery.source} of {active.short} is not there")
    return Said(
        READY, "Delivering", f"{active.short} is active and goes into ConfigMap {delivery.config_map}"
    )


def _pinned(board: Board) -> Said:
    if not board.pinned:
        return Said(PINNED, "NotPinned", "spec.version.pinnedDigest is not given")
    short, record = board.pinned[:12], board.get(board.pinned)
    if record is None:
        return Said(PINNED, "PinnedUnknown", f"there is no version {short}: nothing changes")
    if record.served().refused:
        how = f"kubectl combee playbook promote {board.about.name} {short} would bring it back"
        return Said(PINNED, "PinnedRefused", f"{short} is refused, and a pin does not bring it back; {how}")
    if board.active != board.pinned:
        return Said(PINNED, "PinnedUnknown", f"the content of {short} is not there: nothing changes")
    return Said(PINNED, "Pinned", f"{short} is active because spec.version.pinnedDigest says so")


def _of_version(board: Board, record: Record | None, held: str) -> tuple[Said, ...]:
    """HeldOutPassed, CanaryPassed and Promoted of a version."""
    if record is None:
        none = "no version was made yet"
        return tuple(Said(type_, "NoCandidate", none) for type_ in (HELD_OUT, CANARY, PROMOTED))
    return (_held_out(record), _canary(board, record), _promoted(board, record, held))


def _held_out(record: Record) -> Said:
    content, told = record.status.content, _asked_first(record)
    if told is not None:
        return Said(HELD_OUT, told.reason, told.message)
    return Said(HELD_OUT, "NotLookedAt", content.message if content else "its gates were not asked")


def _canary(board: Board, record: Record) -> Said:
    told = record.status.canary
    if told is None and board.about.spec.canary is None:
        return Said(CANARY, NO_CANARY.reason, NO_CANARY.message)
    if told is None:
        return Said(CANARY, "NotReached", "the canary comes after heldOut")
    missing = f" ({told.needed:,} more needed)" if told.needed and "needed" not in told.message else ""
    return Said(CANARY, told.reason, f"{told.message}{missing}")


def _promoted(board: Board, record: Record, held: str) -> Said:
    by = record.status.promoted_by
    if record.digest == board.active:
        since = record.status.promoted_time
        return Said(PROMOTED, f"By{by or 'Decision'}", f"{record.short} is active since {since}")
    said = record.status.message
    if record.phase is P.REFUSED and record.seen.spec.decision == "Promote" and not record.seen.has_content:
        return Said(
            PROMOTED, "ContentMissing", f"its content is gone, let a run learn it again; before: {said}"
        )
    if record.phase is P.REFUSED:
        reasons = {"Gates": "GatesFailed", "Rollback": "RolledBack"}
        return Said(PROMOTED, reasons.get(record.status.refused_by, "Refused"), said)
    if record.phase is P.INCONCLUSIVE:
        return Said(PROMOTED, "Inconclusive", said)
    if record.phase in (P.PREVIOUS, P.SUPERSEDED):
        return Said(PROMOTED, "Superseded", _overtaken(board, record))
    if not record.seen.has_content:
        missing = f"its ConfigMap {record.seen.spec.config_map_name} is not there, or holds something else"
        return Said(PROMOTED, "ContentMissing", missing)
    return _waiting(board, record, held)


def _overtaken(board: Board, record: Record) -> str:
    if record.phase is P.PREVIOUS:
        return f"{record.short} was active before {board.active[:12]}"
    if record.memory.promoted:
        return f"{record.short} was active once"
    return record.status.message or "a later version was tested instead"


def _waiting(board: Board, record: Record, held: str) -> Said:
    if record.digest != board.candidate:
        return Said(
            PROMOTED, "Waiting", f"it waits until {board.candidate[:12] or 'another version'} is tested"
        )
    if held and _passed(record.status.held_out):
        reason = "HeldByPin" if held == "Pin" else "HeldByDecision"
        return Said(PROMOTED, reason, record.status.message)
    unasked = record.status.canary == NO_CANARY
    if _passed(record.status.held_out) and (unasked or _passed(record.status.canary)):
        how = f"kubectl combee playbook promote {board.about.name} {record.short}"
        return Said(
            PROMOTED, "WaitingForDecision", f"its gates are passed, and version.policy is Manual: {how}"
        )
    told = record.status.canary or record.status.held_out or record.status.content
    return Said(PROMOTED, "Testing", told.message if told else "its gates are being asked")


def _passed(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.outcome == "Passed"


def _sentence(board: Board, ready: Said, held: str) -> str:
    candidate = board.get(board.candidate)
    if candidate is None:
        return ready.message
    return f"{ready.message}; candidate {candidate.short}: {_waiting(board, candidate, held).message}"
