"""decide_playbook(): which version of a Playbook is active, from one tick's facts. Pure.

    refusals -> the watch over the active version -> pin, then Promote, then the record (``serving``)
        -> the gates of one candidate -> phases, delivery, runs, what goes

The order is the contract: Refuse, then a pin, then Promote, then the gates. A refused version is never
active again unless it is named. One candidate is under test at a time: the one whose test goes on, else the
last one made; older ones that still wait are superseded. Whatever is doubtful leaves the active version
where it is. While the spec or the active version cannot be read, people's refusals and promotions by name are followed and
delivered; nothing is judged, learned or pruned.

Deciding again on the same facts, with the plan's statuses written, gives the same plan and no events.
"""

from __future__ import annotations

from dataclasses import replace

from combee.api.playbook_status import Comparison, PlaybookStatus, VersionPhase
from combee.names import delivered_name
from combee.plan.playbook.board import NO_CANARY, Board, By, Record, verdict_of
from combee.plan.playbook.content import judge_content
from combee.plan.playbook.heldout import SHORT, held_out_of, judge_version
from combee.plan.playbook.history import prunable, prunable_contents, settle_phases
from combee.plan.playbook.learn import learning
from combee.plan.playbook.serving import Wanted, ranking
from combee.plan.playbook.standing import playbook_status, version_status
from combee.plan.playbook.thresholds import changes, filled_in, unchanged
from combee.plan.playbook.traffic import MAX_RESTARTS, judge_canary, refreeze, watch
from combee.plan.playbook.types import About, CanaryWish, Delivery, Happened, PlaybookPlan, PlaybookSeen

P = VersionPhase


def decide_playbook(about: About, status: PlaybookStatus, seen: PlaybookSeen) -> PlaybookPlan:
    """The next PlaybookPlan. ``status``: the Playbook's, as written last (a fresh one for a new Playbook).

    BugError when a status holds a state that only a later version can read.
    """
    board = Board.of(about, status, seen)
    _refusals(board)
    _recall(board)
    if about.unreadable or board.opaque(board.active):
        held = _serve(board)
        board.candidate = _still_waits(board)
    else:
        held = _judge(board)
    settle_phases(board)
    learned = learning(board)
    delivery = _delivery(board)
    if not delivery.current:
        board.wakes.append(seen.now + 1)
    settled = not (about.unreadable or board.opaque(board.active))
    pruned = prunable(board) if settled else ()
    emptied = prunable_contents(board) if settled else ()
    after = playbook_status(board, learned, delivery, held)
    versions = {r.seen.name: version_status(board, r, held) for r in board.records.values()}
    later = [time - seen.now for time in board.wakes if time > seen.now]
    return PlaybookPlan(
        status=after,
        versions=versions,
        deliver=delivery,
        runs=learned.wishes,
        canaries=_canaries(board),
        prune_versions=pruned,
        prune_contents=emptied,
        prune_runs=learned.prune,
        events=tuple(board.events),
        wake_after_seconds=min(later, default=None),
    )


def _judge(board: Board) -> str:
    """The watch, the serving rule, the gates; returns what ``_serve`` does."""
    if watch(board):
        record = board.records[board.active]
        said = record.status.watch.message if record.status.watch else ""
        board.refuse(record, "Rollback", f"it fell under its floor after promotion: {said}")
    held = _serve(board)
    while _gates(board, held):
        pass
    watch(board)
    return held


def _still_waits(board: Board) -> str:
    """The candidate of the last tick, where it may be one: its test stands as it is while nothing is judged."""
    record = board.get(board.before.candidate_digest)
    waits = record is not None and record.phase is P.CANDIDATE and record.digest != board.active
    return board.before.candidate_digest if waits else ""


def _refusals(board: Board) -> None:
    """What people refused, now or before: first of all, and whatever else they asked for."""
    for record in board.latest_first():
        decision, phase = record.seen.spec.decision, record.phase
        known = record.digest in board.memory.refused
        if phase is P.REFUSED and record.status.refused_by != "Gates" and decision != "Promote" and not known:
            # A Playbook that was applied again learns from its versions what was refused.
            board.memory = board.memory.recalling(record.digest)
        by_person = phase is P.REFUSED and record.status.refused_by == "Decision"
        if decision == "Refuse" and not by_person:
            board.refuse(record, "Decision", "somebody refused it")
        elif known and decision != "Promote" and phase is not P.REFUSED:
            board.refuse(record, "Decision", "it was refused before, and its version was made anew")


