"""The history of a Playbook: lines that only grow, each with the digest of the line before. Pure.

A decision about a version and its line are one write: the line stands in the Playbook's status, among those
that are pending. The operator writes each of them into an immutable ConfigMap, whose name has the line's
number, and then takes it out of the status. So a line is lost neither when the operator dies nor when it is
down, and none is written twice. A line that somebody takes away or alters is noticed: the digest in the line
after it, or in the status for the last one, is another one then.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from pydantic import ValidationError

from combee import names
from combee.api.playbook_status import HistoryEntry, HistoryLine, Trail
from combee.plan.playbook.authentic import digest_of_text

MAX_PENDING = 100
"""The most lines that wait in a status. Where more come while none can be written, the oldest are lost, and
``breaks`` names them."""


@dataclass(frozen=True, slots=True)
class FiledLine:
    """A line as its ConfigMap has it. ``number``: by the ConfigMap's name."""

    number: int
    text: str
    writer: str = field(default="", compare=False)
    """the program that wrote the text, and when, as the API server noted it; empty where it did not."""

    @property
    def is_foreign(self) -> bool:
        """Whether it was written by another program than the operator."""
        return bool(self.writer) and not self.writer.startswith(f"{names.PROGRAM} at ")

    @property
    def digest(self) -> str:
        return digest_of_text(self.text)

    @property
    def line(self) -> HistoryLine | None:
        """What the line says; None where its text is no line."""
        try:
            return HistoryLine.model_validate(json.loads(self.text))
        except (ValidationError, ValueError):
            return None


def text_of(line: HistoryLine) -> str:
    """Return a line as it is written. Fields that say nothing are left out, so that the text and its digest
    stay the same when a later release adds a field."""
    fields = line.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def filed(line: HistoryLine) -> FiledLine:
    """Return a line as its ConfigMap will have it."""
    return FiledLine(line.number, text_of(line))


def lines_from(entries: Iterable[HistoryEntry]) -> tuple[HistoryLine, ...]:
    """Return what a status shows of a history as lines without numbers: all that earlier releases kept."""
    return tuple(
        HistoryLine(time=one.time, event=one.event, digest=one.digest, by=one.by, message=one.message)
        for one in entries
    )


def appended(trail: Trail, *lines: HistoryLine) -> Trail:
    """Return a trail with lines at its end, each numbered and with the digest of the line before.

    >>> two = appended(Trail(), HistoryLine(event="Made"), HistoryLine(event="Promoted"))
    >>> [line.number for line in two.pending], two.pending[1].before == filed(two.pending[0]).digest
    ([1, 2], True)
    """
    for line in lines:
        last = line.model_copy(update={"number": trail.lines + 1, "before": trail.digest})
        pending = (*trail.pending, last)[-MAX_PENDING:]
        trail = Trail(lines=last.number, digest=filed(last).digest, pending=pending)
    return trail


def continued(lines: Iterable[FiledLine]) -> Trail:
    """Return the trail of the lines that are filed, none of which is pending."""
    last = max(lines, key=lambda line: line.number, default=None)
    return Trail() if last is None else Trail(lines=last.number, digest=last.digest)


def past_others(trail: Trail, lines: Collection[FiledLine]) -> Trail:
    """Return ``trail`` with its pending lines numbered anew after those that are filed, where another line
    has the number of one of them; else the same."""
    by_number = {line.number: line for line in lines}
    waiting = [line for line in trail.pending if by_number.get(line.number) != filed(line)]
    if not any(line.number in by_number for line in waiting):
        return trail
    return appended(continued(lines), *waiting)


def whole(lines: Iterable[FiledLine], trail: Trail | None) -> tuple[FiledLine, ...]:
    """Return all lines that there are, by their numbers: those that are filed, then those still pending."""
    by_number = {line.number: filed(line) for line in (trail.pending if trail is not None else ())}
    by_number |= {line.number: line for line in lines}
    return tuple(by_number[number] for number in sorted(by_number))


def breaks(lines: Iterable[FiledLine], trail: Trail | None) -> Iterator[str]:
    """Yield what is wrong with a history, a sentence each: lines that are gone, altered or not ours.

    ``trail``: as the Playbook's status has it; None where there is no Playbook any more, so that nothing says
    whether lines are missing at the end.
    """
    by_number = {line.number: line for line in whole(lines, trail)}
    last = max(by_number, default=0) if trail is None else max(trail.lines, max(by_number, default=0))
    for number in range(1, last + 1):
        line, before = by_number.get(number), by_number.get(number - 1)
        if line is None:
            yield f"line {number} is gone"
            continue
        if line.is_foreign:
            yield f"line {number} was not written by the operator but by {line.writer}"
        content = line.line
        if content is None or content.number != number:
            yield f"line {number} is not one that the operator wrote"
        elif before is not None and content.before != before.digest:
            yield f"line {number - 1} is not what it was when line {number} was written"
        elif number == 1 and content.before:
            yield "line 1 follows one that is not there"
    if trail is not None and last > trail.lines:
        yield f"lines after {trail.lines} are not in the Playbook's status"
    if trail is not None and (end := by_number.get(trail.lines)) is not None and end.digest != trail.digest:
        yield f"line {trail.lines} is not what it was when the Playbook's status was written"
