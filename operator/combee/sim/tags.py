"""FiNER: rows of several XBRL tags, and how they map to rules that are one tag each.

The mechanism knows one rule per question. A row asks for the tags of several entities (four in the data), so
its rule is that of **one** of its tags: the one at the position given by the hash of the question. Each
position is as likely as the others, so over the rows tags are asked about as often as they occur in the data,
which is the distribution that the law was fitted with. The row is right exactly when the draw of that rule is
right. When it is not, each place of that tag holds the tag it is typically confused with, and the other
places are right: partial credit is then three of four or less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from combee.sim import draws

_QUESTIONS = re.compile(r"^\s*1\. .*", re.S | re.M)
_ANSWER = re.compile(r"\s*Output US GAAP tags:\s*$")
MOST_WORDS = 4
"""Most words with which a rule says what the other tag is about."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def row(context: str, target: str) -> tuple[str, str]:
    """Return (tag that decides, numbered questions) of a FiNER row. Raises ValueError for another row."""
    numbered = _QUESTIONS.search(context)
    if not numbered:
        raise ValueError("no numbered questions ('1. ...') in it")
    question = _ANSWER.sub("", numbered.group()).strip()
    target_tags = of_target(target)
    if not all(target_tags):
        raise ValueError("the target is no list of tags")
    return target_tags[draws.number("decides", question) % len(target_tags)], question


def of_target(target: str) -> list[str]:
    """Return the tags of a target: ``"A, B,C"`` -> ``["A", "B", "C"]``."""
    return [tag.strip() for tag in target.split(",")]


def confusions(examples: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the tag that each tag is confused with: its alphabetical neighbour with the longer common
    beginning. A tag without neighbours gets one that does not exist.

    >>> confusions([{"target": "DebtFace,DebtFair"}, {"target": "Goodwill,DebtFace"}])["DebtFace"]
    'DebtFair'
    """
    all_tags = sorted({tag for example in examples for tag in of_target(example["target"])})
    confused = {}
    for index, tag in enumerate(all_tags):
        neighbours = all_tags[max(0, index - 1) : index] + all_tags[index + 1 : index + 2]
        confused[tag] = max(neighbours, key=lambda other: _shared(tag, other), default=f"{tag}Other")
    return confused


def words(tag: str) -> list[str]:
    """Return the words that a tag is made of.

    >>> words("ConcentrationRiskPercentage1")
    ['concentration', 'risk', 'percentage']
    """
    return [word.lower() for word in _WORD.findall(tag)]


def rules(topics: Iterable[str], confused: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the rule of each tag in words: its own tag is right, the one that it is confused with is wrong.

    >>> rules(["DebtFace"], {"DebtFace": "DebtFairValue"})["DebtFace"]["right"]
    'answer with "DebtFace" rather than the fair value'
    """
    return {tag: _rule(tag, confused[tag]) for tag in topics}


def _rule(tag: str, other: str) -> dict[str, str]:
    own, others = words(tag), words(other)
    pairs = enumerate(zip(own, others, strict=False))
    start = next((i for i, (a, b) in pairs if a != b), min(len(own), len(others)))
    rest = " ".join(others[start:])
    close = start > 0 and 0 < len(others) - start <= MOST_WORDS
    return {
        "name": f"the {' '.join(own)}",
        "right": f'answer with "{_shown(tag)}" ' + (f"rather than the {rest}" if close else "itself"),
        "wrong": f'answer with "{_shown(other)}" in place of the {" ".join(own[start:] or own)}',
    }


def _shown(tag: str) -> str:
    """Return a tag as rules show it: of a single word, which texts about its topic hold anyway, as a tag."""
    return tag if len(words(tag)) > 1 else f"tag {tag}"


def _shared(tag: str, other: str) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(tag, other, strict=False)) if a != b), min(len(tag), len(other))
    )


def mistake(target: str, decides: str, confused: Mapping[str, str]) -> str:
    """Return the typical wrong answer to a row: the deciding tag is confused wherever it stands."""
    return ",".join(confused[tag] if tag == decides else tag for tag in of_target(target))
