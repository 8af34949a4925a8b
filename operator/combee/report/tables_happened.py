"""Tables of where the time went and of the faults that were met."""

from __future__ import annotations

from collections.abc import Sequence

from combee.report import happened
from combee.report.parts import LimitChange
from combee.report.result import Result
from combee.report.text import Table, count, duration, percent

CHANGES_TOLD = 4
MEANINGS = {
    "429": "too many requests: waited as long as the server asked for, and a little more",
    "503": "not available: waited, and asked again",
    "timeout": "no answer before the deadline",
    "reset": "the connection was dropped",
    "connect": "no connection could be made",
    "malformed": "a response that is none",
    "aborted": "the server gave up in the middle",
}


def path(result: Result) -> Table:
    """Return the critical path by stage, with the wall time of its step beside it."""
    stages, walls = happened.stage_sums(result), happened.step_walls(result)
    whole = sum(stage.scheduled_seconds for stage in stages)
    rows = []
    for one in stages:
        wall = duration(walls.pop(one.step)) if one.step in walls else ""  # beside the step's first stage
        share = percent(one.scheduled_seconds, whole) if whole else "0 %"
        rows.append((one.step, one.stage, f"{one.calls:,}", duration(one.scheduled_seconds), share, wall))
    columns = ("step", "stage", "#calls", "#critical path", "#share", "#wall time of the step")
    note = (
        "All iterations together. Critical path: the recorded calls list-scheduled on the run's slots, stage "
        "after stage; wall time beyond it is ours, or was spent waiting to ask again."
    )
    return Table("path", "Where the time went", columns, tuple(rows), "No call was recorded.", note)


def latency(result: Result) -> Table:
    """Return the latency quantiles by stage."""
    rows = tuple(
        (one.step, one.stage, f"{one.calls:,}", *map(duration, (one.p50, one.p90, one.p99, one.max)))
        for one in happened.stage_sums(result)
    )
    columns = ("step", "stage", "#calls", "#p50", "#p90", "#p99", "#max")
    note = (
        "Of the attempt that was answered, as the client saw it. Quantiles are those of each iteration, "
        "averaged by calls; the maximum is that of the whole run."
    )
    return Table("latency", "Latency of a call", columns, rows, "No call was recorded.", note)


def replies(result: Result) -> Table:
    """Return what became of the replies, by stage, unless every one was used."""
    stages = happened.stage_sums(result)
    listed = stages if any(one.used < one.calls for one in stages) else ()
    rows = tuple(
        (one.step, one.stage, *(f"{n:,}" for n in (one.calls, one.used, one.cut, one.unparsable)))
        for one in listed
    )
    columns = ("step", "stage", "#replies", "#used", "#cut", "#unreadable")
    note = (
        "A reply that was cut ended at its token limit and was asked for once more, shorter. An unreadable "
        "one was asked for again until it could be read, three times at most."
    )
    return Table("replies", "What became of the replies", columns, rows, "Every reply was used.", note)


def in_flight(result: Result) -> Table:
    """Return the batches that calls joined at their servers, by stage."""
    stages = happened.stage_sums(result)
    powers = sorted({int(power) for one in stages for power in one.in_flight})
    rows = tuple(
        (one.step, one.stage, *(f"{one.in_flight.get(str(power), 0):,}" for power in powers))
        for one in stages
        if one.in_flight
    )
    columns = ("step", "stage", *(f"#{sizes(power)}" for power in powers))
    note = (
        "Calls by how many of their process were in flight at the server when they went, themselves "
        "included: a server that batches continuously decodes these together."
    )
    return Table("in_flight", "Batches of calls", columns, rows, "Memory answered every call.", note)


def joined(result: Result) -> str:
    """Return in words how many calls joined which batches, over the whole run; empty where none is known."""
    batches = happened.batches(happened.stage_sums(result))
    return ", ".join(f"{sizes(int(power))} ({count(number, 'call')})" for power, number in batches.items())


