"""Reads rows of JSON lines as examples, one at a time, and reports each fault with file and line.

No message quotes a row: errors end up in logs and conditions, rows must not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NoReturn

from combee.errors import DataError
from combee.records import Example, Labelled

MAX_ROW_BYTES = 1024 * 1024
"""longest row, in bytes."""
MAX_ID_CHARACTERS = 128
_SHOWN_LINES = 5
_SHOWN_FAULTS = 10
BOM = b"\xef\xbb\xbf"
Load = Callable[[], bytes]
"""loads what is stored outside of memory."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Names of a row's fields: the model's input, the right answer, and the optional id."""

    input: str = "context"
    target: str = "target"
    id: str = "id"


@dataclass(frozen=True, slots=True)
class Dataset:
    """Examples in the file's order, with unique ids and unique contents.

    ``digest`` (sha256 hex) covers ids, contents and order, and clusters where rows have them; ``warnings``
    are sentences for people; ``recordings`` load, by example id, the recordings of examples that need no
    rollout; ``labelled`` are answers of other times that people scored; ``merged`` has, by its id, the
    content's digest at least of each row that is one with an earlier one; ``forgotten`` are ids of rows that
    keep their places in the order and are never worked.
    """

    examples: tuple[Example, ...]
    digest: str
    warnings: tuple[str, ...] = ()
    recordings: Mapping[str, Load] = field(default_factory=dict, hash=False, compare=False, repr=False)
    labelled: tuple[Labelled, ...] = field(default=(), repr=False)
    merged: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False, repr=False)
    forgotten: tuple[str, ...] = ()

    @property
    def places(self) -> int:
        """The examples of an epoch, with the places of those that are forgotten."""
        return len(self.examples) + len(self.forgotten)


def content_digest(model_input: str, target: str) -> str:
    """Return the sha256 hex of a row's content, independent of its id and its other fields."""
    return hashlib.sha256(
        json.dumps([model_input, target], separators=(",", ":")).encode("ascii")
    ).hexdigest()


def dataset_digest(examples: Iterable[Example], labelled: Iterable[Labelled] = ()) -> str:
    """Return the sha256 hex of the examples' ids, contents and order, and of the labels where there are
    any."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(json.dumps([example.id, example.digest]).encode("ascii"))
    for one in labelled:
        digest.update(json.dumps([one.example.digest, one.answer, one.label]).encode("ascii"))
    return digest.hexdigest()


def without(rows: Dataset, forgotten: Iterable[str], where: str) -> Dataset:
    """Return rows, which have no clusters yet, as if those of these ids had never been there, and with the
    places of these ids. Whether the rows still are in the data makes no difference. Raises DataError where
    none is left."""
    ids = frozenset(forgotten)
    if not ids:
        return rows
    gone = {example.digest for example in rows.examples if example.id in ids}
    gone |= {digest for id_, digest in rows.merged.items() if id_ in ids}
    examples = tuple(example for example in rows.examples if example.digest not in gone)
    labelled = tuple(
        one for one in rows.labelled if one.example.id not in ids and one.example.digest not in gone
    )
    if not examples:
        raise DataError("every row of it is forgotten", where=where, fix="Give other rows, too")
    return replace(
        rows,
        examples=examples,
        digest=dataset_digest(examples, labelled),
        recordings={example.id: rows.recordings[example.id] for example in examples if rows.recordings},
        labelled=labelled,
        forgotten=tuple(sorted(ids)),
    )


def id_of(value: Any) -> str:
    """Return a row's id as text; empty when it is no word of at most MAX_ID_CHARACTERS characters."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    usable = len(text) <= MAX_ID_CHARACTERS and text.isprintable() and not any(map(str.isspace, text))
    return text if usable else ""


def read_jsonl(
    lines: Iterable[bytes],
    *,
    where: str,
    fields: Fields = Fields(),
    unfit: Callable[[str], str | None] = lambda target: None,
    with_labels: bool = False,
) -> Dataset:
    """Return one example per line; blank lines are skipped, other fields of a row ignored.

    An id is the row's own, else its line number (from 1). Rows of equal content are merged into the first,
    with a warning; equal inputs with different targets stay, with a warning. ``unfit`` returns what is wrong
    with a target (a phrase such as ``is not a number``), or None. ``with_labels``: a row may lack its target,
    and may hold an ``answer`` with a ``label`` from 0 to 1, a person's score of it; rows of one content then
    are labels of one example.

    Raises DataError as ``add_each`` does, for a row over MAX_ROW_BYTES, not UTF-8, not JSON, not an object,
    without input or target, with an unfit target or id, or with an id used for two contents; and for a file
    without any row. Cost: linear, one row in memory besides the examples.
    """
    reader = _Reader(where, fields, unfit, with_labels)
    add_each(lines, reader.add)
    return reader.dataset()


