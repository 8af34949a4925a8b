"""The watch: the active version, which the gates promoted, is compared with the one before for a while.

Each mode asks as its canary did. Where a person approved the version, or the canary is waived, the gateway's
mirrored requests are judged, if there is a gateway and an evaluator. What cannot be watched says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from combee.algo.canary import ALPHA, TOO_MUCH, Rules, takes, tally_verdict
from combee.algo.sequence import above
from combee.algo.tally import EXPENSES, Expense, Pair, Tally
from combee.algo.verdict import Judgement, number
from combee.api.canary import Canary
from combee.api.playbook import PlaybookSpec
from combee.api.playbook_status import Thresholds, Verdict
from combee.plan.playbook.board import Board, Record, verdict_of
from combee.plan.playbook.queries import tells_versions_apart
from combee.plan.playbook.readings import reading_verdict
from combee.plan.playbook.thresholds import evaluator_of
from combee.plan.playbook.traffic import begin, look, take, with_evaluator

WATCH_ALPHA = ALPHA
"""The watch's alpha: it is a sequence of its own, with its own chance to roll back what is not worse."""
LARGEST_RATIO = 10.0
"""A ratio of latencies or costs beyond it counts as that much, and one under its inverse as that little: one
answer that hangs decides nothing. A limit as large as this is not watched."""
_BEFORE = "the one before"
_NO_CANARY = "the Playbook has no canary: with mode Manual, an evaluator and a gateway it would be watched"
_NO_SIDES = "its queries select by $(side) alone, and both sides have the active version now: use $(version)"
_NO_EVALUATOR = "nobody judges answers after a promotion: give canary.evaluator and delivery.gateway.enabled"
_NO_TRAFFIC = "the version before has no traffic to compare with: leave some on it to have it watched"


def mirrors(canary: Mapping[str, Any] | None) -> bool:
    """Return whether the gateway mirrors requests for a Playbook's canary, or for the watch after it.
    ``canary``: as the API server has it.

    >>> mirrors({"mode": "Shadow"}), mirrors({"waived": "a demo"}), mirrors(None)
    (True, False, False)
    >>> mirrors({"mode": "Manual", "evaluator": {}, "watchSeconds": 60})
    True
    """
    about = canary or {}
    by_hand = about.get("mode") not in ("Shadow", "Replay", "Prometheus")
    watched = by_hand and about.get("evaluator") is not None and bool(about.get("watchSeconds"))
    return about.get("mode") == "Shadow" or watched


def watched_by(spec: PlaybookSpec) -> tuple[str, str]:
    """Return the mode in which the active version is compared with the one before, and "" for why not; or
    "" and why it is not, which is empty where nobody wants it."""
    canary = spec.canary
    if canary is None:
        return "", _NO_CANARY
    if not canary.watch_seconds:
        return "", ""
    if canary.mode in ("Shadow", "Replay"):
        return canary.mode, ""
    if canary.prometheus is not None:
        return ("Prometheus", "") if tells_versions_apart(canary.prometheus) else ("", _NO_SIDES)
    mirrored = canary.evaluator is not None and spec.delivery.gateway.enabled
    return ("Shadow", "") if mirrored else ("", _NO_EVALUATOR)


def watch(board: Board) -> bool:
    """Watch the active version that the gates promoted; return whether it must be rolled back.

    The gates can only undo what they decided: what a person promoted or pinned stays.
    """
    record, canary = board.get(board.active), board.about.spec.canary
    if record is None:
        return False
    previous = board.get(board.previous)
    undone = (
        record.status.promoted_by == "Gates"
        and not board.pinned
        and record.seen.spec.decision in ("Auto", "Approve")
        and previous is not None
        and previous.seen.has_content
        and not previous.served().refused
    )
    mode, why_not = watched_by(board.about.spec)
    end = record.memory.promoted + (canary.watch_seconds if canary is not None else 0)
    if not undone or canary is None or not mode or board.seen.now >= end:
        record.update(test=None)
        if board.seen.now >= end:
            record.remember(comparison="")
        if undone and why_not and record.status.watch is None:
            record.update(watch=Verdict(reason="NotWatched", message=why_not))
        return False
    frozen = _frozen(board, record, canary, mode)
    begin(board, record, canary, "Watch", mode, board.previous, canary.watch_seconds)
    take(board, record)
    board.wakes.append(end)
    # Where a person or a waiver let it through, no bound was compared with and frozen.
    bounds = canary if frozen.mode in ("", "Manual") else frozen
    epsilon = bounds.epsilon
    rules = Rules(epsilon, 0, 0, math.inf, alpha=WATCH_ALPHA)
    judgement = _verdict(record, canary, rules, board.seen.now - record.memory.since)
    limits: dict[Expense, float] = {"latency": bounds.max_latency_ratio, "cost": canary.max_cost_ratio}
    judgement = _with_expenses(board, record, judgement, limits)
    look(board, record, judgement, epsilon)
    record.update(watch=verdict_of(with_evaluator(record, canary, judgement), board.previous))
    return judgement.outcome == "Failed"


