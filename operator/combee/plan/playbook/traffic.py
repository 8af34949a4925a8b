"""Comparisons on traffic: a candidate's canary, and what it has in common with the watch (``watch``).

Each stands in the version's status, from where the gateway and the judge take it, beside a tally of judged
pairs. A comparison's id changes with everything that would make its pairs mean something
else: the other version, the thresholds, the kind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from combee.algo.blocks import Grid
from combee.algo.canary import Rules, tally_verdict
from combee.algo.curve import Look
from combee.algo.power import ASSUMED_SD, EPSILONS, decidable_epsilon, pairs_needed
from combee.algo.tally import Tally
from combee.algo.verdict import Judgement, number
from combee.api.canary import Canary
from combee.api.gateway import LONGEST_MODEL
from combee.api.playbook import PlaybookSpec
from combee.api.playbook_status import TrafficComparison
from combee.api.stakes import WEAKEST
from combee.plan.playbook.board import Board, Record
from combee.plan.playbook.curve import Curve, looked
from combee.plan.playbook.memory import NO_EXPENSES
from combee.plan.playbook.queries import begins_at, query_warnings, windows_over
from combee.plan.playbook.readings import latest, reading_verdict
from combee.plan.playbook.thresholds import rules_of, thresholds_of
from combee.plan.playbook.types import Happened
from combee.plan.playbook.unasked import WITHOUT_CANARY, waiver

MAX_RESTARTS = 20
"""The most restarts of a version's comparisons in all: after them it cannot be told."""
MAX_DEADLINES = 3
"""The most deadlines after the first of its comparisons began, however often they began anew."""
Kind = Literal["Promotion", "Watch"]
_DAY = 86_400
_MANY = 10_000
"""The user is warned of an epsilon that takes more pairs than this, whatever the traffic."""


def canary_verdict(board: Board, record: Record, canary: Canary) -> Judgement:
    """Return what traffic says of the candidate, whose heldOut passed; start a comparison if there is none.

    Where no version is active, it is compared with requests as they are.
    """
    old, nothing = record.status.canary, not board.active
    if old is not None and old.outcome == "Passed" and old.against == board.active:
        return Judgement("Passed", old.reason, old.message, None, old.gain, old.low, old.high, old.samples)
    rules = _rules(board, record, canary)
    begin(board, record, canary, "Promotion", canary.mode or "", board.active, rules.deadline_seconds)
    if (spent := _spent(board, record, rules)) is not None:
        return spent
    elapsed = board.seen.now - record.memory.since
    for seconds in (rules.shortest_seconds, rules.deadline_seconds):
        board.wakes.append(record.memory.since + seconds)
    if canary.mode == "Manual" or (canary.prometheus is not None and nothing):
        # Services count by version: where none is active, there is nothing to ask Prometheus about.
        return _by_hand(record, rules, elapsed)
    take(board, record, rules.grid(record.memory.since))
    tally = record.memory.tally
    if canary.prometheus is None:
        judgement = tally_verdict(tally, rules, elapsed, against="no playbook" if nothing else "active")
    else:
        judgement = reading_verdict(canary.prometheus, tally, record.memory.reading, rules, elapsed)
        if judgement.reason == "QueryError":
            _warn_once(board, record, "QueryError", judgement.message)
    look(board, record, judgement, rules.epsilon)
    return with_evaluator(record, canary, _with_trouble(board, record, judgement))


def _rules(board: Board, record: Record, canary: Canary) -> Rules:
    """Return what the candidate is judged by. Beside no playbook, each one costs more."""
    rules = _delayed(rules_of(record.status.thresholds or board.thresholds), canary)
    return replace(rules, max_cost_ratio=canary.max_cost_ratio) if board.active else rules


def _delayed(rules: Rules, canary: Canary) -> Rules:
    """Return the rules by which windows before the labels' delay is over do not count."""
    delay = canary.prometheus.label_delay_seconds if canary.prometheus is not None else 0
    return replace(rules, late_seconds=delay)


def _warn_once(board: Board, record: Record, reason: str, message: str) -> None:
    """Add an event, unless the canary's verdict had that reason already."""
    if record.status.canary is None or record.status.canary.reason != reason:
        board.events.append(Happened("Warning", reason, message, record.digest))


def _with_trouble(board: Board, record: Record, judgement: Judgement) -> Judgement:
    """Return the same, and why pairs are not being judged, if so: the first time as an event, too."""
    comparison = record.status.test
    why = board.seen.not_judged.get(comparison.id, "") if comparison is not None else ""
    if not why or judgement.outcome != "Inconclusive":
        return judgement
    message = f"{judgement.message}; not judged: {why}"
    if judgement.final:
        return replace(judgement, message=message)
    _warn_once(board, record, "NotJudged", f"the canary is not being judged: {why}")
    return replace(judgement, reason="NotJudged", message=message)


