"""Which claims of a result survive an audit: one rule a claim. Pure.

A claim that the audit looked at and that does not hold has ``failed``; one that the result does not make, or
that nothing looked at, is ``not shown``. There is no third way out: a doubtful claim has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from combee.algo.stats import paired_difference
from combee.report.audit import FAILED, NOT_SHOWN, SURVIVED, AuditedRun, Claim, OtherClass, Stamp, Stamped
from combee.report.result import Paired, Result
from combee.report.text import count, signed

Scores = Mapping[str, Mapping[str, float]]
"""``baseline`` and ``best``: row, or cluster where rows have one -> score in [0, 1]."""


_Verdict = tuple[Stamped, str]
"""A stamp and its words."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What an audit saw. A part that it did not look at is None or empty."""

    rescored: Paired | None = None
    """the delivered prompt against the untouched one, by fresh answers."""
    seeds: Sequence[AuditedRun] = ()
    pooled: Paired | None = None
    """all seeds together, by row or by cluster."""
    other: OtherClass | None = None
    differences: int | None = None
    """values that came out otherwise in the replay; None where it could not be made."""
    replayed_until: str = ""
    """where the record ends, where it ends before the run does."""
    not_replayed: str = ""
    """why there was no replay."""


def stamps(result: Result, seen: Seen) -> tuple[Stamp, ...]:
    """Return the stamp of each claim, in the order of the table."""
    made = (_gain(result, seen), _better(result, seen), _faster(result, seen), _budget(result, seen))
    verdicts = zip(get_args(Claim), (*made, _replay(seen)), strict=True)
    return tuple(Stamp(claim=claim, stamp=stamp, words=words) for claim, (stamp, words) in verdicts)


def claims_gain(result: Result) -> bool:
    """Return whether the result says that its prompt is better: the interval on gate lies above zero."""
    return result.gate is not None and result.gate.low > 0


def claims_speed_up(result: Result) -> bool:
    """Return whether the result says that it was faster than a serial baseline that it measured."""
    diagnosis = result.diagnosis
    return bool(diagnosis and diagnosis.measured and diagnosis.speed_up and diagnosis.speed_up > 1)


def _gain(result: Result, seen: Seen) -> _Verdict:
    if not claims_gain(result):
        return _unclaimed("its interval on gate does not lie above zero")
    if seen.rescored is None:
        return (NOT_SHOWN, "nothing was scored again")
    held = seen.rescored.low > 0
    return (SURVIVED if held else FAILED, f"fresh answers: {_interval(seen.rescored)}")


def _better(result: Result, seen: Seen) -> _Verdict:
    """The pooled interval must lie above zero, and no seed may be without a gain. All three intervals are not
    asked for: of a true gain that a run shows in four of five cases, half of all triples would fail. The
    interval alone is not enough: its unit is the row, so that two good seeds would hide one that learns
    nothing. A second engine is one run, and its own interval decides."""
    if not claims_gain(result):
        return _unclaimed("its interval on gate does not lie above zero")
    if not seen.seeds:
        return (NOT_SHOWN, "no other seed was run")
    gains = ", ".join(f"seed {one.seed} {_gain_of(one)}" for one in seen.seeds)
    pooled = seen.pooled
    held = pooled is not None and pooled.low > 0 and all(one.gate and one.gate.gain > 0 for one in seen.seeds)
    words = f"{gains}; pooled {_interval(pooled)}" if pooled else f"{gains}; no seed found a better prompt"
    engine = seen.other.run if seen.other else None
    if engine is not None:
        held = held and engine.gate is not None and engine.gate.low > 0
        shown = _interval(engine.gate) if engine.gate else "nothing better"
        words += f"; second engine {shown}"
    return (SURVIVED if held else FAILED, words)


