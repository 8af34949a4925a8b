"""Which version of a Playbook is active, decided from one tick's facts. Pure.

    refusals -> the watch over the active version -> pin, then Promote, then the record (``serving``)
        -> the gates of one candidate -> phases, delivery, runs, what goes

The order is the contract: Refuse, then a pin, then Promote, then the gates. A refused version is never
active again unless it is named. One candidate is compared at a time: the one whose comparison goes on, else
the last one made; older ones that still wait are superseded. Whatever is doubtful leaves the active version
where it is. While the spec or the active version cannot be read, people's refusals and promotions by name are
followed and delivered; nothing is judged, learned or pruned.

Deciding again on the same facts, with the plan's statuses written, gives the same plan and no events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from combee.api.playbook_status import Comparison, PlaybookStatus, Verdict, VersionPhase
from combee.methods.findings import content_verdict
from combee.names import delivered_name
from combee.plan.playbook.board import Board, By, Record, verdict_of
from combee.plan.playbook.changed import lost_before
from combee.plan.playbook.heldout import SHORT, held_out_of, is_stale, measured_on, version_verdict
from combee.plan.playbook.history import prunable, prunable_contents, settle_phases
from combee.plan.playbook.learn import learning
from combee.plan.playbook.lines import begin_lines, end_lines
from combee.plan.playbook.looks import error_budget, look_at, looks_at, settle_looks, warn_of
from combee.plan.playbook.serving import Wanted, ranking
from combee.plan.playbook.standing import playbook_status, version_status
from combee.plan.playbook.thresholds import changes, filled_in, unchanged
from combee.plan.playbook.traffic import MAX_RESTARTS, canary_verdict, refreeze
from combee.plan.playbook.types import About, CanaryWish, Delivery, PlaybookPlan, PlaybookSeen
from combee.plan.playbook.unasked import let_through, without_traffic
from combee.plan.playbook.watch import watch

P = VersionPhase
Hold = Literal["Pin", "Decision", ""]


def decide_playbook(about: About, status: PlaybookStatus, seen: PlaybookSeen) -> PlaybookPlan:
    """Return the next PlaybookPlan. ``status``: the Playbook's as written last, a fresh one for a new one.

    Raises BugError when a status holds a state that only a later version can read.
    """
    board = Board.of(about, status, seen)
    begin_lines(board)
    _refusals(board)
    _recall(board)
    settle_looks(board)
    if about.unreadable or board.opaque(board.active):
        held = _serve(board)
        board.candidate = _still_waits(board)
    else:
        held = _gated(board)
    settle_phases(board)
    learned = learning(board)
    delivery = _delivery(board)
    if not delivery.current:
        board.wakes.append(seen.now + 1)
    settled = not (about.unreadable or board.opaque(board.active))
    pruned = prunable(board) if settled else ()
    emptied = prunable_contents(board) if settled else ()
    budget = error_budget(board)
    warn_of(board, budget)
    end_lines(board, {*pruned, *emptied})
    after = playbook_status(board, learned, delivery, held, budget)
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


def _gated(board: Board) -> Hold:
    """Go through the watch, the serving rule and the gates; return what ``_serve`` does."""
    if watch(board):
        record = board.records[board.active]
        cause = record.status.watch.message if record.status.watch else ""
        board.refuse(record, "Rollback", f"it fell under its floor after promotion: {cause}")
    held = _serve(board)
    while _gates(board, held):
        pass
    watch(board)
    return held


def _still_waits(board: Board) -> str:
    """Return the last tick's candidate where it may still be one; its canary stays as it is."""
    record = board.get(board.before.candidate_digest)
    waits = record is not None and record.phase is P.CANDIDATE and record.digest != board.active
    return board.before.candidate_digest if waits else ""


def _refusals(board: Board) -> None:
    """Refuse what people refused, now or before. This comes first, whatever else they asked for."""
    for record in board.latest_first():
        decision, phase = record.seen.spec.decision, record.phase
        known = record.digest in board.memory.refused
        if phase is P.REFUSED and record.status.refused_by != "Gates" and decision != "Promote" and not known:
            # A Playbook that was applied again learns from its versions what was refused.
            board.memory = board.memory.recalling(record.digest)
        by_person = phase is P.REFUSED and record.status.refused_by == "Decision"
        if decision == "Refuse" and not by_person:
            board.refuse(record, "Decision", "spec.decision says Refuse")
        elif known and decision != "Promote" and phase is not P.REFUSED:
            board.refuse(record, "Decision", "it was refused before, and its version was made anew")


def _recall(board: Board) -> None:
    """Find in the versions what was active, for a Playbook that was deleted and applied again."""
    if board.active:
        return
    for record in board.latest_first():
        if record.phase is P.ACTIVE and not board.active:
            board.active = record.digest
        elif record.phase is P.PREVIOUS and not board.previous:
            board.previous = record.digest
    unread = (one.digest for one in board.seen.opaque if one.phase == P.ACTIVE and not one.refused)
    board.active = board.active or next(unread, "")