def _verdict(record: Record, canary: Canary, rules: Rules, elapsed_seconds: float) -> Judgement:
    """Return what came says of the active version against the one before."""
    tally, reading = record.memory.tally, record.memory.reading
    if canary.prometheus is None:
        return tally_verdict(tally, rules, elapsed_seconds, against=_BEFORE)
    judgement = reading_verdict(canary.prometheus, tally, reading, rules, elapsed_seconds, against=_BEFORE)
    trouble = reading.trouble if reading is not None else None
    gone = trouble is not None and (trouble.problem, trouble.side) == ("Empty", "active")
    if judgement.outcome == "Error" and gone:
        return replace(judgement, outcome="Inconclusive", reason="NoTraffic", message=_NO_TRAFFIC)
    return judgement


def _with_expenses(
    board: Board, record: Record, judgement: Judgement, limits: Mapping[Expense, float]
) -> Judgement:
    """Return ``judgement`` with what answers take, as multiples of those of the version before; or that they
    take more than ``limits`` of an expense, on the geometric mean."""
    comparison = record.status.test
    if comparison is None:
        return judgement
    came = board.seen.pairs.get(comparison.id, ())
    took = record.memory.expenses
    took = {of: took[of].with_pairs(comparison.id, more_of(of, came)) for of in EXPENSES}
    record.remember(expenses=took)
    ratios = {of: ratio for of in EXPENSES if (ratio := record.memory.tally.expenses[of].mean) is not None}
    multiples = "".join(f"; {takes(of, ratio)}" for of, ratio in ratios.items())
    for of, ratio in ratios.items():
        if judgement.outcome == "Failed" or not _is_over(took[of], limits[of]):
            continue
        finding = f"{takes(of, ratio)} as those of {_BEFORE}, n={took[of].pairs:,}"
        message = f"{finding}: more than {number(limits[of])} times is shown; {judgement.message}"
        return replace(judgement, outcome="Failed", reason=TOO_MUCH[of], message=message, needed=None)
    return replace(judgement, message=f"{judgement.message}{multiples}")


def _is_over(took: Tally, limit: float) -> bool:
    """Return whether it is shown that the geometric mean of the ratios is over ``limit``."""
    watched = 1 / LARGEST_RATIO < limit < LARGEST_RATIO
    return watched and above(took.counts, math.log(limit) / math.log(LARGEST_RATIO), WATCH_ALPHA)


def more_of(expense: Expense, pairs: Iterable[Pair]) -> list[Pair]:
    """Return those of which the expense was measured. Their difference is the logarithm to LARGEST_RATIO of
    the ratio: 0 for an answer that takes as much as that of the version before, 1 for LARGEST_RATIO times as
    much, or more.

    >>> [pair.difference for pair in more_of("latency", [Pair("s", 0, -1.0, 10.0), Pair("s", 1, 0.5)])]
    [1.0]
    """
    return [
        Pair(pair.stream, pair.number, _capped(ratio))
        for pair in pairs
        if (ratio := pair.ratio(expense)) is not None
    ]


def _capped(ratio: float) -> float:
    return max(-1.0, min(1.0, math.log(ratio) / math.log(LARGEST_RATIO)))


def _frozen(board: Board, record: Record, canary: Canary, mode: str) -> Thresholds:
    """Return what the watch goes by. It begins anew where another judge, or other questions, would give its
    scores another meaning, unless none was recorded."""
    frozen, old = record.status.thresholds or board.thresholds, record.status.test
    now = {"evaluator": evaluator_of(canary), "asked": board.thresholds.asked}
    before = {"evaluator": frozen.evaluator, "asked": frozen.asked}
    changed = [name for name in now if before[name] and before[name] != now[name]]
    if (old is not None and old.mode != mode) or changed:
        cause = f"evaluator {before['evaluator']} -> {now['evaluator']}" if "evaluator" in changed else ""
        cause = cause or "what is asked, or of whom,"
        message = f"the watch over {record.short} begins anew: {cause} changed since it began"
        record.update(restarts=record.status.restarts + 1, watch=None)
        board.note("Restarted", record.digest, message, warn=True)
    after = frozen.model_copy(update=now)
    record.update(thresholds=after)
    return after
