"""compare.md and the self-contained compare.html: the tables, critical paths, plots and terms."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from combee.algo.grouping import grouped
from combee.algo.latency import H200, LatencyLaw
from combee.compare import overview, slots
from combee.compare.paper import paper_text
from combee.compare.strategies import REFERENCE
from combee.compare.table import FEWEST_SEEDS, MARGIN, Row, no_worse, verdict
from combee.report.build import style_sheet
from combee.report.text import amount, duration, markdown, score, visible
from combee.report.words import SIMULATED, SIMULATED_BANNER

HEADS = (
    "strategy",
    "held-out",
    "difference over seeds",
    "difference by example",
    "verdict",
    "lessons carried",
    "entries rendered",
    "playbook tokens",
    "calls",
    "tokens",
    "modelled time",
    "speed-up",
    "over the best plain loop",
    "tokens per point",
)
ALL = ""
"""The key of the plot of all tasks, among the plots by task name."""
MOST_PARTS = 7


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of the comparison, for the pages."""

    types: Mapping[str, str]
    """The task's name -> its task type."""
    slots: Mapping[str, Sequence[int]]
    """The task's name -> the numbers of slots that its runs are timed on; the main table has the last."""
    evaluate_every: int
    law: LatencyLaw = H200
    note: str = ""

    @property
    def last(self) -> dict[str, int]:
        """The task's name -> the slots of its main table and its plot."""
        return {task: numbers[-1] for task, numbers in self.slots.items()}

    def main(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows of the main tables: those timed on the last number, and those of runs that chose
        their sizes for the slots that they are timed on."""
        last = self.last
        return [
            row
            for row in rows
            if row.cells[0].cell.strategy.slots or row.slots == last.get(row.task, row.slots)
        ]


def cells_of(row: Row) -> tuple[str, ...]:
    """Return a row's cells in the order of ``HEADS``."""
    start = f"{score(row.score.mean)} (start {score(row.start)})"
    return (
        row.strategy,
        start,
        overview.span(row.difference.over_seeds if row.difference else None),
        overview.span(row.difference.by_example if row.difference else None),
        verdict(row),
        f"{row.carried:.0f} of {row.distinct:.0f}",
        f"{row.rendered:.0f} of {row.entries:.0f}",
        f"{row.playbook_tokens:,.0f}",
        f"{row.calls:,.0f}",
        amount(row.tokens),
        *slots.cells(row),
        amount(row.tokens_per_point) if row.tokens_per_point is not None else "no gain",
    )


def remarks(rows: Sequence[Row]) -> list[str]:
    """Return sentences on the speed of a task's rows, method by method: the fastest one, and its longest
    part."""
    by_method = grouped(rows, lambda row: row.method)
    return [
        f"{method}. {sentence}" if len(by_method) > 1 else sentence
        for method, method_rows in by_method.items()
        for sentence in _remarks(method_rows)
    ]


def _remarks(rows: Sequence[Row]) -> list[str]:
    reference = next((row for row in rows if row.reference), None)
    timed = [row for row in rows if row.speed_up is not None]
    if reference is None or not timed:
        return []
    good_enough = [row for row in timed if row.difference and no_worse(row)]
    sentences = []
    if not good_enough:
        sentences.append(f"No strategy is shown to be at most {100 * MARGIN:.0f} points below {REFERENCE}.")
    else:
        best = max(good_enough, key=lambda row: row.speed_up.mean if row.speed_up else 0.0)
        speed = best.speed_up.mean if best.speed_up else 0.0
        sentences.append(
            f"Fastest of those shown to be at most {100 * MARGIN:.0f} points worse: "
            f"{best.strategy}, {speed:.1f} times {REFERENCE} ({verdict(best)}){_beside_plain(best)}."
        )
        longest = best.parts[0]
        sentences.append(
            f"What holds it back: {longest.name}, {duration(longest.seconds)} in {longest.stages:.1f} stages "
            f"({100 * longest.seconds / best.seconds:.0f} % of the time)."
        )
    return sentences


def _beside_plain(row: Row) -> str:
    """Return a row's speed against the best plain loop, as the rest of a sentence."""
    if row.plain or row.over_plain is None:
        return ""
    return f", and {slots.times(row.over_plain.ratio)} the speed of {row.over_plain.strategy}"


def path_of(row: Row) -> str:
    """Return the critical path of a row in words, longest part first."""
    named_parts = [
        f"{part.name} {duration(part.seconds)} in {part.stages:.0f}" for part in row.parts[:MOST_PARTS]
    ]
    remaining = sum(part.seconds for part in row.parts[MOST_PARTS:])
    return ", ".join([*named_parts, *([f"the rest {duration(remaining)}"] if remaining > 0 else [])])


def terms_text(terms: Terms, seeds: Sequence[int]) -> list[str]:
    """Return sentences on how the numbers were made."""
    numbers = ", ".join(
        f"{name} on {' or '.join(map(str, each))} slots" for name, each in terms.slots.items()
    )
    sentences = [
        (
            f"Equal for all: prompts, models, render budget, verification, slots ({numbers}), "
            "and heldOut's select half scored at the first iteration that ends at or after each "
            f"{terms.evaluate_every} examples. {len(seeds)} seeds. Every cell has a memo of its own."
        ),
        (
            f"Modelled time is the recorded call graph replayed through {_law_text(terms.law)}: tokens "
            "decoded and uncached prompt tokens as the server counted them, stages as barriers, but for "
            "leaves of one, each of which follows its reflection; profiling, verification and select are "
            "charged, the closing look at gate is not: it is the comparison's own. No clock enters it."
        ),
        (
            f"Differences are against {REFERENCE} of the same method on gate, with 95 % intervals: "
            "over seeds (Student's t; verdicts rest on it) and by example "
            "(bootstrap over all pairs of all seeds; examples of a seed share a playbook, "
            "so it is the narrower one)."
        ),
    ]
    if any(len(each) > 1 for each in terms.slots.values()):
        sentences.append(
            "Runs are made once and timed on each number of slots; the tables without a number are of the "
            "last. A run that chooses its batch sizes by its slots, and by how long its calls take, is made "
            "for each and named by its own."
        )
    return [*sentences, *([terms.note] if terms.note else [])]


def _law_text(law: LatencyLaw) -> str:
    if law == H200:
        return "the latency law of one H200 with vLLM, without CUDA graphs"
    decode, beside = law.decode_seconds * 1e3, law.decode_per_concurrent * 1e6
    reading = law.prefill_seconds_per_token * 1e6
    return (
        f"a latency law of {decode:.4g} ms a token, {beside:.4g} µs more for each call beside, "
        f"and {reading:.4g} µs to read a token"
    )


def markdown_page(rows: Sequence[Row], terms: Terms) -> str:
    """Return compare.md."""
    lines = ["# Comparison", ""]
    if _simulated(rows):
        lines += [f"**{SIMULATED_BANNER}.**", ""]
    shown = terms.main(rows)
    if len(terms.types) > 1:
        body = overview.table(shown, terms.types)
        lines += ["## Every task", "", *_table(overview.heads(list(terms.types)), body), ""]
        lines += ["![accuracy against time](plot.png)", ""]
    for task, task_rows in grouped(shown, lambda row: row.task).items():
        title = f"{task} ({terms.types[task]})" + (f", {SIMULATED}" if _simulated(task_rows) else "")
        lines += [f"## {markdown(title)}", "", *_table(HEADS, [cells_of(row) for row in task_rows])]
        lines += ["", *(f"{markdown(sentence)}\n" for sentence in _sentences(task_rows, terms.types[task]))]
        if times := slots.table(rows, task):
            lines += ["By slots: modelled time, speed-up, and speed against the best plain loop:"]
            lines += ["", *_table(*times), ""]
        lines += ["Critical path, modelled seconds by stage (and how many stages), mean of seeds:", ""]
        lines += [f"- {markdown(row.strategy)}: {markdown(path_of(row))}" for row in task_rows]
        lines += ["", f"![accuracy against time](plot-{task}.png)", ""]
    lines += ["## Terms", "", *(f"- {markdown(sentence)}" for sentence in terms_text(terms, _seeds(rows)))]
    return "\n".join(lines) + "\n"


def _sentences(rows: Sequence[Row], task_type: str) -> list[str]:
    return [*remarks(rows), *_partials(rows), *overview.orders(rows, task_type), *paper_text(task_type)]


def _partials(rows: Sequence[Row]) -> list[str]:
    partials = [f"{row.strategy} {score(row.partial)}" for row in rows if row.partial is not None]
    return [f"Partial credit on gate, which decides nothing: {', '.join(partials)}."] if partials else []


def _table(heads: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    head = [f"| {' | '.join(markdown(cell) for cell in heads)} |", f"|{' --- |' * len(heads)}"]
    return [*head, *(f"| {' | '.join(markdown(cell) for cell in line)} |" for line in body)]


def html_page(rows: Sequence[Row], terms: Terms, plots: Mapping[str, str]) -> str:
    """Return compare.html, without scripts or external resources. ``plots``: task name -> SVG, and ``ALL``
    where there are several tasks."""
    style, digest = style_sheet()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Comparison</title><style>{style}</style></head><body><h1>Comparison</h1>",
    ]
    if _simulated(rows):
        parts.append(f'<div class="banner"><p>{SIMULATED_BANNER}.</p></div>')
    shown = terms.main(rows)
    if len(terms.types) > 1:
        parts += [
            "<h2>Every task</h2>",
            *_scroll("Every task", overview.heads(list(terms.types)), overview.table(shown, terms.types)),
        ]
        parts.append(_figure(_drawn(shown, terms), plots[ALL]))
    for task, task_rows in grouped(shown, lambda row: row.task).items():
        parts += _section(task, task_rows, terms, plots[task], slots.table(rows, task))
    parts.append("<h2>Terms</h2>" + _list(terms_text(terms, _seeds(rows))))
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _drawn(rows: Sequence[Row], terms: Terms) -> list[Row]:
    return [row for row in rows if row.slots == terms.last.get(row.task, row.slots)]


def _section(task: str, rows: Sequence[Row], terms: Terms, svg: str, times: slots.Table | None) -> list[str]:
    mark = f' <span class="mark">{SIMULATED}</span>' if _simulated(rows) else ""
    return [
        f"<h2>{_safe(task)} ({_safe(terms.types[task])}){mark}</h2>",
        *_scroll(task, HEADS, [cells_of(row) for row in rows]),
        *(f"<p>{_safe(sentence)}</p>" for sentence in _sentences(rows, terms.types[task])),
        _figure(_drawn(rows, terms), svg),
        *(["<h3>By slots</h3>", *_scroll(f"{task} by slots", *times)] if times else []),
        "<h3>Critical path, modelled seconds by stage</h3>",
        _list([f"{row.strategy}: {path_of(row)}" for row in rows]),
    ]


def _scroll(name: str, heads: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    head = "".join(f'<th scope="col">{_safe(cell)}</th>' for cell in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in line)}</tr>" for line in body)
    return [
        f'<div class="scroll" role="region" tabindex="0" aria-label="{_safe(name)}"><table>',
        f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>",
    ]


def _figure(rows: Sequence[Row], svg: str) -> str:
    mark = f' <span class="mark">{SIMULATED}</span>' if _simulated(rows) else ""
    several = len({row.task for row in rows}) > 1
    points = "; ".join(
        f"{f'{row.task} ' if several else ''}{row.strategy} {score(row.score.mean)} "
        f"in {duration(row.seconds)}"
        for row in rows
    )
    picture = base64.b64encode(svg.encode()).decode()
    return (
        f'<figure><img alt="Held-out accuracy against time: {_safe(points)}" '
        f'src="data:image/svg+xml;base64,{picture}">'
        f"<figcaption>Filled points are ours{mark}, with their intervals from {FEWEST_SEEDS} seeds on; "
        "hollow ones are the paper's, on its own machines.</figcaption></figure>"
    )


def _list(items: Sequence[str]) -> str:
    return f'<ul class="plain">{"".join(f"<li>{_safe(item)}</li>" for item in items)}</ul>'


def _safe(text: str) -> str:
    return escape(visible(text))


def _simulated(rows: Sequence[Row]) -> bool:
    return any(facts.result.simulated for row in rows for facts in row.cells)


def _seeds(rows: Sequence[Row]) -> list[int]:
    return sorted({facts.cell.seed for row in rows for facts in row.cells})
