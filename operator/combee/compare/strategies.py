"""``Name[:word...][@size]``: one strategy of a comparison.

>>> parse_strategy("ParallelScan:Model:Sqrt@100").label
'ParallelScan:Model:Sqrt@100'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from combee.api.aggregation import STRATEGY_NAMES
from combee.errors import UserError
from combee.strategies import MERGES

WORDS: dict[str, dict[str, Any]] = {
    **{name: {"merge": name} for name in MERGES},
    "Sqrt": {"subgroups": "Sqrt"},
    "Duplicate": {"redundancy": {"mode": "Duplicate"}},
    "Retransmit": {"redundancy": {"mode": "Retransmit"}},
    "Replay": {"verify": "Replay"},
    "Support": {"verify": "Support"},
    "Off": {"verify": "Off"},
}
"""The words that may follow the name, and the field of spec.aggregation that each sets."""
NUMBERED = {"leaf": ("leafSize", 1, 1000), "fan": ("maxFanIn", 2, 1000)}
"""Words that end in a number, such as ``leaf4``: the field that each sets, and its bounds."""
FORM = "Name[:word...][@size], such as ParallelScan:Model:Sqrt@100"
REFERENCE = "Sequential"
PLAIN = (REFERENCE, "Naive")


@dataclass(frozen=True, slots=True)
class Strategy:
    """A strategy; ``size`` None stands for the manifest's own batching."""

    name: str
    words: tuple[str, ...] = ()
    size: int | None = None
    ahead: int = 0
    """``Sequential`` alone: the examples worked on at once; nobody writes it, a comparison adds it."""
    slots: int | None = None
    """The slots that the run has, where it chooses its sizes by them and several numbers are compared; nobody
    writes it."""

    @property
    def label(self) -> str:
        """The strategy as it is written, and what a comparison adds."""
        at = f"@{self.size}" if self.size is not None and self.name != REFERENCE else ""
        ahead = f", {self.ahead} at once" if self.ahead else ""
        slots = f", {self.slots} slots" if self.slots else ""
        return ":".join((self.name, *self.words)) + at + ahead + slots

    @property
    def plain(self) -> bool:
        """Whether it is a loop that anybody would write: one at a time, or one call for a whole batch."""
        return self.name in PLAIN

    @property
    def slug(self) -> str:
        """The part of a folder's or a run's name that stands for the strategy."""
        return self.label.casefold().replace(":", "-").replace("@", "-b").replace(", ", "-").replace(" ", "-")

    def aggregation(self) -> dict[str, Any]:
        """Return the fields of spec.aggregation that it sets."""
        fields: dict[str, Any] = {"strategy": self.name}
        for word in self.words:
            fields |= WORDS.get(word) or _numbered(word)
        return fields


def parse_strategy(text: str) -> Strategy:
    """Parse one strategy. Raises UserError showing the form."""
    head, at, size = text.strip().partition("@")
    name, *words = head.split(":")
    unknown = [word for word in words if word not in WORDS and not _numbered(word)]
    names = STRATEGY_NAMES.words()
    if name not in names or unknown:
        what = f"unknown word {unknown[0]!r}" if name in names else f"unknown strategy {name!r}"
        words_known = ", ".join([*WORDS, *(f"{word}N" for word in NUMBERED)])
        fix = f"Write {FORM}; names: {', '.join(names)}; words: {words_known}"
        raise UserError(what, where="--strategies", fix=fix)
    if at and not (size.isascii() and size.isdigit() and 1 <= int(size) <= 100_000):
        raise UserError(
            "not a batch size from 1 to 100000", where=f"--strategies {text}", fix=f"Write {FORM}"
        )
    if name == REFERENCE and at and int(size) != 1:
        raise UserError(
            "Sequential learns from one example at a time",
            where=f"--strategies {text}",
            fix=f"Write {REFERENCE}, or Naive@{size} for one call a batch of {size}",
        )
    return Strategy(name, tuple(words), int(size) if at else None)


def _numbered(word: str) -> dict[str, int]:
    """Return the field that a word with a number sets; empty for another word."""
    for name, (field, low, high) in NUMBERED.items():
        number = word.removeprefix(name)
        if word.startswith(name) and number.isascii() and number.isdigit() and low <= int(number) <= high:
            return {field: int(number)}
    return {}


def parse_strategies(text: str, sizes: Sequence[int]) -> list[Strategy]:
    """Parse ``--strategies`` at each of ``sizes``, in order, each strategy once. One that names its size
    keeps it; Sequential always learns from one example at a time."""
    strategies: list[Strategy] = []
    for part in text.split(","):
        one = parse_strategy(part)
        if one.name == REFERENCE:
            strategies.append(replace(one, size=1))
        elif one.size is not None or not sizes:
            strategies.append(one)
        else:
            strategies += [replace(one, size=size) for size in sizes]
    return list(dict.fromkeys(strategies))