def _recall(board: Board) -> None:
    """A Playbook that was deleted and applied again finds in its versions what was active."""
    if board.active:
        return
    for record in board.latest_first():
        if record.phase is P.ACTIVE and not board.active:
            board.active = record.digest
        elif record.phase is P.PREVIOUS and not board.previous:
            board.previous = record.digest
    unread = (one.digest for one in board.seen.opaque if one.phase == P.ACTIVE and not one.refused)
    board.active = board.active or next(unread, "")


def _serve(board: Board) -> str:
    """Make active what the serving rule says; returns what holds it there: "Pin", "Decision" or ""."""
    wanted = Wanted(board.pinned, board.active, board.previous, frozenset(board.memory.refused))
    known = [record.served() for record in board.records.values()]
    order = ranking(wanted, [*known, *(one for one in board.seen.opaque if board.opaque(one.digest))])
    target = next((digest for digest in order if _deliverable(board, digest)), "")
    target = target or _last_resort(board)
    record = board.get(target)
    held = ""
    if record is not None and target == board.pinned:
        held = "Pin"
    elif record is not None and record.seen.spec.decision == "Promote":
        held = "Decision"
    if target != board.active:
        left = board.get(board.active)
        rolled_back = left is not None and left.served().refused
        _activate(board, target, "Rollback" if rolled_back and not held else held or "Rollback")
    return held


def _deliverable(board: Board, digest: str) -> bool:
    record = board.get(digest)
    if record is None:
        # What cannot be read stays where it is, and gets nowhere.
        return bool(digest) and digest == board.active and board.opaque(digest)
    return record.seen.has_content or board.seen.delivered == digest


def _last_resort(board: Board) -> str:
    """What was active most lately, and may be again: when neither the active nor the previous one may."""
    fit = [
        record
        for record in board.latest_first()
        if record.memory.promoted and record.phase is not P.REFUSED and _deliverable(board, record.digest)
    ]
    return max(fit, key=lambda record: record.memory.promoted).digest if fit else ""


def _activate(board: Board, digest: str, by: str) -> None:
    """``digest`` (empty: nothing) is active from now on."""
    old, new = board.get(board.active), board.get(digest)
    back = old is not None and old.served().refused
    board.previous = "" if old is None or back else old.digest
    board.active = digest
    if back:
        board.previous = _before(board, digest)
    if new is None:
        board.note("RolledBack", "", "no version is active any more", by=by, warn=True)
        return
    kind: By = (
        "Gates" if by == "Gates" else "Decision" if by == "Decision" else "Pin" if by == "Pin" else "Rollback"
    )
    board.memory = replace(board.memory, refused=tuple(d for d in board.memory.refused if d != digest))
    new.update(
        phase=P.ACTIVE, refused_by="", promoted_by=kind, promoted_time=board.now, test=None, watch=None
    )
    new.remember(promoted=board.seen.now, test="")
    came = f" after {old.short}" if old is not None else ""
    event = "RolledBack" if back and kind == "Rollback" else "Promoted"
    board.note(event, digest, f"{new.short} is active{came}, by {_WORDS[kind]}", by=kind, warn=back)


_WORDS = {
    "Gates": "its gates",
    "Decision": "a person's decision",
    "Pin": "spec.version.pinnedDigest",
    "Rollback": "rollback",
}


def _before(board: Board, active: str) -> str:
    """What a further rollback would go back to."""
    others = [
        record
        for record in board.records.values()
        if record.digest != active
        and record.memory.promoted
        and record.phase is not P.REFUSED
        and not record.served().refused
        and record.seen.has_content
    ]
    return max(others, key=lambda record: record.memory.promoted).digest if others else ""


def _gates(board: Board, held: str) -> bool:
    """Bring one candidate as far as its gates let it; True when it is done with, and another may follow."""
    record = _candidate(board)
    if record is None:
        return False
    if record.status.thresholds is None:
        record.update(thresholds=board.thresholds)
    elif not unchanged(record.status.thresholds, board.about.spec):
        what = changes(record.status.thresholds, board.thresholds)
        if record.phase is P.INCONCLUSIVE:
            # Somebody asks for it again after it came to an end.
            record.remember(first=0.0)
        refreeze(board, record, f"{what} changed since they began")
    else:
        record.update(thresholds=filled_in(record.status.thresholds, board.thresholds))
    record.update(phase=P.CANDIDATE, message="")
    passed = _content(board, record) and _held_out(board, record)
    if passed and held:
        record.update(test=None, message=f"another version is held active by {_WORDS[held]}")
    elif passed:
        passed = _canary(board, record)
    if record.phase is not P.CANDIDATE:
        return True
    if passed and not held and board.about.spec.version.policy == "Automatic":
        _activate(board, record.digest, "Gates")
        return True
    if record.status.test is None and _candidate(board) is not record:
        # It waits for a person and no test goes on: the last one made takes its place, now and not a tick later.
        return True
    board.candidate = record.digest
    return False