def _serve(board: Board) -> Hold:
    """Make active what the serving rule says; return what holds it there: "Pin", "Decision" or ""."""
    wanted = Wanted(board.pinned, board.active, board.previous, frozenset(board.memory.refused))
    versions = [record.served() for record in board.records.values()]
    versions += [version for version in board.seen.opaque if board.opaque(version.digest)]
    order = ranking(wanted, versions)
    target = next((digest for digest in order if _deliverable(board, digest)), "")
    target = target or _last_resort(board)
    record = board.get(target)
    held: Hold = ""
    if record is not None and target == board.pinned:
        held = "Pin"
    elif record is not None and record.seen.spec.decision == "Promote":
        held = "Decision"
    if target != board.active:
        former = board.get(board.active)
        rolled_back = former is not None and former.served().refused
        _activate(board, target, "Rollback" if rolled_back and not held else held or "Rollback")
    return held


def _deliverable(board: Board, digest: str) -> bool:
    record = board.get(digest)
    if record is None:
        # A version that cannot be read stays where it is, and goes nowhere else.
        return bool(digest) and digest == board.active and board.opaque(digest)
    return record.seen.has_content or board.seen.delivered == digest


def _last_resort(board: Board) -> str:
    """Return the version promoted last that may be active, for when neither active nor previous one may."""
    return _promoted_last(r for r in board.latest_first() if _deliverable(board, r.digest))


def _activate(board: Board, digest: str, by: By) -> None:
    """Make ``digest`` active from now on; an empty one means that no version is."""
    old, new = board.get(board.active), board.get(digest)
    back = old is not None and old.served().refused
    board.previous = "" if old is None or back else old.digest
    board.active = digest
    if back:
        board.previous = _before(board, digest)
    if new is None:
        board.note("RolledBack", "", "no version is active any more", by=by, warn=True)
        return
    board.memory = replace(board.memory, refused=tuple(d for d in board.memory.refused if d != digest))
    new.update(phase=P.ACTIVE, refused_by="", promoted_by=by, promoted_time=board.now, test=None, watch=None)
    new.remember(promoted=board.seen.now, comparison="")
    after = f" after {old.short}" if old is not None else ""
    event = "RolledBack" if back and by == "Rollback" else "Promoted"
    canary = new.status.canary
    waived = by == "Gates" and canary is not None and canary.outcome == "Waived"
    why = f"; {canary.message}" if canary is not None and waived else ""
    board.note(event, digest, f"{new.short} is active{after}, by {_WORDS[by]}{why}", by=by, warn=back)


_WORDS: Mapping[str, str] = {
    "Gates": "its gates",
    "Decision": "a person's decision",
    "Pin": "spec.version.pinnedDigest",
    "Rollback": "rollback",
}


def _before(board: Board, active: str) -> str:
    """Return the digest that a further rollback would go back to."""
    return _promoted_last(
        record
        for record in board.records.values()
        if record.digest != active and not record.served().refused and record.seen.has_content
    )


def _promoted_last(records: Iterable[Record]) -> str:
    """Return the digest of the version promoted last that is not refused; empty where there is none."""
    fit = [record for record in records if record.memory.promoted and record.phase is not P.REFUSED]
    return max(fit, key=lambda record: record.memory.promoted).digest if fit else ""


def _gates(board: Board, held: str) -> bool:
    """Bring one candidate as far as its gates let it; return whether it is done and another may follow."""
    record = _candidate(board)
    if record is None:
        return False
    if record.status.thresholds is None:
        record.update(thresholds=board.thresholds)
    elif not unchanged(record.status.thresholds, board.about.spec):
        difference = changes(record.status.thresholds, board.thresholds)
        if record.phase is P.INCONCLUSIVE:
            # Somebody wants it again after it came to an end.
            record.remember(first=0.0)
        refreeze(board, record, f"{difference} changed since they began")
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
        # It waits for a person and no canary goes on: the latest version takes its place in this tick.
        return True
    board.candidate = record.digest
    return False


def _canary(board: Board, record: Record) -> bool:
    """Return whether traffic, a person or a waiver lets it through; the status gets what they say."""
    canary = board.about.spec.canary
    if canary is None or canary.mode is None:
        return let_through(without_traffic(board, record))
    judgement = canary_verdict(board, record, canary)
    record.update(canary=verdict_of(judgement, board.active))
    if judgement.outcome == "Failed":
        board.refuse(record, "Gates", judgement.message)
    elif judgement.outcome != "Passed" and judgement.final:
        _give_up(board, record, judgement.message)
    elif judgement.outcome == "Passed":
        if record.status.test is not None:
            message = f"{record.short} passed its canary: {judgement.message}"
            board.note("CanaryPassed", record.digest, message)
        record.update(test=None)
        record.remember(comparison="")
    return judgement.outcome == "Passed"


