"""Records of work instead of lessons: an aggregator that is shown trajectories draws the lessons itself.

GEPA's reflection is such a call, with or without Combee. The lessons drawn from a record are those that a
reflection on that trajectory alone would draw, with the same luck. A record's length is that of its whole
text, so that a call holds few.
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
_FEEDBACK = re.compile(r"\bfeedback\b", re.I)


def records_in(text: str) -> list[tuple[str, str]]:
    """Return (id, text) of each piece that may be a record.

    A record begins with ``[id]`` or a heading "Example n", and has feedback in it. A heading's pieces have no
    id.
    """
    starts = list(_START.finditer(text))
    edges = [start.start() for start in starts] + [len(text)]
    pieces = [
        (start.group(1) or "", text[start.start() : end])
        for start, end in zip(starts, edges[1:], strict=True)
    ]
    return [(id_, piece.strip()) for id_, piece in pieces if _FEEDBACK.search(piece)]


def read(
    text: str,
    questions: Questions,
    book: Rulebook,
    law: Law,
    seed: int,
    ordinal: int,
    plants: Mapping[str, str],
) -> list[Item]:
    """Return the records that hold a known question, with their lessons; those without lessons are left out.

    Returns none when no feedback is given, or when the feedback states lessons already.
    """
    records: list[Item] = []
    for id_, piece in records_in(text):
        if book.lessons_in(piece):
            return []
        match = questions.last_in(piece)
        if match is None:
            continue
        question, trajectory = match.question, piece[: match.start] + piece[match.end :]
        reflection = reflecting.reflect(
            question, reflecting.missed(trajectory, question), Support(), book, law, seed, ordinal, plants
        )
        hits: list[Hit] = []
        for entry_text, _ in reflection.entries:
            hits += book.lessons_in(entry_text)
        if hits:
            records.append(Item(id_, tokens(piece), tuple(hits)))
    return records
