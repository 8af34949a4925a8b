"""A run's status as lines for people. Pure: a status in, lines out.

Iterations are counted from 1, as everywhere in what people read.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from combee.api.conditions import Condition, ConditionType, Reason
from combee.api.run import Budget
from combee.api.status import IterationStatus, Phase, RunStatus
from combee.report.progress import bar, sparkline
from combee.report.shape import bounds, sentence
from combee.report.text import amount, columns, count, duration, price, score, signed, visible
from combee.times import seconds_of

LABEL = 11
ITERATIONS = 8
"""the most iterations in the table, which has the last ones."""
_QUIET = {
    Reason.SUSPENDED,
    Reason.SCALED_DOWN,
    Reason.NOT_STARTED,
    Reason.NOT_EVALUATED,
    Reason.WITHIN_CEILING,
    Reason.BUDGET_SPENT,  # BudgetExhausted says which
}
T = ConditionType
_GOOD = {
    T.PLAN_ACCEPTED: "True",
    T.QUOTA_RESERVED: "True",
    T.PODS_PLACED: "True",
    T.ENGINES_READY: "True",
    T.STALLED: "False",
    T.BUDGET_EXHAUSTED: "False",
    T.EVALUATOR_CALIBRATED: "True",
    T.PROXY_CALIBRATED: "True",
}
"""condition -> the status that needs no word. The phase says the others, or they are no trouble."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a view; ``label`` is empty where it goes on with the one above."""

    label: str
    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """The facts that a view is made of."""

    name: str
    namespace: str
    status: RunStatus
    budget: Budget
    now: float
    """seconds since 1970."""
    suspend: bool = False


def view(shown: Shown, *, ascii_only: bool = False) -> list[Line]:
    """Return all that a person wants to know of a run, most important first."""
    status = shown.status
    lines = [Line("", head(shown), "bold"), Line("", visible(status.message))]
    lines += [
        Line("progress", _progress(status, ascii_only)),
        Line("batch", _batch(status)),
        Line("held-out", _held_out(status, ascii_only)),
    ]
    lines += labelled("gate", _gate(status))
    lines += labelled("shape", _shape(status))
    lines += labelled("inputs", _inputs(status))
    lines += labelled("budget", _budget(shown, ascii_only))
    lines += labelled("usage", _usage(status))
    lines += labelled("trouble", map(_condition, not_good(status)), style="yellow")
    lines += labelled("steps", _steps(status))
    lines += labelled("again", _again(status))
    if status.published:
        lines.append(Line("playbook", f"ConfigMap {status.published}"))
    return lines + _table(status.history)


def head(shown: Shown) -> str:
    """Return ``quickstart · team-a · Learned · 6 min 55 s``."""
    status = shown.status
    phase = status.phase.value
    if shown.suspend and status.phase is not Phase.SUSPENDED and not status.phase.over:
        phase += ", to be suspended"
    parts = [shown.name, shown.namespace, phase]
    started, ended = when(status.start_time), when(status.completion_time)
    if started is not None:
        parts.append(duration(max(0.0, (ended or shown.now) - started)))
    if status.eta_seconds is not None and not status.phase.over:
        parts.append(f"about {duration(status.eta_seconds)} left")
    return " · ".join(map(visible, parts))


def not_good(status: RunStatus) -> list[Condition]:
    """Return the conditions that a person has to know of; of a run that is over, only why it failed."""
    over = status.phase.over
    return [
        one
        for one in status.conditions
        if one.status != _GOOD.get(one.type, one.status)
        and one.reason not in _QUIET
        and (not over or one.type in (T.STALLED, T.BUDGET_EXHAUSTED))
    ]


def when(text: str | None) -> float | None:
    """Return an API time in seconds since 1970; None where there is none.

    >>> when("1970-01-01T00:00:01Z"), when("")
    (1.0, None)
    """
    try:
        return seconds_of(text) if text else None
    except ValueError:
        return None