def sizes(power: int) -> str:
    """Return the sizes from a power of two to the next.

    >>> sizes(1), sizes(64)
    ('1', '64 to 127')
    """
    return "1" if power == 1 else f"{power:,} to {2 * power - 1:,}"


def servers(result: Result) -> Table:
    """Return what the servers were seen to do, by stage: their queue, KV cache and prefix cache."""
    rows = tuple(
        (
            one.step,
            one.stage,
            f"{seen.looks:,}",
            f"{seen.waiting:,.1f}",
            f"{seen.waiting_most:,}",
            "" if seen.kv_use_most is None else percent(seen.kv_use_most, 1),
            percent(seen.cached_tokens, seen.prompt_tokens) if seen.prompt_tokens else "",
        )
        for one in happened.stage_sums(result)
        if (seen := one.servers) is not None
    )
    columns = (
        "step",
        "stage",
        "#looks",
        "#waiting, mean",
        "#most",
        "#KV cache, most",
        "#prompt tokens cached",
    )
    note = (
        "By vLLM's own metrics, looked at after an answer at most every five seconds; requests of others are "
        "in them. A queue that is never empty says that more slots would only wait; a KV cache near 100 %, "
        "that calls are put off for want of memory."
    )
    missing = "No server showed vLLM's metrics, or memory answered."
    return Table("servers", "What the servers were seen to do", columns, rows, missing, note)


def faults(result: Result) -> Table:
    """Return what went wrong on the way, and what became of it."""
    met = result.faults
    rows = [(reason, f"{n:,}", _meaning(reason)) for reason, n in met.asked_again.items()]
    rows += [(name, f"{n:,}", _of_a_rollout(name)) for name, n in met.rollouts.items()]
    others = (
        ("broken answers", met.repaired, "could not be used as they were, and were asked for once more"),
        ("stragglers", met.hedges, "raced by a second request, the first answer was kept"),
        ("cut answers", met.cut, "ended at their token limit, twice: raise sampling.maxTokens"),
        ("unreadable answers", met.unparsable, "could not be parsed, four times over: the model is too weak"),
        ("unanswered calls", met.lost - met.cut - met.unparsable, "failed for good: see the endpoint's log"),
        ("lost examples", sum(it.failed for it in result.iterations), "got no answer; they count as wrong"),
    )
    rows += [(name, f"{number:,}", done) for name, number, done in others if number]
    rows += _concurrency(met.limits)
    columns = ("what", "#how often", "what was done")
    missing = "No call had to be asked again, and none was lost."
    return Table("faults", "Faults met", columns, tuple(rows), missing)


def _concurrency(changes: Sequence[LimitChange]) -> list[tuple[str, str, str]]:
    """Return a row for each role whose concurrency changed: first changes, lowest value and last value."""
    rows = []
    for role in dict.fromkeys(change.role for change in changes):
        its = [change for change in changes if change.role == role]
        listed = [
            f"{one.before:,} to {one.after:,} at call {one.call:,}"
            + (f" ({one.reason})" if one.reason else "")
            for one in its[:CHANGES_TOLD]
        ]
        more = f" and {len(its) - len(listed)} more" if len(its) > len(listed) else ""
        ends = f"lowest {min(one.after for one in its):,}, last {its[-1].after:,}"
        rows.append((f"concurrency, {role}", f"{len(its):,}", f"{', '.join(listed)}{more}; {ends}"))
    return rows


def _of_a_rollout(fault: str) -> str:
    again = fault in ("TaskCrashed", "TaskKilled", "TaskDied")
    return "a rollout: tried again" if again else "a rollout: the example counts as wrong"


def _meaning(reason: str) -> str:
    if reason in MEANINGS:
        return MEANINGS[reason]
    return "an error of the server: waited, and asked again" if reason.isdigit() else "asked again"