def add_each(lines: Iterable[bytes], add: Callable[[int, bytes], None]) -> None:
    """Call ``add`` with the number, from 1, and the text of each line. Of a line that came in pieces since it
    is over MAX_ROW_BYTES, only the first is added.

    Raises one DataError for all lines that ``add`` refused with one (``file:line``): the first with its fix,
    what is wrong with the next ones, _SHOWN_FAULTS in all, and how many more there are.
    """
    number, wrong, inside, faults = 0, 0, False, list[DataError]()
    for line in lines:
        if not inside:
            number += 1
            try:
                add(number, line)
            except DataError as error:
                wrong += 1
                if wrong <= _SHOWN_FAULTS:
                    faults.append(error)
        inside = (inside or len(line.rstrip(b"\r\n")) > MAX_ROW_BYTES) and not line.endswith(b"\n")
    if not faults:
        return
    first, *others = faults
    if others:
        shown = [f"line {one.where.rpartition(':')[2]}: {one.what}" for one in others]
        more = [f"and {wrong - len(faults):,} more"] if wrong > len(faults) else []
        first.fix += f" ({wrong:,} of {number:,} lines are wrong; {'; '.join([*shown, *more])}.)"
    raise first


def overlap(train: Dataset, held_out: Dataset) -> tuple[str, ...]:
    """Return ids of heldOut examples whose question is also in train, whatever its target, case and spacing.

    Any such id is a leak: an example that was learned from cannot judge what was learned.
    """
    seen = {_question(example) for example in train.examples}
    return tuple(example.id for example in held_out.examples if _question(example) in seen)


def _question(example: Example) -> bytes:
    return hashlib.sha256(" ".join(example.input.casefold().split()).encode("utf-8")).digest()


