"""Which examples an entry is about: those whose question holds most of its condition's words.

A word counts by its rarity among the questions, so that the words of the task itself, which every question
has, match nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from combee.algo.text import CONDITION_SHARE, anchors, content_words

COMMON_SHARE = 0.5
"""Share of the questions that hold a word from which it says nothing about any of them."""


class Readers:
    """The examples of a batch by the words of their questions."""

    def __init__(self, questions: Mapping[str, str]) -> None:
        """``questions``: what a model reads of each example, by its id."""
        holders: dict[str, set[str]] = defaultdict(set)
        for example, question in questions.items():
            for word in content_words(question):
                holders[word].add(example)
        most = COMMON_SHARE * len(questions)
        self._holders = {word: held for word, held in holders.items() if len(held) <= most}

    def of(self, text: str) -> frozenset[str]:
        """Return the ids of the examples that an entry is about: by its condition, or where it states none by
        all its words. None where no question holds any of these words. Cost: linear in the examples found."""
        words = [word for word in anchors(text).condition or content_words(text) if word in self._holders]
        held: dict[str, float] = defaultdict(float)
        for word in words:
            for example in self._holders[word]:
                held[example] += 1 / len(self._holders[word])
        enough = CONDITION_SHARE * sum(1 / len(self._holders[word]) for word in words)
        return frozenset(example for example, weight in held.items() if weight >= enough)
