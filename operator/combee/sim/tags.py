"""FiNER: rows of several XBRL tags, and how they map to rules that are one tag each.

The mechanism knows one rule a question. A row asks for the tags of several entities (four in the
data), so its rule is that of **one** of its tags: the one at the position that the hash of the
question names. Each position is as likely as the others, so over the rows tags are asked about as
often as they occur in the data, which is the distribution that the law was fitted with. The row is
right exactly when the draw of that rule is right. When it is not, each place of that tag holds the
tag it is typically confused with, and the other places are right: partial credit is then three of
four or less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from combee.sim import draws

_QUESTIONS = re.compile(r"^\s*1\. .*", re.S | re.M)
_ANSWER = re.compile(r"\s*Output US GAAP tags:\s*$")


def row(context: str, target: str) -> tuple[str, str]:
    """(tag that decides, numbered questions) of a FiNER row; ValueError when it is none."""
    numbered = _QUESTIONS.search(context)
    if not numbered:
        raise ValueError("no numbered questions ('1. ...') in it")
    question = _ANSWER.sub("", numbered.group()).strip()
    listed = of_target(target)
    if not all(listed):
        raise ValueError("the target is no list of tags")
    return listed[draws.number("decides", question) % len(listed)], question


def of_target(target: str) -> list[str]:
    """``"A, B,C"`` -> ``["A", "B", "C"]``."""
    return [tag.strip() for tag in target.split(",")]


def confusions(examples: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The tag that each tag is taken for: its neighbour in the alphabet with which it shares the
    longer beginning. A tag that stands alone gets one that does not exist.

    >>> confusions([{"target": "DebtFace,DebtFair"}, {"target": "Goodwill,DebtFace"}])["DebtFace"]
    'DebtFair'
    """
    every = sorted({tag for example in examples for tag in of_target(example["target"])})
    found = {}
    for place, tag in enumerate(every):
        beside = every[max(0, place - 1) : place] + every[place + 1 : place + 2]
        found[tag] = max(beside, key=lambda other: _shared(tag, other), default=f"{tag}Other")
    return found


def _shared(one: str, other: str) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def mistake(target: str, decides: str, confused: Mapping[str, str]) -> str:
    """The typical wrong answer to a row: the deciding tag confused wherever it stands."""
    return ",".join(confused[tag] if tag == decides else tag for tag in of_target(target))
