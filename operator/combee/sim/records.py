"""Records of work instead of lessons: an aggregator that is shown trajectories draws the lessons itself.

GEPA's reflection is such a call, with or without Combee. What is drawn of a record is what a reflection on that
trajectory alone would draw, by the same luck; its length is that of the whole record, so that a call holds few.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from combee.sim import reflecting
from combee.sim.items import Item
from combee.sim.keyfile import Questions
from combee.sim.params import Law
from combee.sim.prompts import tokens
from combee.sim.reading import Support
from combee.sim.rulebook import Hit, Rulebook

_START = re.compile(r"^(?:[ \t]*\[([^\]\s]{1,64})\]|#{1,3} Example (\d+)\b)", re.M)
_TOLD = re.compile(r"\bfeedback\b", re.I)


def records_in(text: str) -> list[tuple[str, str]]:
    """(id, text) of each piece that may be a record: it begins with ``[id]`` or a heading "Example n", and has
    feedback in it. A heading's pieces have no id."""
    starts = list(_START.finditer(text))
    edges = [start.start() for start in starts] + [len(text)]
    pieces = [
        (start.group(1) or "", text[start.start() : end])
        for start, end in zip(starts, edges[1:], strict=True)
    ]
    return [(id_, piece.strip()) for id_, piece in pieces if _TOLD.search(piece)]


def read(
    text: str,
    questions: Questions,
    book: Rulebook,
    law: Law,
    seed: int,
    ordinal: int,
    plants: Mapping[str, str],
) -> list[Item]:
    """The records of a request that hold a known question, with what is drawn of each; those that give nothing
    are left out. None is found where nobody gives feedback, or where the feedback gives lessons already."""
    found: list[Item] = []
    for id_, piece in records_in(text):
        if book.lessons_in(piece):
            return []
        asked = questions.last_in(piece)
        if asked is None:
            continue
        known, shown = asked.known, piece[: asked.start] + piece[asked.end :]
        drawn = reflecting.reflect(
            known, reflecting.missed(shown, known), Support(), book, law, seed, ordinal, plants
        )
        hits: list[Hit] = []
        for told, _ in drawn.entries:
            hits += book.lessons_in(told)
        if hits:
            found.append(Item(id_, tokens(piece), tuple(hits)))
    return found
