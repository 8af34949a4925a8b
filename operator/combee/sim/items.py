"""Finds the items that an aggregator is given, with their lessons, in any layout.

Lines of an artifact (with their counters) are not items. Items start at ``[id]`` at the beginning of a line
after the last heading that introduces such a list; where there are none, at "id" fields of a JSON list; where
there are none either, all lessons are one item without an id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from combee.sim.prompts import tokens
from combee.sim.rulebook import Hit, Rulebook

_ARTIFACT = re.compile(r"\bhelpful\s*[=:]\s*\d")
_START = re.compile(r"^[ \t]*(?:[-*•][ \t]*|\d+[.)][ \t]*)?\[([^\]\s]{1,64})\]", re.M)
_JSON_START = re.compile(r"\"\w*id\"\s*:\s*\"([^\"\n]{1,64})\"")
_INTRODUCTION = re.compile(
    r"^(?!\s*[-*•\d]*[.)]?\s*\[)[^\n]{0,100}\b(?:reflections?|lessons?|entr(?:y|ies)|updates?|proposals?)\b[^\n]{0,60}\n+"
    r"(?=[ \t]*(?:[-*•][ \t]*|\d+[.)][ \t]*)?\[)",
    re.M | re.I,
)
_HEADING = re.compile(
    r"^(?:\*\*[^\n]{1,80}\*\*:?|#{1,6} [^\n]{1,80}|<[^\n>]{1,40}>|[^\n\[{\"]{1,60}:)[ \t]*$", re.M
)


@dataclass(frozen=True, slots=True)
class Item:
    """One item with its lessons; ``tokens`` is its length."""

    id: str
    tokens: int
    hits: tuple[Hit, ...]


def items_in(text: str, book: Rulebook) -> list[Item]:
    """Return the items of a request, in order; those without a lesson are left out."""
    if "helpful" in text:
        text = "\n".join(
            [line for line in text.split("\n") if "helpful" not in line or not _ARTIFACT.search(line)]
        )
    hits = book.lessons_in(text)
    if not hits:
        return []
    begin = 0
    for begin_at in _INTRODUCTION.finditer(text, 0, hits[-1].position):
        begin = begin_at.end()
    starts = [(m.start(), m.group(1)) for m in _START.finditer(text, begin)]
    if starts and starts[0][0] < hits[-1].position:
        return _cut(text, starts, [h for h in hits if h.position >= starts[0][0]], once=True)
    starts = [(m.start(), m.group(1)) for m in _JSON_START.finditer(text)]
    if not starts or starts[0][0] > hits[0].position:
        starts.insert(0, (_heading_before(text, hits[0].position), ""))
    return _cut(text, starts, hits, once=False)


def _heading_before(text: str, position: int) -> int:
    """Return the end of the last heading before a position, or the start of its line where there is none."""
    ends = [heading.end() for heading in _HEADING.finditer(text, 0, position)]
    return ends[-1] if ends else text.rfind("\n", 0, position) + 1


def _cut(text: str, starts: list[tuple[int, str]], hits: list[Hit], *, once: bool) -> list[Item]:
    """Return the pieces from start to start; where pieces are real items, a lesson counts once per piece."""
    items = []
    edges = [start for start, _ in starts] + [_tail(text, starts[-1][0], hits[-1].position, once)]
    index = 0
    for (start, id_), end in zip(starts, edges[1:], strict=True):
        piece_hits: dict[object, Hit] = {}
        while index < len(hits) and hits[index].position < end:
            hit = hits[index]
            piece_hits.setdefault((hit.kind, hit.key) if once else index, hit)
            index += 1
        if piece_hits:
            items.append(Item(id_, tokens(text[start:end].rstrip()), tuple(piece_hits.values())))
    return items


def _tail(text: str, start: int, last_hit: int, once: bool) -> int:
    """Return where the last item ends: the blank line (else the heading) after its last lesson."""
    last_position = max(start, last_hit)
    if once:
        end = text.find("\n\n", last_position)
        return end if end >= 0 else len(text)
    heading = _HEADING.search(text, last_position)
    return heading.start() if heading else len(text)
