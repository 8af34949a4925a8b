"""Reads rows of traces one at a time, keeping only the id and size of each in memory.

An unusable row is left out, counted and reported with its line; a file with more than one unusable row in ten
is refused. No message quotes a row.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from combee.algo.tokens import estimate_tokens
from combee.errors import DataError
from combee.records import Example
from combee.tasks.dataset import BOM, Dataset, Load, dataset_digest, id_of, refuse_constant
from combee.tasks.traces.conversation import LEFT_OUT, Row, Turn, UnreadableError, whole
from combee.tasks.traces.formats import atif_turns, openai_turns
from combee.tasks.traces.outcomes import outcome_of
from combee.tasks.traces.parts import parts_of
from combee.tasks.traces.recording import Recording

Format = Literal["Auto", "OpenAI", "ATIF"]
Keep = Callable[[bytes], Load]
"""Stores bytes and returns a function that loads them."""

MAX_TRACE_BYTES = 4 * 1024 * 1024
"""longest row, in bytes."""
MAX_DEPTH = 64
"""deepest nesting of objects and lists."""
MAX_UNREADABLE = 0.1
"""largest share of rows that may be left out."""
MAX_TITLE, MAX_ANSWER = 1200, 2000
"""most characters of a question and of an answer that a trajectory keeps."""
_SHOWN = 5
_IDS = ("id", "trace_id", "session_id", "trajectory_id")


def read_traces(
    lines: Iterable[bytes], *, where: str, format: Format, part_tokens: int, keep: Keep
) -> Dataset:
    """Return a dataset with one example per row; each recording goes to ``keep``.

    The dataset's warnings count rows that were read in parts, cut, merged or left out. ``lines`` may bring a
    row that is too long in several pieces: all of them are skipped. Raises DataError (``file:line``) when no
    row, or too few of the rows, can be used. Memory: one row, and some hundred bytes for each.
    """
    reader = _Reader(where, format, part_tokens, keep)
    for number, line in _rows(lines):
        reader.add(number, line)
    return reader.dataset()


def _rows(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Yield (line number, row), with None for a row that is too long."""
    number, inside = 0, False
    for line in lines:
        if not inside:
            number += 1
            too_long = len(line.rstrip(b"\r\n")) > MAX_TRACE_BYTES
            yield number, None if too_long else line
        inside = (inside or too_long) and not line.endswith(b"\n")


@dataclass(slots=True)
class _Reader:
    where: str
    format: Format
    part_tokens: int
    keep: Keep
    examples: list[Example] = field(default_factory=list)
    recordings: dict[str, Load] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)
    """id of a trace that is one with an earlier one -> digest of its content."""
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str]] = field(default_factory=list)
    """line and reason of the first rows that are left out."""
    _seen: set[bytes] = field(default_factory=set)

    def add(self, number: int, line: bytes | None) -> None:
        if line is not None and not line.removeprefix(BOM).strip():
            return
        self.counts["rows"] += 1
        row_counts: Counter[str] = Counter()
        try:
            if line is None:
                raise UnreadableError(f"is longer than {MAX_TRACE_BYTES:,} bytes")
            row = row_of(line.removeprefix(BOM) if number == 1 else line)
            recording, cut = recording_of(row, self.format, self.part_tokens, row_counts)
        except UnreadableError as error:
            self.counts["unreadable"] += 1
            if len(self.faults) < _SHOWN:
                self.faults.append((number, str(error)))
            return
        self.counts.update(row_counts)
        self._keep(number, row, recording, cut)

    def _keep(self, number: int, row: Row, recording: Recording, cut: int) -> None:
        data = recording.encode()
        digest = hashlib.sha256(data)
        if digest.digest() in self._seen:
            self.counts["merged"] += 1
            self.merged[self._id(number, row)] = digest.hexdigest()
            return
        self._seen.add(digest.digest())
        example_id = self._id(number, row)
        tokens = sum(estimate_tokens(part) for part in recording.parts)
        self.examples.append(Example(example_id, recording.title, "", digest.hexdigest(), tokens))
        self.recordings[example_id] = self.keep(data)
        self.counts["silent"] += recording.score is None
        self.counts["cut"] += cut
        if len(recording.parts) > 1:
            self.counts["long"] += 1
            self.counts["parts"] += len(recording.parts)

    def _id(self, number: int, row: Row) -> str:
        """Return the row's own id, else its line number; a repeated id gets the line number added."""
        for name in _IDS:
            if text := id_of(row.get(name)):
                return text if text not in self.recordings else f"{text}:{number}"
        return str(number) if str(number) not in self.recordings else f"line:{number}"

    def dataset(self) -> Dataset:
        rows, unusable = self.counts["rows"], self.counts["unreadable"]
        if not rows:
            self._refuse("there is no trace in it", self.where, "Write one trace a line")
        if unusable > MAX_UNREADABLE * rows or not self.examples:
            line, reason = self.faults[0]
            share = f"; {unusable:,} of {rows:,} rows cannot be used" if rows > 1 else ""
            self._refuse(f"the trace {reason}{share}", f"{self.where}:{line}", "Mend or remove them")
        warnings = tuple(f"{self.where}: {warning}" for warning in self._warnings())
        return Dataset(
            tuple(self.examples),
            dataset_digest(self.examples),
            warnings,
            self.recordings,
            merged=self.merged,
        )

    def _refuse(self, what: str, where: str, fix: str) -> NoReturn:
        shape = '{"messages": [...], "outcome": ...} or an ATIF trajectory'
        raise DataError(what, where=where, fix=f"{fix}: {shape}")

    def _warnings(self) -> Iterator[str]:
        counts, usable = self.counts, len(self.examples)
        if counts["unreadable"]:
            reasons = ", ".join(f"line {line} ({reason})" for line, reason in self.faults)
            more = counts["unreadable"] - len(self.faults)
            yield f"{counts['unreadable']:,} of {counts['rows']:,} rows are left out: {reasons}" + (
                f" and {more:,} more" if more else ""
            )
        if counts["merged"]:
            yield f"{counts['merged']:,} traces are identical to earlier ones and are merged with them"
        if counts["long"]:
            yield (
                f"{counts['long']:,} of {usable:,} traces are longer than {self.part_tokens:,} tokens "
                f"and are read in {counts['parts']:,} parts"
            )
        if counts["cut"]:
            yield f"{counts['cut']:,} single messages or results are longer than a part and are cut"
        if counts[LEFT_OUT]:
            parts = f"{counts[LEFT_OUT]:,} parts of messages"
            yield f"{parts} that are no text (images, sounds, files) are left out"
        if counts["silent"]:
            yield f"{counts['silent']:,} of {usable:,} traces do not say how they ended"