def text(lines: Sequence[Line], width: int) -> str:
    """Return the lines without style, wrapped at ``width``."""
    return "\n".join(row for line in lines for row in wrapped(line, width)) + "\n"


def wrapped(line: Line, width: int) -> list[str]:
    """Return a line as rows of at most ``width`` columns, the label in a column of its own."""
    if not line.label and line.style in ("bold", "table", "dim"):
        return [line.text]
    lead = "  " + f"{line.label:<{LABEL}}"
    return textwrap.wrap(
        line.text,
        max(width, 50),
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
    ) or [lead.rstrip()]


def overview(rows: Sequence[Shown], *, namespaces: bool) -> str:
    """Return the runs, a row each, newest first; ``namespaces`` adds the column of the namespace."""
    heads = ["NAMESPACE"] * namespaces + ["NAME", "STATE", "ITERATION", "HELD-OUT", "GAIN", "LEFT", "WHAT"]
    body = [
        [
            *([one.namespace] if namespaces else []),
            one.name,
            one.status.phase.value,
            one.status.shown.iteration or "-",
            one.status.shown.held_out or "-",
            one.status.shown.gain or "-",
            "-"
            if one.status.eta_seconds is None or one.status.phase.over
            else duration(one.status.eta_seconds),
            visible(one.status.message)[:70],
        ]
        for one in sorted(rows, key=lambda one: one.status.start_time or "9", reverse=True)
    ]
    return "\n".join(columns([heads, *body]))


def next_command(shown: Shown) -> str:
    """Return the words after ``kubectl combee`` that fit where the run stands."""
    phase = shown.status.phase
    if shown.status.published:
        return f"playbook {shown.name}"
    if phase is Phase.SUSPENDED:
        return f"resume {shown.name}"
    if phase is Phase.FAILED or phase is Phase.PENDING or not_good(shown.status):
        return f"why {shown.name}"
    return f"report {shown.name} -o {shown.name}" if phase.over else f"logs {shown.name} --follow"


def labelled(label: str, texts: Iterable[str], style: str = "") -> list[Line]:
    """Return a line for each text, the first of which has the label."""
    return [Line("" if index else label, text, style) for index, text in enumerate(texts)]


def _progress(status: RunStatus, ascii_only: bool) -> str:
    if not status.examples_planned:
        return "the data is not counted yet"
    done = bar(status.examples_done, status.examples_planned, ascii_only=ascii_only)
    about = "" if status.phase.over else "about "
    planned = f" of {about}{status.iterations_planned}" if status.iterations_planned else ""
    number = status.iteration if status.phase.over else status.iteration + 1
    if status.iterations_planned:
        number = min(number, status.iterations_planned)
    return f"{done} examples · iteration {number}{planned}"


def _batch(status: RunStatus) -> str:
    if status.batch_size is None:
        return "not chosen yet"
    reason = f" · {visible(status.batch_reason)}" if status.batch_reason else ""
    return f"{count(status.batch_size, 'example')}{reason}"


def _held_out(status: RunStatus, ascii_only: bool) -> str:
    held = status.held_out
    if held.baseline is None:
        return "there is none: nothing is scored" if status.history else "not scored yet"
    parts = [f"{score(held.baseline)} start"]
    if held.best is not None:
        after = "" if held.best_iteration is None else f" (iteration {held.best_iteration + 1})"
        parts.append(f"{score(held.best)} best{after}")
    if status.history and held.current is not None:
        parts.append(f"{score(held.current)} last")
    if status.gain is not None:
        parts.append(f"gain {signed(status.gain)}")
    scores = [held.baseline, *(one.select for one in status.history if one.select is not None)]
    return f"{' · '.join(parts)}  {sparkline(scores, ascii_only=ascii_only)}".rstrip()


def _gate(status: RunStatus) -> Iterator[str]:
    gate = status.gate
    if gate is not None:
        yield (
            f"{score(gate.baseline)} start · {score(gate.best)} best · gain {signed(gate.gain)} "
            f"(95 % {signed(gate.low)} to {signed(gate.high)}) on {count(gate.rows, 'row')}"
        )
    if status.test_score is not None:
        yield f"test {score(status.test_score)}"


