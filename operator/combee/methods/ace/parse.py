"""A playbook's text as lines that know what they are; joined again they are the same bytes.

Nothing is thrown away: text before the first heading, remarks between bullets, blank lines and line
ends all stay where they were. Only ``\\n`` ends a line. A program and its bullet are one line of several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from combee.methods.ace.entries import (
    BULLET,
    CONTESTED,
    DEFAULT_SECTION,
    as_kept,
    bullet_line,
    entry_digest,
    normalise_entry,
    section_key,
)
from combee.methods.ace.program import CLOSES, MAX_PROGRAM_CHARS, OPENS, is_program, name_of

_HEADING = re.compile(r"^\s{0,3}##+(?!#)\s*(?P<title>\S.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a playbook. ``raw`` has no line end; fields that do not apply are empty.

    ``body`` is a bullet's text as it stands, without a contested tail, or its program; ``digest`` names the
    entry that it normalises to. ``section`` is the key of the section the line is in.
    """

    raw: str
    kind: Literal["heading", "bullet", "prose"]
    section: str
    id: str = ""
    helpful: int = 0
    harmful: int = 0
    body: str = ""
    digest: str = ""
    contested: int = 0

    @property
    def entry_text(self) -> str:
        """The normalised text of a bullet."""
        return as_kept(self.body)

    def shown(self, helpful: int, harmful: int, contested: int) -> str:
        """Return the line with these counts: ``raw`` itself when it says the same already."""
        head = BULLET.match(self.raw)
        same_id = head is not None and head["id"] == self.id
        if same_id and (helpful, harmful, contested) == (self.helpful, self.harmful, self.contested):
            return self.raw
        end = "\r" if self.raw.endswith("\r") else ""
        return f"{bullet_line(self.id, helpful, harmful, self.body, contested)}{end}"


@dataclass(frozen=True, slots=True)
class Document:
    """A playbook's lines; ``text`` is what was parsed, byte for byte."""

    lines: tuple[Line, ...]

    @property
    def text(self) -> str:
        return "\n".join(line.raw for line in self.lines)

    @property
    def bullets(self) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if line.kind == "bullet")


def parse_playbook(text: str) -> Document:
    """Return the lines of ``text``. Never fails: a line that is neither heading nor bullet is prose."""
    section = DEFAULT_SECTION
    lines: list[Line] = []
    raws, index = text.split("\n"), 0
    while index < len(raws):
        line = _parse_line(raws[index], section)
        program = _program_below(raws, index) if line.kind == "bullet" else ""
        if program and name_of(program) == line.body:
            raw = "\n".join([line.raw, OPENS, program, CLOSES])
            line = replace(line, raw=raw, body=program, digest=entry_digest(program))
        index += line.raw.count("\n") + 1
        section = line.section
        lines.append(line)
    return Document(tuple(lines))


def _program_below(raws: list[str], index: int) -> str:
    """Return the program in the block below a line; empty where there is none in its one form."""
    start = index + 2
    if raws[index + 1 : start] != [OPENS]:
        return ""
    end = next((k for k, raw in enumerate(raws[start : start + MAX_PROGRAM_CHARS]) if raw == CLOSES), 0)
    program = "\n".join(raws[start : start + end])
    return program if is_program(program) else ""


def _parse_line(raw: str, section: str) -> Line:
    if heading := _HEADING.match(raw):
        return Line(raw, "heading", section_key(heading["title"]))
    if bullet := BULLET.match(raw):
        body = bullet["text"].removesuffix("\r")
        tail = CONTESTED.search(body)
        body = body[: tail.start()] if tail else body
        if text := normalise_entry(body):
            return Line(
                raw,
                "bullet",
                section,
                id=bullet["id"],
                helpful=int(bullet["helpful"]),
                harmful=int(bullet["harmful"]),
                body=body,
                digest=entry_digest(text),
                contested=int(tail["n"]) if tail else 0,
            )
    return Line(raw, "prose", section)


def layout(texts: Iterable[str]) -> tuple[Line, ...]:
    """Return the lines of the playbooks that a user gave (usually one), with no id on two entries.

    A bullet whose id belongs to an earlier bullet with another text gets one made of its digest. Bullets of a
    second playbook that were there already are left out.
    """
    lines: list[Line] = []
    owner: dict[str, str] = {}
    known: set[str] = set()
    for text in sorted(texts):
        document = parse_playbook(text)
        if lines and lines[-1].raw:
            lines.append(Line("", "prose", lines[-1].section))
        for line in document.lines:
            if line.kind == "bullet" and line.digest in known:
                continue
            lines.append(_own_id(line, owner) if line.kind == "bullet" else line)
        known |= {line.digest for line in document.bullets}
    return tuple(lines) if any(line.raw for line in lines) or len(lines) > 1 else ()


def _own_id(line: Line, owner: dict[str, str]) -> Line:
    length, bullet_id = 6, line.id
    while owner.setdefault(bullet_id, line.digest) != line.digest:
        bullet_id = f"{line.id[:40]}-{line.digest[:length]}"
        length += 1
    return line if bullet_id == line.id else replace(line, id=bullet_id)