def _faster(result: Result, seen: Seen) -> _Verdict:
    """Every seed and the second class must be faster than the serial learning that they measured."""
    if result.serial_baseline is not None:
        return (NOT_SHOWN, "its serial curve is stated: nothing here can time it again")
    if not claims_speed_up(result):
        return _unclaimed("it measured no serial baseline, or was not faster")
    if not seen.seeds:
        return (NOT_SHOWN, "no other seed was run")
    times = [(f"seed {one.seed}", one.speed_up) for one in seen.seeds]
    other = seen.other
    if other is not None and other.law:
        times.append(("second law", other.law_speed_up))
    if other is not None and other.run is not None:
        times.append(("second engine", other.run.speed_up))
    words = ", ".join(f"{name} {_times(value)}" for name, value in times)
    if any(value is None or value <= 1 for _, value in times):
        return (FAILED, words)
    if other is None:
        return (NOT_SHOWN, f"{words}; on no second class of hardware: --second-engine, --latency-law")
    return (SURVIVED, words)


def _budget(result: Result, seen: Seen) -> _Verdict:
    """Nothing may be overrun by more than the calls in flight, as a share of all calls."""
    limited = [line for line in result.budget if line.limit is not None]
    if not limited:
        return _unclaimed("its manifest sets no limit")
    over = [f"this run {name}" for name in overruns(result)]
    others = [*seen.seeds, *([seen.other.run] if seen.other and seen.other.run else [])]
    over += [f"{_name(one)} {name}" for one in others for name in one.over_budget]
    runs = count(1 + len(others), "run")
    if over:
        return (FAILED, f"over it: {', '.join(over)}")
    return (SURVIVED, f"{runs}, {count(len(limited), 'limit')} each")


def overruns(result: Result) -> tuple[str, ...]:
    """Return the limits that a run overran by more than its calls in flight can have used."""
    calls = sum(use.calls for use in result.usage.values())
    share = min(1.0, result.setup.concurrency / calls) if calls else 1.0
    lines = (line for line in result.budget if line.limit is not None)
    return tuple(line.name for line in lines if line.spent > (line.limit or 0) * (1 + share))


def _replay(seen: Seen) -> _Verdict:
    if seen.differences is None:
        return (NOT_SHOWN, seen.not_replayed or "it was not replayed")
    if seen.differences:
        return (FAILED, f"{count(seen.differences, 'value')} came out otherwise; see combee replay")
    until = f", until {seen.replayed_until}" if seen.replayed_until else ""
    return (SURVIVED, f"every plan, step and byte is the same{until}")


def pooled(seeds: Iterable[Scores | None], seed: int) -> Paired | None:
    """Return before and after over all seeds: the score of a row (or cluster) is the mean of its scores over
    them, so that it stays the unit and correlated seeds are not counted as independent.

    A seed that looked at no gate (None) delivered the untouched prompt: before is after. None where all are
    so.
    """
    listed = list(seeds)
    looked = [one for one in listed if one is not None]
    if not looked:
        return None
    ids = sorted(set.intersection(*(set(one["baseline"]) & set(one["best"]) for one in looked)))
    before = {row: sum(one["baseline"][row] for one in looked) / len(looked) for row in ids}
    still = len(listed) - len(looked)
    after = {
        row: (sum(one["best"][row] for one in looked) + still * before[row]) / len(listed) for row in ids
    }
    return paired_of(before, after, seed)


def paired_of(before: Mapping[str, float], after: Mapping[str, float], seed: int) -> Paired:
    """Return both means and the interval of their difference, by what the scores are by."""
    difference = paired_difference(before, after, seed=seed)
    return Paired(
        baseline=sum(before.values()) / max(1, len(before)),
        best=sum(after.values()) / max(1, len(after)),
        gain=difference.mean,
        low=difference.low,
        high=difference.high,
        n=difference.n,
        discordant=difference.discordant,
    )


def _unclaimed(why: str) -> _Verdict:
    return (NOT_SHOWN, f"the result does not claim it: {why}")


def _interval(pair: Paired) -> str:
    return f"{signed(pair.gain)} ({signed(pair.low)} to {signed(pair.high)})"


def _gain_of(run: AuditedRun) -> str:
    gain = signed(run.gate.gain) if run.gate else "nothing better"
    return f"{gain} (its budget ended it)" if run.outcome == "BudgetExhausted" else gain


def _times(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f}x"


def _name(run: AuditedRun) -> str:
    return f"seed {run.seed}" if not run.engine else "the second engine's"
