"""Reads an artifact: which rules it states, on how many lines, under which ids.

A rule counts as stated when one line holds its topic and one of its anchors. Whether the model then follows
it is decided in ``answering``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from combee.sim import draws
from combee.sim.prompts import tokens
from combee.sim.rulebook import Rulebook

_ID = re.compile(r"\s*(?:[-*•]\s*|\d+[.)]\s*)?\[([^\]\s]{1,64})\]")


@dataclass(frozen=True, slots=True)
class Support:
    """The lines that state a rule rightly and wrongly, by their ids ('' where a line has none)."""

    right: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    def __add__(self, other: Support) -> Support:
        return Support(self.right + other.right, self.wrong + other.wrong)

    def named_in(self, text: str) -> Support:
        """Return only the lines whose id ``text`` contains."""
        right = tuple(id_ for id_ in self.right if id_ and id_ in text)
        return Support(right, tuple(id_ for id_ in self.wrong if id_ and id_ in text))


@dataclass(frozen=True, slots=True)
class Reading:
    """The rules that a text states. ``digest`` covers only the lines that state a rule: the artifact, not its
    frame."""

    rules: dict[str, Support]
    tokens: int
    digest: str

    def support(self, topic: str) -> Support:
        """Return the lines about one topic."""
        return self.rules.get(topic, Support())


def read(text: str, book: Rulebook) -> Reading:
    """Return all rules that a text states; cost linear in its length."""
    lines: dict[tuple[int, str, str], str] = {}
    stating_lines: dict[int, str] = {}
    for hit in book.lessons_in(text):
        start = text.rfind("\n", 0, hit.position) + 1
        end = text.find("\n", hit.position)
        line = stating_lines.get(start)
        if line is None:
            line = stating_lines[start] = text[start : end if end >= 0 else len(text)]
        if hit.kind in ("right", "wrong") and book.rule(hit.key).named_in(line):
            id_match = _ID.match(line)
            lines.setdefault((start, hit.key, hit.kind), id_match.group(1) if id_match else "")
        elif hit.kind == "note":
            for topic in book.hurt_by(hit.key, hit.name):
                lines.setdefault((start, topic, "wrong"), "")
    rules: dict[str, Support] = {}
    for (_, topic, side), id_ in lines.items():
        support = Support(right=(id_,)) if side == "right" else Support(wrong=(id_,))
        rules[topic] = rules[topic] + support if topic in rules else support
    return Reading(
        rules, tokens(text), draws.digest("\n".join(stating_lines.values()))[:16] if stating_lines else ""
    )
