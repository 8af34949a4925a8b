"""What the prefix cache saved: the prompt tokens that a server had cached, and the time to read them.

Prompts put what calls share (instructions, playbook) first, so that a server reads it once. While a server
reads prompts nobody decodes, so a cached token saves its reading whenever it comes; with the playbook last,
hardly any would be cached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from combee.algo.latency import H200
from combee.report import svg
from combee.report.draw import Figure, draw, grid, legend
from combee.report.happened import stage_sums
from combee.report.result import Result
from combee.report.text import Table, duration, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAW = (
    "By the latency law measured with vLLM on one H200 (8B): 31 µs a prompt token that is not cached, on one "
    "server."
)


def saved_seconds(cached_tokens: int) -> float:
    """Return the seconds that reading these tokens would have taken.

    >>> round(saved_seconds(1_000_000), 6)
    31.0
    """
    return H200.prefill_seconds_per_token * cached_tokens


def by_step(result: Result) -> dict[str, tuple[float, int, int]]:
    """Return step -> (seconds on the critical path, prompt tokens, cached ones), in the order of the run."""
    steps: dict[str, tuple[float, int, int]] = {}
    for one in stage_sums(result):
        seconds, prompt, cached = steps.get(one.step, (0.0, 0, 0))
        tokens = prompt + one.prompt_tokens, cached + one.cached_tokens
        steps[one.step] = (seconds + one.scheduled_seconds, *tokens)
    return steps


def prefix_table(result: Result) -> Table:
    """Return the cached prompt tokens by step, then by role, and the seconds that they saved."""
    rows = [_row("step", step, prompt, cached) for step, (_, prompt, cached) in by_step(result).items()]
    rows += [_row("role", role, use.prompt_tokens, use.cached_tokens) for role, use in result.usage.items()]
    columns = ("by", "of", "#prompt tokens", "#of them cached", "#share", "#seconds saved")
    known = tuple(row for row in rows if row is not None)
    note = f"{LAW} Calls answered from memory count as they did when they were made."
    return Table("prefix", "What the prefix cache saved", columns, known, "No prompt was counted.", note)


def _row(by: str, name: str, prompt: int, cached: int) -> tuple[str, ...] | None:
    if not prompt:
        return None
    return by, name, f"{prompt:,}", f"{cached:,}", percent(cached, prompt), duration(saved_seconds(cached))


def prefix_figure(result: Result) -> Figure | None:
    """Draw the time of each step as it was, playbook first, and as it would be with nothing cached."""
    steps = {step: (seconds, saved_seconds(cached)) for step, (seconds, _, cached) in by_step(result).items()}
    if not any(saved for _, saved in steps.values()):
        return None

    def paint(axes: Axes) -> None:
        grid(axes, "x")
        places = [-float(row) for row in range(len(steps))]
        took, saved = zip(*steps.values(), strict=True)
        axes.barh(places, took, height=0.6, color=svg.FIRST, label="as measured, playbook first")
        axes.barh(
            places,
            saved,
            left=took,
            height=0.6,
            color=svg.SECOND,
            alpha=0.45,
            label="more with nothing cached, by the H200's law",
        )
        for place, (seconds, more) in zip(places, steps.values(), strict=True):
            axes.annotate(
                f"+{duration(more)}", (seconds + more, place), (4, 0), textcoords="offset points", va="center"
            )
        axes.set_yticks(places, list(steps))
        axes.set_xlim(0, 1.18 * max(seconds + more for seconds, more in steps.values()))
        axes.set_ylim(-len(steps) + 0.4, 0.6)
        axes.set_xlabel("time on the critical path, all iterations (s)")
        legend(axes, 1)

    parts = "; ".join(
        f"{step} {duration(seconds)}, {duration(more)} more with nothing cached"
        for step, (seconds, more) in steps.items()
    )
    alt = f"What the prefix cache saved: {parts}"
    caption = f"With the playbook last hardly anything would be cached. {LAW}"
    return draw("prefix", "What the prefix cache saved", 1.4 + 0.3 * len(steps), paint, alt, caption)