def other_evaluator(record: Record, canary: Canary) -> str:
    """Return that another model judges than the one whose scores by the version's rubric were calibrated when
    it was learned; empty where it is the same, and where no rubric, or no model, is known."""
    origin, evaluator = record.seen.spec.origin, canary.evaluator
    learned = origin.models.get("evaluator", "")
    if canary.prometheus is not None or evaluator is None or origin.rubric is None or not learned:
        return ""
    model = evaluator.model[:LONGEST_MODEL]
    if model == learned:
        return ""
    return f"{model} judges, and its run calibrated {learned}: how {model} scores by the rubric is not shown"


def with_evaluator(record: Record, canary: Canary, judgement: Judgement) -> Judgement:
    """Return the same, and that another model judges, if so."""
    other = other_evaluator(record, canary)
    return replace(judgement, message=f"{judgement.message}; {other}") if other else judgement


def _by_hand(record: Record, rules: Rules, elapsed: float) -> Judgement:
    if record.seen.spec.decision == "Approve":
        return Judgement("Passed", "Approved", "somebody approved it")
    if elapsed >= rules.deadline_seconds:
        return Judgement("Inconclusive", "DeadlineExceeded", "nobody approved it before the deadline")
    version = f"{record.seen.spec.playbook_ref.name} {record.short}"
    message = f"somebody must approve it: kubectl combee playbook approve {version}"
    return Judgement("Inconclusive", "WaitingForApproval", message, final=False)


def _spent(board: Board, record: Record, rules: Rules) -> Judgement | None:
    """Return the verdict that its comparisons began anew too often, or for too long; else None."""
    restarts, end = record.status.restarts, record.memory.first + MAX_DEADLINES * rules.deadline_seconds
    if not restarts or record.seen.spec.decision == "Approve":
        return None
    board.wakes.append(end)
    if restarts < MAX_RESTARTS and board.seen.now < end:
        return None
    times = "once" if restarts == 1 else f"{restarts} times"
    long = "" if restarts >= MAX_RESTARTS else f", and {MAX_DEADLINES} deadlines since the first are over"
    message = f"its comparison began anew {times}{long}: promote it by name, or learn from the active version"
    return Judgement("Inconclusive", "DeadlineExceeded", message)


def begin(
    board: Board, record: Record, canary: Canary, kind: Kind, mode: str, against: str, seconds: float
) -> None:
    """Set the comparison as it must be now; begin a new one where the one there, or paused, is another."""
    thresholds = record.status.thresholds or board.thresholds
    other = against[:12] or "nothing"
    name = f"{record.short}-{other}-{thresholds.digest[:8]}-{kind[0].lower()}{record.status.restarts}"
    old = record.status.test
    began = old.id if old is not None else record.memory.comparison
    fresh = began != name
    if fresh:
        if began and kind == "Promotion":
            _restarted(board, record, f"{against[:12] or 'no version'} is active now")
            name = f"{name.rsplit('-', 1)[0]}-p{record.status.restarts}"
        record.remember(since=board.seen.now, tally=Tally(), expenses=NO_EXPENSES, reading=None)
    record.remember(comparison=name, first=record.memory.first or record.memory.since)
    since = record.memory.since
    comparison = TrafficComparison(
        id=name,
        kind=kind,
        mode=mode,
        against=against,
        traffic_percent=canary.traffic_percent,
        since=board.about.when(since),
        until=board.about.when(since + seconds),
    )
    record.update(test=comparison)
    if fresh and kind == "Promotion" and not record.status.restarts:
        by_rubric = canary.evaluator is not None and record.seen.spec.origin.rubric is not None
        compared = f"compared with {against[:12] or 'no playbook'}, mode {mode}"
        compared += ", by the rubric that it was learned by" if by_rubric else ""
        other = other_evaluator(record, canary) if mode != "Manual" else ""
        noted = f"; {other}" if other else ""
        message = f"{record.short} passed heldOut and is {compared}, until {comparison.until}{noted}"
        board.note("CanaryBegan", record.digest, message)


def _restarted(board: Board, record: Record, why: str) -> None:
    record.update(restarts=record.status.restarts + 1, canary=None)
    board.note("Restarted", record.digest, f"the comparison of {record.short} begins anew: {why}", warn=True)


def refreeze(board: Board, record: Record, why: str) -> None:
    """Begin its comparisons anew under today's thresholds."""
    _restarted(board, record, why)
    record.update(thresholds=board.thresholds, held_out=None, test=None)
    record.remember(comparison="")