class _Reader:
    """Collects the examples of one file."""

    def __init__(
        self, where: str, fields: Fields, unfit: Callable[[str], str | None], with_labels: bool
    ) -> None:
        self._where = where
        self._with_labels = with_labels
        self._labelled: list[Labelled] = []
        self._fields = fields
        self._unfit = unfit
        self._examples: list[Example] = []
        self._line_of_content: dict[str, int] = {}
        self._line_of_id: dict[str, tuple[int, str]] = {}
        self._line_of_input: dict[bytes, int] = {}
        self._merged: list[tuple[int, int]] = []
        self._digest_of_merged: dict[str, str] = {}
        self._disputed: list[tuple[int, int]] = []

    def add(self, number: int, line: bytes) -> None:
        if len(line.rstrip(b"\r\n")) > MAX_ROW_BYTES:
            self._refuse(
                number, f"the row is longer than {MAX_ROW_BYTES} bytes", "Shorten or remove the row."
            )
        if number == 1:
            line = line.removeprefix(BOM)
        if not line.strip():
            return
        row = self._row(number, line)
        model_input, target = self._text(number, row, self._fields.input), self._target(number, row)
        digest = content_digest(model_input, target)
        example_id = self._id(number, row)
        first, first_digest = self._line_of_id.setdefault(example_id, (number, digest))
        if first_digest != digest:
            self._refuse(
                number,
                f"its id is also the id of line {first}, which has other content",
                "Give each row an id of its own (rows without one are named by their line number).",
            )
        example = Example(example_id, model_input, target, digest)
        labelled = self._label(number, row, example) if self._with_labels else None
        if labelled is not None:
            self._labelled.append(labelled)
        if (earlier := self._line_of_content.setdefault(digest, number)) != number:
            if labelled is None:
                self._merged.append((number, earlier))
                self._digest_of_merged[example_id] = digest
            return
        input_digest = hashlib.sha256(model_input.encode("utf-8")).digest()
        if (earlier := self._line_of_input.setdefault(input_digest, number)) != number:
            self._disputed.append((number, earlier))
        self._examples.append(example)

    def dataset(self) -> Dataset:
        if not self._examples:
            raise DataError(
                "there is no row in it",
                where=self._where,
                fix=f"Write one JSON object a line: {self._shape()}.",
            )
        return Dataset(
            tuple(self._examples),
            dataset_digest(self._examples, self._labelled),
            tuple(self._warnings()),
            labelled=tuple(self._labelled),
            merged=self._digest_of_merged,
        )

    def _warnings(self) -> Iterator[str]:
        if self._merged:
            yield f"{self._where}: merged rows that are identical to earlier ones: {_pairs(self._merged)}"
        if self._disputed:
            yield f"{self._where}: same {self._fields.input}, different target: {_pairs(self._disputed)}"

    def _shape(self) -> str:
        target = "" if self._with_labels else f', "{self._fields.target}": "..."'
        return f'{{"{self._fields.input}": "..."{target}}}'

    def _refuse(self, number: int, what: str, fix: str) -> NoReturn:
        raise DataError(what, where=f"{self._where}:{number}", fix=fix)

    def _row(self, number: int, line: bytes) -> dict[str, Any]:
        fix = f"Write one JSON object a line: {self._shape()}."
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            self._refuse(
                number, f"not valid UTF-8 at byte {error.start + 1} of the row", "Save the file as UTF-8."
            )
        try:
            row = json.loads(
                text, parse_float=Decimal, parse_constant=refuse_constant, object_pairs_hook=_unique_keys
            )
        except json.JSONDecodeError as error:
            self._refuse(number, f"not valid JSON at column {error.colno}: {error.msg}", fix)
        except (ValueError, ArithmeticError) as error:
            self._refuse(number, f"not valid JSON: {error}", fix)
        except RecursionError:
            self._refuse(number, "not valid JSON: nested too deeply", fix)
        if not isinstance(row, dict):
            self._refuse(number, "the row is not a JSON object", fix)
        return row

    def _value(self, number: int, row: dict[str, Any], name: str) -> Any:
        value = row.get(name)
        if value is None:
            present = ", ".join(repr(key[:40]) for key in list(row)[:8]) or "none"
            self._refuse(
                number, f"the row has no {name}", f"Add {name!r} to the row; its fields are: {present}."
            )
        return value

    def _text(self, number: int, row: dict[str, Any], name: str) -> str:
        value = self._value(number, row, name)
        if not isinstance(value, str):
            self._refuse(number, f"{name} is not text", f"Write {name} in quotes.")
        if not value.strip():
            self._refuse(number, f"{name} is empty", f"Complete {name}, or remove the row.")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            self._refuse(
                number, f"{name} holds half a character (a lone surrogate)", "Write the character whole."
            )
        return value

    def _target(self, number: int, row: dict[str, Any]) -> str:
        name = self._fields.target
        if self._with_labels and row.get(name) is None:
            return ""
        value = self._value(number, row, name)
        if isinstance(value, int | Decimal) and not isinstance(value, bool):
            row = {**row, name: str(value)}
        target = self._text(number, row, name)
        if (fault := self._unfit(target)) is not None:
            self._refuse(number, f"{name} {fault}", f"Mend {name}, or remove the row.")
        return target

    def _label(self, number: int, row: dict[str, Any], example: Example) -> Labelled | None:
        label = row.get("label")
        if label is None:
            return None
        if isinstance(label, bool) or not isinstance(label, int | Decimal) or not 0 <= label <= 1:
            self._refuse(number, "label is no number from 0 to 1", "Mend label, or remove it.")
        return Labelled(example, self._text(number, row, "answer"), float(label))

    def _id(self, number: int, row: dict[str, Any]) -> str:
        value = row.get(self._fields.id)
        if value is None:
            return str(number)
        text = id_of(value)
        if not text:
            self._refuse(
                number,
                f"{self._fields.id} is not a usable id",
                f"Use text without blanks, at most {MAX_ID_CHARACTERS} characters, or leave it out.",
            )
        return text


def _pairs(pairs: list[tuple[int, int]]) -> str:
    lines = ", ".join(f"{later} (of line {earlier})" for later, earlier in pairs[:_SHOWN_LINES])
    more = f" and {len(pairs) - _SHOWN_LINES} more" if len(pairs) > _SHOWN_LINES else ""
    return f"{len(pairs)} rows, lines {lines}{more}" if len(pairs) > 1 else f"line {lines}"


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and the infinities, which Python reads as JSON."""
    raise ValueError(f"{name} is not a JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ValueError("a field is given twice")
    return row
