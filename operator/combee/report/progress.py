"""What a run looks like while it runs, as pure functions of one frozen state.

The runtime fills a `ProgressState`; the screen shows what `progress` and `rows` make of it.
Nothing here reads a clock, a terminal or the environment, and nothing heavy is imported. A state holds no
prompt and no row of data, and free texts (reasons, notes) go through `visible` before anyone sees them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from combee.report.text import amount, count, duration, score, visible

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = "_.-~=+*#"


@dataclass(frozen=True, slots=True)
class ProgressState:
    """One moment of a run. Counts are of the whole run so far; seconds are wall-clock."""

    run: str
    phase: str
    """the phase, in a word for people: preparing, learning, finishing."""
    iteration: int = 0
    """the number of the iteration, from 1; 0 before the first."""
    iterations_expected: int | None = None
    batch_size: int = 0
    batch_reason: str = ""
    stage: str = ""
    """the stage, such as map, leaf round 2, replay round 1, select."""
    stage_done: int = 0
    stage_total: int = 0
    """units of the stage; 0 when not stated."""
    examples_done: int = 0
    """examples learned from, or under way and already reflected on, over all epochs."""
    examples_total: int = 0
    """examples times epochs; 0 when not known yet."""
    calls_done: int = 0
    """answered calls, memo hits included."""
    calls_hit: int = 0
    """calls that were answered from the memo."""
    calls_in_flight: int = 0
    calls_retrying: int = 0
    """calls in flight that wait for another attempt."""
    tokens: int = 0
    rollouts: int = 0
    heldout_baseline: float | None = None
    heldout_best: float | None = None
    heldout_last: float | None = None
    heldout_history: tuple[float, ...] = ()
    """select scores so far, the start first; a screen fills it in when it is left empty."""
    elapsed_seconds: float = 0.0
    eta_seconds: float | None = None
    budget: str = ""
    """what is used of each limit, such as ``rollouts 312/4,000``, the primary first."""
    notes: tuple[str, ...] = ()
    """the last warnings; screens say each one once, when it comes."""
    simulated: bool = False
    """whether any model says of itself that it is simulated."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line about a state. A changed ``key`` means that there is something worth saying at once."""

    text: str
    key: tuple[object, ...]


def progress(status: ProgressState) -> Line:
    """Return ``status`` as one plain line, such as a log can hold."""
    parts = [
        f"[{clock(status.elapsed_seconds)}]",
        title(status),
        f"batch {status.batch_size:,}" if status.batch_size else "",
        _examples(status),
        _calls(status),
        f"{amount(status.tokens)} tokens" if status.tokens else "",
        _held_out(status),
        f"about {duration(status.eta_seconds)} left" if status.eta_seconds is not None else "",
    ]
    head, *rest = (visible(part) for part in parts if part)
    key = (
        status.phase,
        status.iteration,
        status.stage,
        status.batch_size,
        status.heldout_last,
        status.heldout_best,
        status.calls_retrying > 0,
    )
    return Line(f"{head} {' · '.join(rest)}", key)


def rows(status: ProgressState, *, ascii_only: bool = False) -> tuple[tuple[str, str], ...]:
    """Return (label, value) rows of the live view, with the same labels always, so that nothing jumps."""
    budget = f" · budget {status.budget}" if status.budget else ""
    reason = f" · {status.batch_reason}" if status.batch_reason else ""
    curve = sparkline(status.heldout_history, ascii_only=ascii_only)
    held_out = _held_out(status) or "not evaluated yet"
    batch = f"{count(status.batch_size, 'example')}{reason}" if status.batch_size else "not chosen yet"
    made = (
        ("batch", batch),
        ("examples", bar(status.examples_done, status.examples_total, ascii_only=ascii_only)),
        ("calls", _calls(status) or "none yet"),
        ("tokens", f"{amount(status.tokens)} · {count(status.rollouts, 'rollout')}{budget}"),
        ("held-out", f"{held_out.removeprefix('held-out ')}  {curve}".rstrip()),
    )
    return tuple((label, visible(value)) for label, value in made)


def title(status: ProgressState) -> str:
    """Return ``iteration 3 of about 6 · map 31/84``, or the phase before the first iteration."""
    stage = status.stage or status.phase
    if status.stage_total > 0:
        stage += f" {status.stage_done:,}/{status.stage_total:,}"
    if status.iteration <= 0:
        return f"{status.phase} · {stage}" if status.stage else stage
    about = f" of about {status.iterations_expected}" if status.iterations_expected else ""
    return f"iteration {status.iteration}{about} · {stage}"


def clock(seconds: float) -> str:
    """Return ``0:07``, ``2:14`` or ``1:02:09``; NaN and negative numbers count as zero."""
    whole = int(seconds) if math.isfinite(seconds) and seconds > 0 else 0
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def sparkline(values: Sequence[float], *, width: int = 24, ascii_only: bool = False) -> str:
    """Return the last ``width`` values as a character each, scaled from least to greatest; flat is low."""
    blocks = _ASCII_BLOCKS if ascii_only else _BLOCKS
    shown = [value for value in values if math.isfinite(value)][-width:]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return blocks[0] * len(shown)
    return "".join(blocks[min(7, int(8 * ((value - low) / span)))] for value in shown)


def bar(done: int, total: int, *, width: int = 20, ascii_only: bool = False) -> str:
    """Return ``█████░░░ 212 of 500``; without a total only the count."""
    if total <= 0:
        return f"{max(0, done):,}"
    filled = min(width, max(0, width * done // total))
    full, empty = ("#", ".") if ascii_only else ("█", "░")
    return f"{full * filled}{empty * (width - filled)} {done:,} of {total:,}"


def _examples(status: ProgressState) -> str:
    if status.examples_total <= 0:
        return f"examples {status.examples_done:,}" if status.examples_done else ""
    return f"examples {status.examples_done:,}/{status.examples_total:,}"


def _calls(status: ProgressState) -> str:
    """Return ``calls 412 (40 from memory), 64 in flight, 2 retrying``."""
    if not (status.calls_done or status.calls_in_flight):
        return ""
    text = f"{count(status.calls_done, 'call')}"
    if status.calls_hit:
        text += f" ({status.calls_hit:,} from memory)"
    if status.calls_in_flight:
        text += f", {status.calls_in_flight:,} in flight"
    if status.calls_retrying:
        text += f", {status.calls_retrying:,} retrying"
    return text


def _held_out(status: ProgressState) -> str:
    """Return ``held-out 0.640 start, 0.861 best, 0.855 last (simulated model)``."""
    named = (
        (status.heldout_baseline, "start"),
        (status.heldout_best, "best"),
        (status.heldout_last, "last"),
    )
    scores = ", ".join(f"{score(value)} {name}" for value, name in named if value is not None)
    mark = " (simulated model)" if status.simulated else ""
    return f"held-out {scores}{mark}" if scores else ""
