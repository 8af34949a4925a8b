"""What becomes of versions that are neither active nor compared: their phases, and which are deleted."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from combee.api.playbook import PlaybookSpec
from combee.api.playbook_status import VersionPhase
from combee.plan.playbook.board import Board, Record

P = VersionPhase


def settle_phases(board: Board) -> None:
    """Make one version active and at most one previous, as the board says; others that say so are superseded.

    A crash between two writes can leave two of a kind.
    """
    known = board.get(board.previous) is not None or board.opaque(board.previous)
    if board.previous == board.active or not known:
        board.previous = ""
    for record in board.records.values():
        if record.digest == board.active:
            record.update(phase=P.ACTIVE, refused_by="")
            _remember_promotion(board, record)
        elif record.phase is P.REFUSED:
            record.update(test=None)
        elif record.digest == board.previous:
            record.update(phase=P.PREVIOUS, test=None)
        elif record.phase in (P.ACTIVE, P.PREVIOUS):
            record.update(phase=P.SUPERSEDED, test=None)
        elif record.digest != board.candidate:
            record.update(test=None)
        if record.phase not in (P.ACTIVE, P.CANDIDATE):
            # Its comparison is over and must not go on.
            record.remember(comparison="")


def _remember_promotion(board: Board, record: Record) -> None:
    """Take from the history when a version became active, where its own status was not written then."""
    if record.memory.promoted:
        return
    known = next((one for one in reversed(board.history) if one.digest == record.digest and one.by), None)
    record.remember(promoted=board.seen.now)
    record.update(
        promoted_by=known.by if known else "Decision", promoted_time=known.time if known else board.now
    )


def prunable_contents(board: Board) -> tuple[str, ...]:
    """Return the names of refused versions beyond the history's limit whose content is there, oldest first:
    all that must be known of them is that they were refused. It never returns one that somebody names."""
    refused = [
        record
        for record in board.latest_first()
        if record.phase is P.REFUSED
        and record.seen.has_content
        and record.seen.spec.decision in ("Auto", "Refuse")
        and record.digest != board.pinned
    ]
    limit = board.about.spec.version.history_limit
    return tuple(record.seen.name for record in reversed(refused[limit:]))


def prunable(board: Board) -> tuple[str, ...]:
    """Return the names of the versions beyond the history's limit, oldest first.

    It never returns one that is refused, active, previous, pinned, compared or waiting, nor one that
    somebody decided on: what was refused must be known for ever, and the rest is in use. Nor does it return
    the last one that was looked at on a heldOut, from which a Playbook that is applied again counts on.
    """
    looks = [record.status.look for record in board.records.values() if record.status.look is not None]
    last = {look.held_out_digest: look for look in sorted(looks, key=lambda look: look.number)}
    idle = [
        record
        for record in board.latest_first()
        if record.phase in (P.SUPERSEDED, P.INCONCLUSIVE)
        and record.seen.spec.decision == "Auto"
        and record.digest not in (board.active, board.previous, board.candidate, board.pinned)
    ]
    limit = board.about.spec.version.history_limit
    beyond = [record for record in reversed(idle[limit:]) if record.status.look not in last.values()]
    return tuple(record.seen.name for record in beyond)


_KEPT = (("version", "pinnedDigest"), ("delivery", "configMap"), ("delivery", "deletionPolicy"))


def salvaged(raw: Any) -> PlaybookSpec:
    """Return a spec with those of ``raw``'s fields that serving and delivery need and that can be read.

    It has no canary and no thresholds and learns nothing: it is only for ``About.unreadable``.

    >>> raw = {"canary": {"mode": "Shadow"}, "delivery": {"configMap": {"name": "mounted"}}}
    >>> salvaged(raw).delivery.config_map.name
    'mounted'
    """
    readable: dict[str, dict[str, Any]] = {}
    for part, name in _KEPT:
        fields = raw.get(part) if isinstance(raw, dict) else None
        if not isinstance(fields, dict) or name not in fields:
            continue
        larger = {**readable, part: {**readable.get(part, {}), name: fields[name]}}
        try:
            PlaybookSpec.model_validate(larger)
        except ValidationError:
            continue
        readable = larger
    return PlaybookSpec.model_validate(readable)
