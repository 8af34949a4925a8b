"""What people see while a run goes on: a live view on a terminal, plain lines elsewhere, or JSON lines.

The screen only watches and prints. The runtime calls `progress` as often as it likes, and about twice a
second from a ticker while nothing happens: the screen has no thread and decides itself how often to draw.
Prompts, rows of data, bullets and secrets never come here. rich and pydantic are imported when a screen needs
them, not before.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO

from combee.cli.errors import write
from combee.errors import CombeeError
from combee.names import LESSONS_FILE
from combee.report.progress import ProgressState, clock, progress, rows, title
from combee.report.text import amount, count, duration, score, visible

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live

    from combee.plan.types import IterationPlan
    from combee.report.result import Result

Mode = Literal["live", "plain", "json"]
DRAW_EVERY = 0.25
"""The least seconds between two drawings of the live view."""
SAY_EVERY = 1.0
"""The least seconds between two lines, unless they say that something is over."""
SAY_AT_LEAST_EVERY = 10.0
"""The seconds after which a line comes even if nothing changed."""
LABEL = 10


def choose_mode(*, json: bool, stream: TextIO) -> Mode:
    """Choose JSON with ``--json``, live on a terminal that can move its cursor, plain lines elsewhere."""
    if json:
        return "json"
    if not stream.isatty():
        return "plain"
    from rich.console import Console

    return "plain" if Console(file=stream).is_dumb_terminal else "live"


class Screen:
    """Shows one run on ``stream``; errors of the plain and live modes go to ``errors``. Use as a context."""

    def __init__(
        self,
        mode: Mode,
        *,
        stream: TextIO | None = None,
        errors: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.mode = mode
        self._stream = stream or sys.stdout
        self._errors = errors or stream or sys.stderr
        self._now = now
        self._began = now()
        self._written_at: float | None = None
        self._last_line: tuple[object, ...] = ()
        self._iteration = 0
        self._batch_size = 0
        self._reason = ""
        self._history: list[float] = []
        self._live: Live | None = None
        self._console: Console | None = None

    def __enter__(self) -> Self:
        if self.mode == "live":
            from rich.console import Console
            from rich.live import Live

            self._console = Console(file=self._stream, highlight=False, markup=False, emoji=False)
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True, redirect_stdout=False
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the live view away and give the cursor back; safe to call twice."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def started(self, run: str, folder: str, *, resumed: bool = False, over: bool = False) -> None:
        """Say that the run begins, goes on, or is over already."""
        if self.mode == "json":
            self._emit("started", run=run, folder=folder, resumed=resumed)
            return
        verb = "is over already, so nothing is asked" if over else "goes on" if resumed else "starts"
        self._say(f"{visible(run)}: {verb}, results in {visible(folder)}")

    def plan(self, plan: IterationPlan) -> None:
        """Say what was decided for the next iteration."""
        self._iteration, self._batch_size = plan.iteration + 1, plan.batch_size
        reason = visible(plan.batch_reason)
        if self.mode == "json":
            self._emit("plan", plan, iteration=self._iteration, batch_reason=reason)
            return
        why = "" if reason in ("", self._reason) else f": {reason}"
        self._reason = reason
        self._say(f"iteration {self._iteration}: {count(plan.batch_size, 'example')}{why}")

    def progress(self, state: ProgressState) -> None:
        """Take the newest state, and draw or say it if it is time to."""
        now = self._now()
        since = now - self._written_at if self._written_at is not None else float("inf")
        if self.mode == "live":
            if since >= DRAW_EVERY and self._live is not None:
                self._written_at = now
                self._live.update(self._view(self._with_history(state)), refresh=True)
            return
        if since < SAY_EVERY:
            return
        line = progress(state)
        if line.key == self._last_line and since < SAY_AT_LEAST_EVERY:
            return
        self._written_at, self._last_line = now, line.key
        if self.mode == "plain":
            self._say(line.text)
            return
        self._emit("progress", state)

    def iteration(self, state: ProgressState) -> None:
        """Say what the iteration that just ended brought."""
        if state.heldout_last is not None:
            self._history.append(state.heldout_last)
        if self.mode == "json":
            self._emit("iteration", state, iteration=self._iteration, batch_size=self._batch_size)
        else:
            self._say(iteration_line(self._iteration, self._batch_size, state))

    def note(self, text: str) -> None:
        """Say something a person should know; the run goes on."""
        if self.mode == "json":
            self._emit("warning", text=visible(text))
        else:
            self._say(f"warning: {visible(text)}")

    def error(self, error: CombeeError) -> None:
        """Say what went wrong and what to do; the live view is taken away first."""
        self.close()
        if self.mode == "json":
            texts = {name: visible(getattr(error, name)) for name in ("what", "where", "fix")}
            self._emit("error", error, **texts)
        else:
            write(self._errors, f"error: {visible(str(error))}\n")

    def finished(self, result: Result, folder: str, *, command: str = "") -> None:
        """Show the last screen. ``command`` is the one that ran, for what to do next."""
        self.close()
        if self.mode == "json":
            self._emit("finished", result, reason=visible(result.reason), folder=folder)
            return
        width = min(self._console.width, 100) if self._console is not None else 100
        text = final_screen(result, folder, command=command, width=width)
        first, _, rest = text.partition("\n")
        self._say("")
        self._say(first, style="bold")
        write(self._stream, rest)

    def _with_history(self, state: ProgressState) -> ProgressState:
        if state.heldout_history:
            return state
        start = () if state.heldout_baseline is None else (state.heldout_baseline,)
        return replace(state, heldout_history=(*start, *self._history))

    def _emit(self, event: str, source: object = None, **values: Any) -> None:
        """Write the line of an event. The fields that are not in ``values`` are attributes of ``source``."""
        from combee.report.events import KINDS

        seconds = round(max(0.0, self._now() - self._began), 3)
        write(self._stream, KINDS[event].of(source, seconds=seconds, **values).model_dump_json() + "\n")

    def _say(self, text: str, *, style: str = "") -> None:
        """Print one line, above the live view where there is one. ``style`` is for terminals."""
        if self._console is not None:
            self._console.print(text, soft_wrap=True, style=style)
        else:
            write(self._stream, text + "\n")

    def _view(self, state: ProgressState) -> Group:
        """Return the live view: a title line and a line for each row, cut at the terminal's width."""
        from rich.console import Group
        from rich.text import Text

        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        left = f" · about {duration(state.eta_seconds)} left" if state.eta_seconds is not None else ""
        head = Text(no_wrap=True, overflow="ellipsis")
        head.append(visible(state.run), style="bold")
        head.append(f" · {visible(title(state))} · {clock(state.elapsed_seconds)}{left}")
        lines = [head]
        for label, value in rows(state, ascii_only=not encoding.lower().startswith("utf")):
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f"  {label:<{LABEL}}", style="dim")
            line.append(value)
            lines.append(line)
        return Group(*lines)