def _canary(board: Board, record: Record) -> bool:
    """Whether traffic does not speak against it, or is not asked; what it says is in the status."""
    if board.about.spec.canary is None:
        record.update(test=None, canary=NO_CANARY)
        record.remember(test="")
        return True
    said = judge_canary(board, record, board.about.spec.canary)
    record.update(canary=verdict_of(said, board.active))
    if said.outcome == "Failed":
        board.refuse(record, "Gates", said.message)
    elif said.outcome != "Passed" and said.final:
        _give_up(board, record, said.message)
    elif said.outcome == "Passed":
        if record.status.test is not None:
            what = f"{record.short} passed its canary: {said.message}"
            board.events.append(Happened("Normal", "CanaryPassed", what, record.digest))
        record.update(test=None)
        record.remember(test="")
    return said.outcome == "Passed"


def _candidate(board: Board) -> Record | None:
    """The version under test: the one whose test goes on, else the last one made of those that wait."""
    active = board.get(board.active)
    waiting = [
        record
        for record in board.latest_first()
        if record.digest != board.active and record.seen.has_content and _waits(board, record, active)
    ]
    tested = [r for r in waiting if r.status.test is not None and r.status.test.kind == "Promotion"]
    chosen = next(iter(tested or waiting), None)
    for record in waiting:
        if chosen is not None and record.age < chosen.age:
            record.update(phase=P.SUPERSEDED, message=f"{chosen.short} was made after it", test=None)
    return chosen


def _waits(board: Board, record: Record, active: Record | None) -> bool:
    if record.phase is P.CANDIDATE:
        return True
    frozen = record.status.thresholds
    again = frozen is not None and not unchanged(frozen, board.about.spec)
    again = again and record.status.restarts < MAX_RESTARTS
    later = active is None or record.age > active.age
    return record.phase is P.INCONCLUSIVE and again and later


def _content(board: Board, record: Record) -> bool:
    said = judge_content(record.seen.findings)
    record.update(content=verdict_of(said))
    if said.outcome == "Failed":
        board.refuse(record, "Gates", said.message)
    return said.outcome == "Passed"


def _held_out(board: Board, record: Record) -> bool:
    """Whether heldOut is passed; what it says is in the status."""
    active = board.get(board.active)
    pinned = board.about.spec.held_out.digest or board.held_out_digest
    if not pinned and active is not None:
        pinned = held_out_of(active.seen)
    before: Comparison | None = record.status.comparison
    found = judge_version(
        record.seen,
        active.seen if active is not None else None,
        thresholds=board.thresholds,
        pinned=pinned,
        before=before,
    )
    said = found.judgement
    if found.stale and said.outcome != "Error":
        parent = (record.seen.spec.parent_digest or "")[:SHORT] or "an empty playbook"
        said = replace(
            said, message=f"{said.message}; StaleBase: learned from {parent}, compared with today's active"
        )
    record.update(comparison=found.comparison, held_out=verdict_of(said, board.active))
    if said.outcome != "Error":
        board.held_out_digest = board.held_out_digest or held_out_of(record.seen)
    if said.outcome == "Failed":
        board.refuse(record, "Gates", said.message)
    elif said.outcome != "Passed":
        _give_up(board, record, said.message)
    return said.outcome == "Passed"


def _give_up(board: Board, record: Record, message: str) -> None:
    """It cannot be told: the active version stays."""
    record.update(phase=P.INCONCLUSIVE, message=message, test=None)
    board.note("Inconclusive", record.digest, f"{record.short} is not promoted: {message}", warn=True)


def _delivery(board: Board) -> Delivery:
    """What services must find. Nothing takes the place of content unless what was delivered is refused."""
    given = board.about.spec.delivery.config_map
    name = delivered_name(board.about.name, given.name if given is not None else "")
    delivered, active, whole = board.seen.delivered, board.get(board.active), not board.seen.altered
    if active is not None:
        source = active.seen.spec.config_map_name
        return Delivery(name, active.digest, source, whole and delivered == active.digest)
    known = board.get(delivered or "")
    refused = (delivered or "") in board.memory.refused or (known is not None and known.phase is P.REFUSED)
    if delivered and not refused:
        return Delivery(name, delivered, "", current=True)
    return Delivery(name, "", "", current=whole and delivered == "")


def _canaries(board: Board) -> tuple[CanaryWish, ...]:
    wishes = []
    for record in board.latest_first():
        test = record.status.test
        if test is None:
            continue
        told = record.status.canary if test.kind == "Promotion" else record.status.watch
        needed = told.needed if told is not None else None
        wishes.append(CanaryWish(record.digest, record.seen.name, test, record.memory.tally.pairs, needed))
    return tuple(wishes)