def row_of(line: bytes) -> Row:
    """Return the JSON object of a line; a bare list is taken as messages. Raises UnreadableError for
    others."""
    try:
        value = json.loads(line.rstrip().decode("utf-8"), parse_constant=refuse_constant)
    except UnicodeDecodeError as error:
        raise UnreadableError(f"is not valid UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        raise UnreadableError(f"is not valid JSON at column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise UnreadableError(f"is nested deeper than {MAX_DEPTH}") from None
    except ValueError as error:
        raise UnreadableError(f"is not valid JSON: {error}") from None
    _refuse_depth(value)
    if isinstance(value, list):
        return {"messages": value}
    if not isinstance(value, dict):
        raise UnreadableError("is not a JSON object")
    return value


def _refuse_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        if depth > MAX_DEPTH:
            raise UnreadableError(f"is nested deeper than {MAX_DEPTH}")
        inner: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                inner += [item for item in node.values() if isinstance(item, dict | list)]
            elif isinstance(node, list):
                inner += [item for item in node if isinstance(item, dict | list)]
        level, depth = inner, depth + 1


def recording_of(row: Row, format: Format, part_tokens: int, counts: Counter[str]) -> tuple[Recording, int]:
    """Return the recording of a row, and how many of its texts were cut. Raises UnreadableError."""
    turns = _turns(row, format, counts)
    if not any(turn.who == "agent" for turn in turns):
        raise UnreadableError("holds nothing that an agent said or did")
    question = next((turn.text for turn in turns if turn.who == "user" and turn.text.strip()), turns[0].text)
    answer = next((turn.text for turn in reversed(turns) if turn.who == "agent" and turn.text.strip()), "")
    outcome, parts = outcome_of(row), parts_of(turns, part_tokens)
    title, last = shortened(question, MAX_TITLE), shortened(answer, MAX_ANSWER)
    return Recording(title, last, outcome.score, outcome.feedback, parts.texts), parts.cut


def _turns(row: Row, format: Format, counts: Counter[str]) -> list[Turn]:
    if format == "OpenAI":
        return openai_turns(row, counts)
    if format == "ATIF" or str(row.get("schema_version", "")).startswith("ATIF"):
        return atif_turns(row, counts)
    if "messages" in row:
        return openai_turns(row, counts)
    if "steps" in row:
        return atif_turns(row, counts)
    raise UnreadableError("has neither messages nor steps")


def shortened(text: str, characters: int) -> str:
    """Return ``text``, or its beginning with a mark that it is cut."""
    text = whole(text).strip()
    return text if len(text) <= characters else f"{text[:characters]} [...]"
