"""The planted task: every procedure is a rule that no model can know, and answers follow from the text.

"Procedure P-0123 is applied to the input 58." The right answer is 58 * a + b, where a and b belong to the
procedure; one typical mistake has other ones. They depend on the procedure's name alone, so that no key file
is needed and data made anywhere agrees.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from combee.sim import draws

MAX_RULES = 10_000
QUESTION = re.compile(r"Procedure (P-\d{4}) is applied to the input (\d{1,6})\.")
_FORM = (
    "Procedure {topic} is applied to the input {value}. State the resulting whole number with no "
    "explanations "
    "or other text. Answer:"
)


@dataclass(frozen=True, slots=True)
class Line:
    """The function input * slope + offset."""

    slope: int
    offset: int

    def __call__(self, value: int) -> int:
        return value * self.slope + self.offset

    @property
    def phrase(self) -> str:
        """The words with which a lesson states the line."""
        return f"multiply the input by {self.slope} and add {self.offset}"


def topic(index: int) -> str:
    """Return the name of a procedure: ``17`` -> ``"P-0017"``."""
    return f"P-{index:04d}"


def line(name: str, side: str) -> Line:
    """Return the right or the typically wrong line of a procedure; they differ for every input."""
    slope = 2 + draws.number("planted", name, "slope") % 90
    offset = 100 + draws.number("planted", name, "offset") % 880
    if side == "wrong":
        slope += 3 + draws.number("planted", name, "slip") % 5
        offset += 7
    return Line(slope, offset)


def rows(count: int, names: Sequence[str], seed: int, split: str) -> list[dict[str, str]]:
    """Return ``count`` rows over the named procedures in turn, in a seeded order, no two rows alike.

    Train rows have even inputs, others odd ones, so that splits never share a row.
    """
    order = sorted(names, key=lambda name: draws.number(seed, "planted-order", split, name))
    data_rows = []
    for position in range(count):
        name, cycle = order[position % len(order)], position // len(order)
        base = 10 + draws.number(seed, "planted-input", name) % 400
        value = 2 * (base + cycle) + (split != "train")
        target = str(line(name, "right")(value))
        data_rows.append({"context": _FORM.format(topic=name, value=value), "target": target})
    return data_rows


def write(folder: Path, *, train: int, held_out: int, rules: int, seed: int) -> tuple[Path, Path]:
    """Write ``train.jsonl`` and ``heldOut.jsonl``; held-out procedures are among those trained on.

    Returns both paths. Raises ValueError for counts that give no data.
    """
    if not 1 <= rules <= MAX_RULES or train < 1 or held_out < 0:
        raise ValueError(f"rows and rules must be positive, rules at most {MAX_RULES}")
    folder.mkdir(parents=True, exist_ok=True)
    train_rows = rows(train, [topic(index) for index in range(rules)], seed, "train")
    names = sorted({topic_of(row["context"]) for row in train_rows})
    paths = (folder / "train.jsonl", folder / "heldOut.jsonl")
    for path, data in zip(paths, (train_rows, rows(held_out, names, seed, "heldOut")), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in data), encoding="utf-8")
    return paths


def topic_of(context: str) -> str:
    """Return the procedure a row asks about. Raises ValueError when it is not a planted question."""
    if not (match := QUESTION.search(context)):
        raise ValueError("not a planted question")
    return match.group(1)
