"""The lines of a Playbook's history that follow from its objects: versions that were made, what people
decided, pins, what is deleted; and the lines that are missing when a Playbook is applied again.

What the gates decide is noted where they decide it. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from combee.api.playbook_status import HistoryLine, VersionPhase
from combee.plan.playbook.board import Board, Record
from combee.plan.playbook.conditions import CANARY, HELD_OUT, PROMOTED
from combee.plan.playbook.trail import MAX_PENDING, continued, lines_from, past_others

P = VersionPhase
_STANDING = {P.REFUSED: "Refused", P.INCONCLUSIVE: "Inconclusive", P.SUPERSEDED: "Superseded"}
"""Phase -> the event that leads to it."""
MADE = "Made"
ROOM = MAX_PENDING // 2
"""The most pending lines beside which versions are introduced that an earlier release looked at."""
_MOVES = ("Promoted", "RolledBack", *_STANDING.values())
"""Events after which a version stands where they say."""


def begin_lines(board: Board) -> None:
    """Continue the history where it ended, and note what happened to the objects since the last decision."""
    lines = board.seen.trail or ()
    earlier = [line for one in lines if (line := one.line) is not None]
    if board.before.trail is None:
        board.trail = continued(lines)
        _recover(board, earlier)
    else:
        board.trail = past_others(board.trail, lines)
    for record in _oldest_first(board):
        _look_at(board, record, earlier)
    _look_at_pin(board)


def end_lines(board: Board, pruned: Collection[str]) -> None:
    """Note what is deleted, and let each version say which lines it has taken in. Lines leave the status when
    they are in a ConfigMap and the version that they are about has taken them in.

    ``pruned``: names of versions that are to be deleted, or whose content is.
    """
    for record in _oldest_first(board):
        goes = record.seen.name in pruned
        if goes and not record.memory.pruned:
            kept = record.phase is P.REFUSED
            what = f"the content of {record.short} is" if kept else f"{record.short} is"
            made = f"made {record.seen.created}, {record.phase}"
            board.record_line("Pruned", record.digest, f"{what} deleted ({made}): spec.version.historyLimit")
        record.remember(pruned=goes)
    taken_in = {digest: record.memory.noted for digest, record in board.records.items()}
    pending = tuple(
        line
        for line in board.trail.pending
        if line.number > board.seen.filed or line.number > taken_in.get(line.digest, line.number)
    )
    _take_in(board)
    board.trail = board.trail.model_copy(update={"pending": pending})


def _take_in(board: Board) -> None:
    """Let each version remember the last line about it. One that was not introduced yet remembers none."""
    for line in board.trail.pending:
        about = board.get(line.digest)
        if about is not None and (about.memory.noted or line.event == MADE):
            about.remember(noted=max(about.memory.noted, line.number))


def _oldest_first(board: Board) -> list[Record]:
    return list(board.latest_first())[::-1]


def _look_at(board: Board, record: Record, earlier: Sequence[HistoryLine]) -> None:
    """Note that a version is new, that somebody's decision about it changed, that its content was replaced or
    is back. ``earlier``: filed lines."""
    if not record.memory.noted and not _introduce(board, record, earlier):
        return
    decision, before_that = record.seen.spec.decision, record.memory.decision
    if decision != before_that:
        message = f"the decision about {record.short} is {decision} (was {before_that})"
        board.record_line("Decided", record.digest, message, by="Decision")
        record.remember(decision=decision)
    if record.seen.replaced and not record.memory.replaced:
        board.note("ContentReplaced", record.digest, record.seen.replaced_sentence, warn=True)
        record.remember(replaced=True)
    elif record.memory.replaced and record.seen.has_content:
        held = f"ConfigMap {record.seen.spec.config_map_name} holds again what the run published"
        board.note("ContentRestored", record.digest, held)
        record.remember(replaced=False)


def _introduce(board: Board, record: Record, earlier: Sequence[HistoryLine]) -> bool:
    """Note that a version was made, and what its status tells where an operator looked at it before; return
    whether there was room for that in the Playbook's status. Where there is none, the next tick has some."""
    if not record.status.conditions:
        before = board.unsettled.get(record.digest, [])
        if all((line.event, line.message) != (MADE, _made(record)) for line in before):
            # Lines of an object of the same digest that was deleted tell nothing of this one.
            board.unsettled[record.digest] = []
        board.record_line(MADE, record.digest, _made(record))
        return True
    if len(board.trail.pending) >= ROOM:
        return False
    own = [line for line in (*earlier, *board.trail.pending) if line.digest == record.digest]
    for line in sorted(_untold(record, own), key=lambda line: line.time):
        board.record_line(line.event, line.digest, line.message, by=line.by, time=line.time)
    numbers = [line.number for line in (*own, *board.trail.pending) if line.digest == record.digest]
    record.remember(noted=max(numbers, default=0))
    return True


