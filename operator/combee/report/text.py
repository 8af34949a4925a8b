"""Text and numbers for people. Whatever a model or a user wrote is hostile until it went through here.

`visible` makes control, bidirectional and zero-width characters visible, so that a text can neither drive a
terminal nor hide what it says; `markdown` escapes what Markdown would act on. Numbers keep three figures.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_SPECIAL = re.compile(r"([\\`*~|<>\[\]]|(?<!\w)_|_(?!\w))")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_LINK = re.compile(r"(?i)\b(https?|ftp|mailto|xmpp)(?=:)|\bwww(?=\.)")
_BLOCK = re.compile(r"^([#+=-](?=[#=-]*(?:\s|$))|\d+(?=[.)](?:\s|$)))")


def visible(text: str) -> str:
    """Return ``text`` on one line, with single spaces, and ``\\u{hex}`` for what hides or acts."""
    flat = " ".join(text.split())
    return flat if flat.isprintable() else "".join(_shown(char) for char in flat)


def visible_lines(text: str) -> list[str]:
    """Return the lines of ``text``, each as ``visible`` shows it, behind its own indentation.

    >>> visible_lines("def f():\\n    return  1")
    ['def f():', '    return 1']
    """
    lines = text.split("\n")
    return [line[: len(line) - len(line.lstrip(" "))] + visible(line) for line in lines]


def _shown(char: str) -> str:
    if unicodedata.category(char) not in _HIDDEN:
        return char
    return f"\\u{{{ord(char):x}}}"


class Markdown(str):
    """A string that is Markdown already."""

    __slots__ = ()


def markdown(text: object) -> str:
    """Return ``text`` as literal Markdown on one line: it starts no markup, HTML, entity, link or block."""
    if isinstance(text, Markdown):
        return text
    escaped = _SPECIAL.sub(r"\\\1", visible(str(text)))
    escaped = _ENTITY.sub("&amp;", escaped)
    escaped = _LINK.sub(lambda match: match.group() + "\\", escaped)
    return _BLOCK.sub(_escape_block, escaped)


def _escape_block(match: re.Match[str]) -> str:
    mark = match.group()
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"


def score(value: float | None) -> str:
    """Return a share in [0, 1] with three decimals: ``0.861``."""
    return "not measured" if value is None else f"{value:.3f}"


def signed(value: float) -> str:
    """Return a difference of shares: ``+0.221``, ``-0.012``, ``0.000``."""
    text = f"{value:+.3f}"
    return "0.000" if text in {"+0.000", "-0.000"} else text.replace("-", "−")


def percent(part: float, whole: float) -> str:
    """Return ``"96 %"``, or ``"none to keep"`` without a whole. Never rounds up to 100 or down to 0."""
    if whole <= 0:
        return "none to keep"
    share = 100 * part / whole
    if 99.5 <= share < 100:
        return ">99 %"
    if 0 < share < 0.5:
        return "<1 %"
    return f"{share:.0f} %"


def amount(value: float) -> str:
    """Return a count in three figures: ``999``, ``1,312``, ``56.1 k``, ``1.24 M``."""
    if not math.isfinite(value):
        return "unknown"
    if abs(value) < 10_000:
        return f"{value:,.0f}"
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if abs(value) < 999.5 * size or unit == "G":
            return f"{_three(value / size)} {unit}"
    return f"{value:,.0f}"


def price(value: float) -> str:
    """Return an amount of money: ``1,312.40``; below 1 with three figures, such as ``0.00412``."""
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:.3g}"


def _three(value: float) -> str:
    magnitude = abs(value)
    return f"{value:.2f}" if magnitude < 9.995 else f"{value:.1f}" if magnitude < 99.95 else f"{value:.0f}"


def duration(seconds: float | None) -> str:
    """Return ``0.42 s``, ``41 s``, ``2 min 14 s``, ``3 h 05 min``; ``unknown`` for None, NaN and infinity."""
    if seconds is None or not math.isfinite(seconds):
        return "unknown"
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return "0 s" if seconds < 0.005 else f"{seconds:.2f} s" if seconds < 0.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def count(number: int, one: str, many: str = "") -> str:
    """Return ``1 entry``, ``2 entries``, ``1,312 rollouts``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def columns(rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """Return rows of cells as lines in columns, each as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align = str.rjust if right else str.ljust
    return [
        "   ".join(align(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class Table:
    """A table. ``columns`` that start with ``#`` (not shown) hold numbers and are aligned right."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    missing: str = ""
    note: str = ""

    @property
    def heads(self) -> tuple[tuple[str, bool], ...]:
        """The (label, whether it holds numbers) of each column."""
        return tuple((column.removeprefix("#"), column.startswith("#")) for column in self.columns)
