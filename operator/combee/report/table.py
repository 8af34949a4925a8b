"""A table of the report, whatever it shows and wherever it is printed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """``columns`` that start with ``#`` hold numbers and are aligned right (the mark is not shown)."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    missing: str = ""
    note: str = ""

    @property
    def heads(self) -> tuple[tuple[str, bool], ...]:
        """(label, is a number) of each column."""
        return tuple((column.removeprefix("#"), column.startswith("#")) for column in self.columns)