def _made(record: Record) -> str:
    spec = record.seen.spec
    run = f"by the run {spec.run_ref.name}" if spec.run_ref is not None else "by hand"
    parent = (spec.parent_digest or "")[:12] or "an empty playbook"
    return f"{record.short} was made {run} at {record.seen.created}, learned from {parent}"


def _look_at_pin(board: Board) -> None:
    pin, before = board.pinned, board.memory.pin
    if pin == before:
        return
    event, digest = ("Pinned", pin) if pin else ("Unpinned", before)
    message = f"spec.version.pinnedDigest is {pin[:12] or 'not given any more'} (was {before[:12] or 'none'})"
    board.record_line(event, digest, message, by="Pin")
    board.memory = replace(board.memory, pin=pin)


def _recover(board: Board, earlier: Sequence[HistoryLine]) -> None:
    """Take over the history of a Playbook that is applied again, or that an earlier release wrote: its lines,
    what its status shows, and then, version by version, what only their statuses tell."""
    known = {(line.time, line.event, line.digest) for line in earlier}
    for line in lines_from(board.history):
        if (line.time, line.event, line.digest) not in known:
            board.record_line(line.event, line.digest, line.message, by=line.by, time=line.time)
    for record in board.records.values():
        record.remember(noted=0)
    pins = [line for line in earlier if line.event in ("Pinned", "Unpinned")]
    last = pins[-1] if pins else None
    board.memory = replace(board.memory, pin=last.digest if last and last.event == "Pinned" else "")


def _untold(record: Record, own: list[HistoryLine]) -> Iterator[HistoryLine]:
    """Yield the lines that a version's objects tell of and that are not among its ``own``."""
    made = _made(record)
    began = next((n for n, line in enumerate(own) if (line.event, line.message) == (MADE, made)), None)
    if began is None:
        yield HistoryLine(time=record.seen.created, event=MADE, digest=record.digest, message=made)
    else:
        # What is before that is of an object of the same digest that was deleted.
        own = own[began:]
    for line in _shown(record):
        moved = next((one.event for one in reversed(own) if one.event in _MOVES), "")
        if line.event in _STANDING.values():
            is_known = line.event == moved
        elif line.event == "Promoted":
            is_known = line.time in {one.time for one in own}
        else:
            is_known = line.event in {one.event for one in own}
        if not is_known:
            yield line.model_copy(update={"message": f"{line.message} (found in its status)"})


def _shown(record: Record) -> Iterator[HistoryLine]:
    """Yield what a version's status says of what was decided about it."""
    status, short = record.status, record.short
    since = {one.type: one.last_transition_time for one in status.conditions}

    def line(condition: str, event: str, message: str, by: str = "", time: str = "") -> HistoryLine:
        when = time or since.get(condition) or record.seen.created
        return HistoryLine(time=when, event=event, digest=record.digest, by=by, message=message)

    gate, canary = status.held_out, status.canary
    if gate is not None and gate.outcome == "Passed":
        yield line(HELD_OUT, "HeldOutPassed", f"{short} passed heldOut: {gate.message}")
    if canary is not None and canary.outcome in ("Passed", "Waived"):
        yield line(CANARY, f"Canary{canary.outcome}", canary.message)
    if status.promoted_time:
        message, by = f"{short} became active, by {status.promoted_by}", status.promoted_by
        yield line(PROMOTED, "Promoted", message, by, status.promoted_time)
    overtaken = status.phase is P.SUPERSEDED and status.promoted_time
    if status.phase in _STANDING and not overtaken:
        message = f"{short} is {status.phase}: {status.message}"
        yield line(PROMOTED, _STANDING[status.phase], message, status.refused_by)