def _candidate(board: Board) -> Record | None:
    """Return the version to compare: whose comparison goes on, else the last one made of those waiting."""
    active = board.get(board.active)
    waiting = [
        record
        for record in board.latest_first()
        if record.digest != board.active and record.seen.has_content and _waits(board, record, active)
    ]
    compared = [r for r in waiting if r.status.test is not None and r.status.test.kind == "Promotion"]
    chosen = next(iter(compared or waiting), None)
    for record in waiting:
        if chosen is not None and record.age < chosen.age:
            message = f"{chosen.short} was made after it"
            record.update(phase=P.SUPERSEDED, message=message, test=None)
            board.record_line("Superseded", record.digest, f"{record.short} is not compared: {message}")
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
    judgement = content_verdict(record.seen.findings)
    record.update(content=verdict_of(judgement))
    if judgement.outcome == "Failed":
        board.refuse(record, "Gates", judgement.message)
    return judgement.outcome == "Passed"


def _held_out(board: Board, record: Record) -> bool:
    """Return whether heldOut is passed; the status gets what it says."""
    active = board.get(board.active)
    seen, base, thresholds = record.seen, active.seen if active is not None else None, board.thresholds
    judgement = measured_on(
        seen,
        base,
        confidence=thresholds.confidence,
        pinned=board.compared_on,
        before=record.status.comparison,
    )
    record.update(comparison=None)
    if isinstance(judgement, Comparison) and _waits_for_a_reason(board, record):
        return False
    if isinstance(judgement, Comparison):
        record.update(comparison=judgement)
        # Its number is given before its verdict is read, whatever that will be.
        look = look_at(board, record, judgement.held_out_digest)
        judgement = version_verdict(seen, judgement, thresholds=thresholds, look=look)
    if judgement.outcome != "Error":
        board.held_out_digest = board.held_out_digest or held_out_of(seen)
        if is_stale(seen, base):
            parent = (seen.spec.parent_digest or "")[:SHORT] or "an empty playbook"
            stale = f"StaleBase: learned from {parent}, compared with today's active"
            judgement = replace(judgement, message=f"{judgement.message}; {stale}")
        if (reason := board.about.spec.held_out.reason) is not None:
            judgement = replace(judgement, message=f"{judgement.message}; heldOut was changed: {reason}")
    before, verdict = record.status.held_out, verdict_of(judgement, board.active)
    record.update(held_out=verdict)
    if judgement.outcome == "Passed" and verdict != before:
        board.record_line("HeldOutPassed", record.digest, f"{record.short} passed heldOut: {verdict.message}")
    if judgement.outcome == "Failed":
        board.refuse(record, "Gates", judgement.message)
    elif judgement.outcome != "Passed":
        _give_up(board, record, judgement.message)
    return judgement.outcome == "Passed"


def _waits_for_a_reason(board: Board, record: Record) -> bool:
    """Return whether a candidate waits until somebody says why heldOut was changed after it showed no gain,
    and tell of it once. Where discipline is Advisory it is told, and goes on."""
    lost = lost_before(looks_at(board), held_out_of(record.seen))
    if not lost or board.about.spec.held_out.reason is not None:
        return False
    now, before = held_out_of(record.seen), record.status.held_out
    fact = f"the last look at heldOut {lost[:SHORT]} passed nothing"
    fact = f"{fact}, and {record.short} was scored on {now[:SHORT]}"
    why = "rows that are changed after a bad result are a leak"
    how = f"say in spec.heldOut.reason why they were changed, beside digest: {now}"
    message = f"{fact}: {why}; {how}"
    if before is None or before.reason != "ChangeUnexplained":
        board.note("HeldOutChanged", record.digest, message, warn=True)
    if not board.about.strict:
        return False
    record.update(held_out=Verdict(outcome="Inconclusive", reason="ChangeUnexplained", message=message))
    return True


def _give_up(board: Board, record: Record, message: str) -> None:
    """Leave a candidate undecided: the active version stays."""
    record.update(phase=P.INCONCLUSIVE, message=message, test=None)
    board.note("Inconclusive", record.digest, f"{record.short} is not promoted: {message}", warn=True)


def _delivery(board: Board) -> Delivery:
    """Return what services must find. Content is taken away without other content only if it is refused."""
    given = board.about.spec.delivery.config_map
    name = delivered_name(board.about.name, given.name if given is not None else "")
    delivered, active, whole = board.seen.delivered, board.get(board.active), not board.seen.altered
    if active is not None:
        source = active.seen.spec.config_map_name
        return Delivery(name, active.digest, source, whole and delivered == active.digest)
    record = board.get(delivered or "")
    refused = (delivered or "") in board.memory.refused or (record is not None and record.phase is P.REFUSED)
    if delivered and not refused:
        return Delivery(name, delivered, "", current=True)
    return Delivery(name, "", "", current=whole and delivered == "")


def _canaries(board: Board) -> tuple[CanaryWish, ...]:
    wishes = []
    for record in board.latest_first():
        if (comparison := record.status.test) is None:
            continue
        verdict = record.status.canary if comparison.kind == "Promotion" else record.status.watch
        needed = verdict.needed if verdict is not None else None
        wishes.append(
            CanaryWish(
                record.digest,
                record.seen.name,
                comparison,
                record.memory.tally.pairs,
                needed,
                record.seen.spec.origin.rubric,
            )
        )
    return tuple(wishes)
