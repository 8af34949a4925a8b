"""The looks at a heldOut, numbered over a Playbook's life, so that one error budget lasts for all of them.

What a look may cost by its number, and why that holds, is in ``algo.spending``. A look is

- a version that can be compared on a heldOut. It gets its number once, before its verdict is read, and is
  judged at the same level ever after: under other thresholds, since the interval holds for all of them at
  once, and against another active version, since it got so far only by passing against the one before.
- a run of ``learn.template`` that looked at gate, and made no version because it measured no gain. Were only
  gains counted, each look would err about twice as often as its number allows.

What cannot be compared (HeldOutMoved, NotMeasured), and what a person promotes before that, is no look. A run
that somebody applied and that measured no gain leaves nothing to count.

Each number is kept twice, with the Playbook and with its version: neither a crash between the two writes nor
a Playbook that is deleted and applied again counts a look anew or begins at 1. A heldOut that is named again
keeps its looks; another digest has none yet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from combee.algo.gates import compare, held_out_verdict
from combee.algo.spending import look_confidence, percent, spent
from combee.api.playbook_status import ErrorBudget, Look
from combee.plan.playbook.board import Board, Record
from combee.plan.playbook.changed import Looks, VersionLook, is_passed
from combee.plan.playbook.memory import MAX_HELD_OUTS, MAX_LOOKED
from combee.plan.playbook.types import Happened

_KEY_DIGITS = 12
_HOPELESS = (
    ", and not even one that is right on every row could pass: bring rows that nobody looked at, and name "
    "their digest in spec.heldOut.digest"
)


def settle_looks(board: Board) -> None:
    """Take the looks from the versions, where the Playbook does not know them, and count those of runs.

    A version that an earlier release compared has no number yet: such versions get theirs by age.
    """
    records = list(board.latest_first())[::-1]
    looks = [record.status.look for record in records if record.status.look is not None]
    board.memory = replace(board.memory, looks=_recalled(board.memory.looks, looks))
    for record in records:
        if record.status.look is None and record.status.comparison is not None:
            look_at(board, record, record.status.comparison.held_out_digest)
    for run in sorted(board.seen.runs, key=lambda run: (run.created, run.name)):
        if run.looked_at and run.looked_at == (board.compared_on or run.looked_at):
            _counted(board, run.looked_at, run.name)


def look_at(board: Board, record: Record, held_out: str) -> int:
    """Return the number of a version's look at a heldOut, which is counted if it was not."""
    look = record.status.look
    if look is None or look.held_out_digest != held_out:
        look = Look(held_out_digest=held_out, number=_counted(board, held_out, record.digest))
        record.update(look=look)
    return look.number


def looks_at(board: Board) -> Looks:
    """Return the looks as of now."""
    wanted, records = board.about.spec.held_out, board.records.values()
    of_versions = tuple(
        VersionLook(one.status.look, is_passed(one.status, one.memory))
        for one in records
        if one.status.look is not None
    )
    return Looks(board.about.name, board.memory.looks, of_versions, wanted.digest or "", wanted.reason)


def error_budget(board: Board) -> ErrorBudget | None:
    """Return what is spent and left on the heldOut that versions are compared on; None without one."""
    held_out, before = board.compared_on, board.before.error_budget
    if not held_out or board.about.unreadable:
        return before
    looks, confidence = dict(board.memory.looks).get(held_out, 0), board.thresholds.confidence
    cost, asked_for = spent(confidence, looks), look_confidence(confidence, looks + 1)
    budget = ErrorBudget(
        held_out_digest=held_out,
        looks=looks,
        spent=round(cost, 9),
        left=round(1 - confidence - cost, 9),
        next_confidence=round(asked_for, 12),
    )
    same = before is not None and budget == before.model_copy(update={"message": ""})
    same = same and board.before.active_digest == board.active
    if before is not None and same and board.before.observed_generation == board.about.generation:
        return before
    times = "1 look" if looks == 1 else f"{looks:,} looks"
    message = f"{times} at this heldOut; the next candidate is judged at {percent(asked_for)} %"
    if _hopeless(board, held_out, looks + 1):
        message += _HOPELESS
    return budget.model_copy(update={"message": message})


def warn_of(board: Board, budget: ErrorBudget | None) -> None:
    """Add an event after each look that leaves the next candidate without a chance."""
    before = board.before.error_budget
    if (
        budget is not None
        and _HOPELESS in budget.message
        and (before is None or before.message != budget.message)
    ):
        board.events.append(Happened("Warning", "HeldOutSpent", budget.message))


def _hopeless(board: Board, held_out: str, look: int) -> bool:
    """Return whether a candidate that is right everywhere would not pass as that look; False if not known."""
    active = board.get(board.active)
    if active is None or active.seen.gate is None or active.seen.gate.held_out != held_out:
        return False
    scores, confidence = active.seen.gate.best, board.thresholds.confidence
    best = compare(dict.fromkeys(scores, 1.0), scores, confidence=confidence)
    min_gain = board.thresholds.min_gain
    verdict = held_out_verdict(best, min_score=None, min_gain=min_gain, confidence=confidence, look=look)
    return verdict.outcome != "Passed"


def _recalled(remembered: tuple[tuple[str, int], ...], looks: Iterable[Look]) -> tuple[tuple[str, int], ...]:
    """Return what is remembered of the heldOuts with the looks of versions, oldest first, that it lacks: they
    come last, as counted looks do. One that went to make room does not come again, so that the same facts
    give the same memory."""
    known, lacking = dict(remembered), dict[str, int]()
    for look in looks:
        held_out = look.held_out_digest
        if look.number > max(known.get(held_out, 0), lacking.get(held_out, 0)):
            lacking.pop(held_out, None)
            lacking[held_out] = look.number
    strange = [held_out for held_out in lacking if held_out not in known]
    too_many = max(0, len(strange) - MAX_HELD_OUTS + len(remembered))
    kept = (one for one in remembered if one[0] not in lacking)
    return (*kept, *(one for one in lacking.items() if one[0] not in strange[:too_many]))


def _counted(board: Board, held_out: str, name: str) -> int:
    """Return the number of the look of a version (its digest) or a run (its name); count it if it is new."""
    key = hashlib.sha256(f"{held_out}/{name}".encode()).hexdigest()[:_KEY_DIGITS]
    memory = board.memory
    known = dict(memory.looked).get(key)
    if known is not None:
        return known
    number = dict(memory.looks).get(held_out, 0) + 1
    others = tuple(one for one in memory.looks if one[0] != held_out)
    board.memory = replace(
        memory,
        looks=(*others, (held_out, number))[-MAX_HELD_OUTS:],
        looked=(*memory.looked, (key, number))[-MAX_LOOKED:],
    )
    return number
