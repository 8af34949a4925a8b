"""Paired differences of every (cell, contrast), as JSON, for the terminal and for docs/sensitivity.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.sensitivity_cells import AXES, BATCH, CONTRASTS, MODEL, SEQUENTIAL, Cell, Contrast, needs
from combee.algo.stats import MeanInterval, Paired, mean_interval, paired_difference

Row = Mapping[str, Any]
LOSES, BEHIND, LEVEL, WINS = "LOSES", "behind", "level", "wins"
LEVEL_BELOW = 0.0005
"""a mean difference below a twentieth of a point is none."""
BEGIN, END = "<!-- made by make sensitivity: begin -->", "<!-- made by make sensitivity: end -->"


@dataclass(frozen=True)
class Difference:
    """``contrast.ours`` minus ``contrast.other`` in a cell, in units of accuracy. ``over_seeds``: each seed's
    mean difference is one value (Student's t); ``by_example``: every heldOut row of every seed is a pair."""

    cell: Cell
    contrast: Contrast
    over_seeds: MeanInterval
    by_example: Paired

    @property
    def verdict(self) -> str:
        """On the interval over seeds; ``behind``: the mean is below 0 and the interval is not."""
        found = self.over_seeds
        if found.n > 1 and found.high < 0:
            return LOSES
        if found.n > 1 and found.low > 0:
            return WINS
        return BEHIND if found.mean <= -LEVEL_BELOW else LEVEL


def means(rows: Sequence[Row], cell: Cell, arm: str, key: str = "accuracy") -> float | None:
    """The mean over seeds of one figure of an arm; None where it was not run."""
    found = [_value(row, key) for row in rows if row["cell"] == _home(cell, arm) and row["arm"] == arm]
    return sum(found) / len(found) if found else None


def _value(row: Row, key: str) -> float:
    return _accuracy(row) if key == "accuracy" else float(row[key])


def _accuracy(row: Row) -> float:
    return float(row["scores"].count("1") / len(row["scores"]))


def _home(cell: Cell, arm: str) -> str:
    """The cell whose runs stand for this arm here."""
    return cell.name if needs(cell, arm) else "default"


def differences(rows: Sequence[Row], cells: Sequence[Cell]) -> list[Difference]:
    """Every contrast of every cell in which one side has runs of its own."""
    by = {(row["cell"], row["arm"], row["seed"]): row for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    found = []
    for cell in cells:
        for contrast in CONTRASTS:
            if not (needs(cell, contrast.ours) or needs(cell, contrast.other)):
                continue
            ours, other = _home(cell, contrast.ours), _home(cell, contrast.other)
            pairs = [
                (by[ours, contrast.ours, seed], by[other, contrast.other, seed])
                for seed in seeds
                if (ours, contrast.ours, seed) in by and (other, contrast.other, seed) in by
            ]
            if pairs:
                found.append(_difference(cell, contrast, pairs))
    return found


def _difference(cell: Cell, contrast: Contrast, pairs: Sequence[tuple[Row, Row]]) -> Difference:
    over_seeds = mean_interval([_accuracy(a) - _accuracy(b) for a, b in pairs])
    ours, other = (
        {f"{row['seed']}/{at}": float(bit) for row in side for at, bit in enumerate(row["scores"])}
        for side in zip(*pairs, strict=True)
    )
    return Difference(cell, contrast, over_seeds, paired_difference(other, ours, seed=7))


def to_json(rows: Sequence[Row], cells: Sequence[Cell], found: Sequence[Difference]) -> dict[str, Any]:
    """What ``--json`` writes."""
    return {
        "version": 1,
        "simulated": True,
        "cells": {cell.name: {axis.field: _number(cell.at(axis)) for axis in AXES} for cell in cells},
        "arms": [
            {key: value for key, value in row.items() if key != "scores"} | {"heldOut": _accuracy(row)}
            for row in rows
        ],
        "differences": [
            {
                "cell": one.cell.name,
                "ours": one.contrast.ours,
                "other": one.contrast.other,
                "verdict": one.verdict,
                "overSeeds": _interval(one.over_seeds),
                "byExample": {
                    "mean": one.by_example.mean,
                    "low": one.by_example.low,
                    "high": one.by_example.high,
                    "n": one.by_example.n,
                    "discordant": one.by_example.discordant,
                    "pValue": one.by_example.p_value,
                },
            }
            for one in found
        ],
    }


def _interval(found: MeanInterval) -> dict[str, Any]:
    known = found.n > 1
    return {
        "mean": found.mean,
        "low": found.low if known else None,
        "high": found.high if known else None,
        "n": found.n,
    }


def _number(value: float) -> float | str:
    return value if value < float("inf") else "infinite"


def points(value: float) -> str:
    """Accuracy in points with its sign."""
    return f"{100 * value:+.1f}"


def interval(low: float, high: float) -> str:
    """``[-0.3, +1.2]`` in points; nothing where there is none."""
    return f"[{points(low)}, {points(high)}]" if low > float("-inf") else ""


def losing(found: Sequence[Difference]) -> list[Difference]:
    """What loses for sure, then what is behind, the worst first."""
    order = (LOSES, BEHIND)
    lost = [one for one in found if one.verdict in order]
    return sorted(lost, key=lambda one: (order.index(one.verdict), one.over_seeds.mean))


def tables(rows: Sequence[Row], cells: Sequence[Cell], found: Sequence[Difference]) -> str:
    """The made part of docs/sensitivity.md."""
    parts = [
        "### Where it loses (simulated model)",
        (
            "In points of held-out accuracy. **LOSES**: the 95 % interval over seeds lies below 0; "
            "behind: the mean does."
        ),
        _losing_table(found),
        "### Every cell: paired differences (simulated model)",
        "Mean over seeds and its 95 % interval, in points; `default` is the law as `combee sim` has it.",
        _difference_table(cells, found),
        "### Every cell: held-out accuracy, mean over seeds (simulated model)",
        _accuracy_table(rows, cells),
        "### What verification costs (simulated model, default cell, mean over seeds)",
        _cost_table(rows, cells[0]),
    ]
    return "\n\n".join(parts)


def _losing_table(found: Sequence[Difference]) -> str:
    lines = [
        "| cell | comparison | over seeds | interval | by example | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for one in losing(found):
        pairs, seeds = one.by_example, one.over_seeds
        verdict = f"**{one.verdict}**" if one.verdict == LOSES else one.verdict
        lines.append(
            f"| `{one.cell.name}` | {one.contrast.title} | {points(seeds.mean)} | "
            f"{interval(seeds.low, seeds.high)} "
            f"| {points(pairs.mean)} {interval(pairs.low, pairs.high)} | {verdict} |"
        )
    return "\n".join(lines) if len(lines) > 2 else "None."


def _difference_table(cells: Sequence[Cell], found: Sequence[Difference]) -> str:
    by = {(one.cell.name, one.contrast): one for one in found}
    seeds = {c: next((one.over_seeds.n for one in found if one.contrast == c), 0) for c in CONTRASTS}
    lines = [
        "| cell | " + " | ".join(f"{c.title} ({seeds[c]} seeds)" for c in CONTRASTS) + " |",
        "|---|" + "---|" * len(CONTRASTS),
    ]
    for cell in cells:
        parts = []
        for contrast in CONTRASTS:
            one = by.get((cell.name, contrast))
            if one is None:
                parts.append("")
                continue
            text = f"{points(one.over_seeds.mean)} {interval(one.over_seeds.low, one.over_seeds.high)}"
            mark = {LOSES: f"**{text} {LOSES}**", BEHIND: f"{text} {BEHIND}"}
            parts.append(mark.get(one.verdict, text))
        lines.append(f"| `{cell.name}` | " + " | ".join(parts) + " |")
    return "\n".join(lines)


_HEADS = {
    "Replay": "ParallelScan, Replay",
    "Support": "Support",
    "Off": "Off",
    MODEL: "merge: Model, Sqrt",
    "Naive@10": "Naive@10",
    "Naive@25": "Naive@25",
    "Naive": f"Naive@{BATCH}",
    SEQUENTIAL: SEQUENTIAL,
}


def _accuracy_table(rows: Sequence[Row], cells: Sequence[Cell]) -> str:
    lines = ["| cell | " + " | ".join(_HEADS.values()) + " |", "|---|" + "---|" * len(_HEADS)]
    for cell in cells:
        found = [means(rows, cell, arm) for arm in _HEADS]
        lines.append(
            f"| `{cell.name}` | " + " | ".join("" if v is None else f"{v:.3f}" for v in found) + " |"
        )
    return "\n".join(lines)


def _cost_table(rows: Sequence[Row], cell: Cell) -> str:
    keys = {
        "rollouts": "rollouts of learning",
        "aggregator_calls": "aggregator calls",
        "entries": "entries",
        "rendered": "rendered",
        "playbook_tokens": "playbook tokens",
    }
    lines = ["| | " + " | ".join(_HEADS.values()) + " |", "|---|" + "---|" * len(_HEADS)]
    for key, words in keys.items():
        found = [means(rows, cell, arm, key) for arm in _HEADS]
        lines.append(f"| {words} | " + " | ".join("" if v is None else f"{v:,.0f}" for v in found) + " |")
    return "\n".join(lines)


def with_tables(page: str, made: str) -> str:
    """``page`` with its made part replaced; ValueError when its marks are missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the marks of the made part are missing")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"