def _shape(status: RunStatus) -> Iterator[str]:
    if status.shape is not None:
        yield visible(sentence(status.shape))
        yield from (visible(f"not {name}: {why}") for name, why in status.shape.rejected.items())
        yield visible(bounds(status.shape))


def _inputs(status: RunStatus) -> Iterator[str]:
    """Yield what the accepted plan says beside that it is good: what is waived, not stated, at stake; and the
    hardware that nodes name."""
    for one in status.conditions:
        if one.type is T.PLAN_ACCEPTED and one.status == "True":
            yield from (visible(part) for part in one.message.split("; ")[1:])
    resolved = sorted(status.resolved.items())
    yield from (visible(f"{name}: {words}") for name, words in resolved if name.endswith(".hardware"))


def _budget(shown: Shown, ascii_only: bool) -> Iterator[str]:
    yield from sorted(_limits(shown, ascii_only), key=lambda line: not line.startswith(shown.budget.first))


def _limits(shown: Shown, ascii_only: bool) -> Iterator[str]:
    spend, budget = shown.status.spend, shown.budget
    for name, spent, limit in (
        ("rollouts", spend.rollouts, budget.rollouts),
        ("tokens", spend.tokens, budget.tokens),
        ("gpuSeconds", int(spend.gpu_seconds), budget.gpu_seconds),
        ("wallClockSeconds", int(spend.wall_clock_seconds), budget.wall_clock_seconds),
    ):
        if limit is not None:
            yield f"{name:<17}{bar(spent, int(limit), ascii_only=ascii_only)}"
        elif name in ("rollouts", "tokens"):
            yield f"{name:<17}{amount(spent)}, no limit"
    if spend.money is not None:
        allowed = "no limit" if budget.money is None else f"of {price(budget.money)}"
        yield f"{'money':<17}{price(spend.money)} {visible(spend.currency)}, {allowed}"


def _usage(status: RunStatus) -> Iterator[str]:
    for role, used in sorted(status.usage.items()):
        hits = f", {count(used.hits, 'more')} from memory".replace("mores", "more") if used.hits else ""
        cached = f" ({100 * used.cached_tokens // used.prompt_tokens} % cached)" if used.prompt_tokens else ""
        tokens = f"{amount(used.prompt_tokens)} tokens in{cached}, {amount(used.completion_tokens)} out"
        yield f"{visible(role):<17}{count(used.calls, 'call')}{hits} · {tokens}"


def _condition(one: Condition) -> str:
    return f"{one.type.value}={one.status} {one.reason.value}: {visible(one.message)}"


def _steps(status: RunStatus) -> Iterator[str]:
    for step in status.steps:
        failed = f", {step.failed} failed and replaced" if step.failed else ""
        yield f"{step.kind:<9} {step.succeeded}/{step.shards} done{failed} · {step.name}"


def _again(status: RunStatus) -> Iterator[str]:
    for step, times in sorted(status.attempts.items()):
        yield f"{step} was started again {count(times, 'time')}"


def _table(history: Sequence[IterationStatus]) -> list[Line]:
    if not history:
        return []
    heads = ("iteration", "batch", "select", "train", "rollouts", "calls", "tokens", "time")
    rows = [
        (
            f"{one.iteration + 1}{' *' if one.best else '  '}",
            str(one.batch_size),
            "-" if one.select is None else score(one.select),
            "-" if one.train_score is None else score(one.train_score),
            f"{one.rollouts:,}",
            f"{one.calls:,}",
            amount(one.tokens),
            duration(one.seconds),
        )
        for one in history[-ITERATIONS:]
    ]
    head, *body = (f"  {line}" for line in columns([heads, *rows], right=True))
    return [Line("", "", "table"), Line("", head, "dim"), *(Line("", line, "table") for line in body)]