def take(board: Board, record: Record, grid: Grid | None = None) -> None:
    """Count the pairs that came for its comparison, by time on ``grid``, and the requests that none can be
    made of."""
    comparison, seen, memory = record.status.test, board.seen, record.memory
    if comparison is None:
        return
    tally = memory.tally.with_pairs(comparison.id, seen.pairs.get(comparison.id, ()), grid)
    tally = tally.with_left_out(seen.left_out.get(comparison.id, ()))
    canary, reading = board.about.spec.canary, memory.reading
    came = seen.readings.get(comparison.id, ())
    if canary is not None and canary.prometheus is not None and came:
        begins = begins_at(memory.since, canary.prometheus)
        reading = latest(reading, came, windows_over(canary.prometheus, begins, seen.now))
    record.remember(tally=tally, reading=reading)


def look(board: Board, record: Record, judgement: Judgement, epsilon: float) -> None:
    """Remember a judgement for the curve of its comparison."""
    comparison = record.status.test
    gain, low, high = judgement.gain, judgement.low, judgement.high
    if comparison is None or gain is None or low is None or high is None:
        return
    since = record.memory.since
    curve = Curve(comparison.id, comparison.kind, comparison.against, epsilon, since)
    look = Look(round(board.seen.now - since), judgement.samples, gain, low, high)
    record.remember(curves=looked(record.memory.curves, curve, look))


def least_epsilon(spec: PlaybookSpec, pairs: float) -> float | None:
    """Return the least epsilon that ``pairs`` can decide for an equal candidate, if failureCost allows it."""
    largest = WEAKEST[spec.failure_cost].epsilon
    return decidable_epsilon(pairs, among=[epsilon for epsilon in EPSILONS if epsilon <= largest])


def warnings(spec: PlaybookSpec) -> tuple[str, ...]:
    """Return what the canary asks for and can hardly get, its epsilon with the traffic there is, or with any,
    and its verdict on what is Unstable; or that it is waived, and why; or that there is none."""
    canary = spec.canary
    if canary is None:
        return (WITHOUT_CANARY,)
    if canary.waived is not None:
        return (waiver(canary.waived),)
    late = _too_late(_delayed(rules_of(thresholds_of(spec)), canary))
    if canary.prometheus is not None:
        return (*query_warnings(canary, canary.prometheus), *late)
    return (*_too_few(spec, canary), *late)


def _too_late(rules: Rules) -> tuple[str, ...]:
    """Return that the deadline comes before anything that is Unstable can pass; nothing where it does not."""
    least = rules.deadline_for_unstable
    if rules.deadline_seconds >= least:
        return ()
    given = f"canary.deadlineSeconds {rules.deadline_seconds:.0f}"
    never = (
        f"a candidate whose hours differ is Unstable until {least:.0f} s have passed, and so can never pass"
    )
    return (f"{given}: {never}: give it at least that time",)


def _too_few(spec: PlaybookSpec, canary: Canary) -> tuple[str, ...]:
    """Return that too few pairs come before the deadline; nothing where enough do.

    This assumes an equal candidate and differences of ASSUMED_SD, since nothing is known before traffic
    comes.
    """
    if canary.mode not in ("Shadow", "Replay"):
        return ()
    needed = pairs_needed(canary.epsilon)
    two_digits = None if needed is None else int(float(f"{needed:.2g}"))
    many = "no number of pairs" if two_digits is None else f"about {two_digits:,} pairs"
    demand = f"canary.epsilon {number(canary.epsilon)}: {many} would show an equal candidate to be no worse"
    if needed is None:
        demand = f"{demand}; a larger epsilon can be decided"
    basis = f"(differences with a standard deviation of {ASSUMED_SD})"
    if canary.expected_requests_per_day is None:
        return (f"{demand} {basis}",) if needed is None or needed > _MANY else ()
    share = canary.traffic_percent / 100 if canary.mode == "Shadow" else 1.0
    expected = canary.expected_requests_per_day * share * canary.deadline_seconds / _DAY
    come, texts = f"about {int(expected):,} come before the deadline", []
    if needed is None or needed > expected:
        better = least_epsilon(spec, expected)
        instead = (
            f"no epsilon that failureCost {spec.failure_cost} allows can be decided: look at more requests"
        )
        if better:
            instead = f"epsilon {number(better)} can be decided"
        texts.append(f"{demand} {basis}, and {come}: {instead}")
    if canary.min_samples > expected:
        texts.append(f"canary.minSamples {canary.min_samples:,}: {come}")
    return tuple(texts)
