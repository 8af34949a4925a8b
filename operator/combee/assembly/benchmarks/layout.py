"""What the loaders of all benchmarks need: files of a layout, read with errors that say what is expected, and
rows by split, written as JSON lines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from combee import jsonread
from combee.errors import DataError, UserError
from combee.tasks.dataset import MAX_ID_CHARACTERS, MAX_ROW_BYTES

Row = Mapping[str, Any]
Splits = dict[str, list[Row]]
"""split -> rows; ``train`` always."""
FILES: Mapping[str, str] = {"train": "train.jsonl", "heldOut": "heldout.jsonl", "test": "test.jsonl"}
"""split -> the file that it is written to."""
_DIGITS = 16


def wrong(what: str, where: Path, fix: str) -> NoReturn:
    """Raise DataError: the layout is another."""
    raise DataError(what, where=str(where), fix=fix)


def read_text(path: Path, fix: str) -> str:
    """Return a file's text. Raises DataError with ``fix`` where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        wrong(f"the file cannot be read ({why})", path, fix)


def read_json(path: Path, fix: str) -> Any:
    """Return a file's JSON. Raises DataError with ``fix`` where there is none."""
    text = read_text(path, fix)
    try:
        return jsonread.read_json(text)
    except ValueError:
        wrong("it is not valid JSON", path, fix)


def row_id(name: str) -> str:
    """Return a task's name as a row's id: itself, or a digest of it where it is no word or too long."""
    plain = name.isprintable() and not any(map(str.isspace, name)) and 0 < len(name) <= MAX_ID_CHARACTERS
    return name if plain else hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]


def with_held_out(splits: Splits, count: int | None) -> Splits:
    """Return the splits with ``count`` rows of train as heldOut, half of them where it is None: those whose
    ids have the smallest digests, so that the same rows are taken each time. Splits that have a heldOut stay
    as they are."""
    if "heldOut" in splits:
        return splits
    rows = splits["train"]
    wanted = len(rows) // 2 if count is None else count
    if not 0 < wanted < len(rows):
        raise UserError(
            f"{wanted} of {len(rows)} rows of train cannot be held out",
            where="--held-out",
            fix=f"Give a number from 1 to {len(rows) - 1}",
        )
    by_digest = sorted(rows, key=lambda row: hashlib.sha256(row["id"].encode()).digest())
    taken = {row["id"] for row in by_digest[:wanted]}
    kept, held_out = ([row for row in rows if (row["id"] in taken) is side] for side in (False, True))
    return {**splits, "train": kept, "heldOut": held_out}


def write_rows(splits: Splits, folder: Path) -> dict[str, int]:
    """Write a file of JSON lines for each split, and return how many rows it has. Raises UserError for a
    folder that cannot be written, DataError for a row that no run takes."""
    lines = {split: [_line(row) for row in rows] for split, rows in splits.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for split, texts in lines.items():
            (folder / FILES[split]).write_text("".join(texts), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"it cannot be written ({error.strerror})", where=str(folder), fix="Give another -o DIR"
        ) from None
    return {split: len(rows) for split, rows in splits.items()}


def _line(row: Row) -> str:
    text = json.dumps(row, ensure_ascii=False) + "\n"
    if len(text.encode()) > MAX_ROW_BYTES:
        raise DataError(
            f"the row is longer than {MAX_ROW_BYTES:,} bytes", where=str(row["id"]), fix="Leave this task out"
        )
    return text