def iteration_line(number: int, batch_size: int, state: ProgressState) -> str:
    """Return ``iteration 3 done: batch 84, examples 144/312, held-out 0.861 (the best so far), ...``."""
    parts = [f"batch {batch_size:,}", f"examples {state.examples_done:,}/{state.examples_total:,}"]
    if state.heldout_last is not None:
        best = state.heldout_best is not None and state.heldout_last >= state.heldout_best
        mark = ", simulated model" if state.simulated else ""
        standing = "the best so far" if best else f"best {score(state.heldout_best)}"
        parts.append(f"held-out {score(state.heldout_last)} ({standing}{mark})")
    parts.append(f"{amount(state.tokens)} tokens in {duration(state.elapsed_seconds)} so far")
    return f"iteration {number} done: {', '.join(parts)}"


def final_screen(result: Result, folder: str, *, command: str = "", width: int = 80) -> str:
    """Return what happened, before and after, cost, what to look at and to do next, as plain text."""
    from combee.report import words

    head = words.headline(result)
    mark = f" ({words.SIMULATED})" if result.simulated else ""
    facts = _facts(result, head.verdict, mark)
    root = folder.rstrip("/") or "."
    look = [(f"{root}/report.html", "the whole story, with figures")]
    if result.playbook is not None:
        look.append((f"{root}/{result.playbook.path}", "what models are shown from now on"))
        look.append((f"{root}/{LESSONS_FILE}", "what was learned, and from what"))
    look.append((f"{root}/result.json", "every number, for programs"))
    lines = [f"{visible(result.run)} {head.title}{mark}", *_wrapped("  ", "", head.reason, width)]
    lines += _column(facts, width)
    lines += ["", "Look at", *_column(look, width)]
    steps = words.next_steps(result, command=command)
    if steps:
        lines += ["", "Next"]
        for step in steps:
            lines += _wrapped("  - ", "    ", step, width)
    return "\n".join(lines) + "\n"


def _facts(result: Result, verdict: str, mark: str) -> list[tuple[str, str]]:
    """Return (label, text) of the last screen; an empty label goes on with the one above."""
    from combee.report import words

    gate = result.gate
    facts = [("held-out", f"{words.gate_line(gate)}{mark}" if gate else "not measured"), ("", verdict)]
    facts.append(("cost", f"{words.cost(result)}{mark}"))
    if result.cost_per_point:
        facts.append(("", words.cost_per_point(result)))
    facts.append(("playbook", f"{words.playbook(result)}{mark if result.playbook else ''}"))
    if result.refusals:
        facts.append(("refused", words.refused(result)))
    if compared := words.evaluator(result):
        facts.append(("evaluator", compared))
    if happened := words.faults(result):
        facts.append(("faults", happened))
    if result.simulated:
        facts += [("" if index else "models", line) for index, line in enumerate(words.served_by(result))]
    return facts + [("warning", warning) for warning in words.warnings(result)]


def _column(pairs: list[tuple[str, str]], width: int) -> list[str]:
    """Return labels and texts in two columns; a label that is too long gets a line of its own."""
    pairs = [(visible(label), visible(text)) for label, text in pairs]
    wide = max((len(label) for label, _ in pairs), default=0) + 2
    if wide > width // 2:
        return [
            line for label, text in pairs for line in (f"  {label}", *_wrapped("    ", "    ", text, width))
        ]
    return [
        line
        for label, text in pairs
        for line in _wrapped(f"  {label:<{wide}}", " " * (wide + 2), text, width)
    ]


def _wrapped(first: str, then: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        visible(text),
        max(width, 40),
        initial_indent=first,
        subsequent_indent=then or first,
        break_long_words=False,
        break_on_hyphens=False,
    )
