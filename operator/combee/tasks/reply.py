"""Reply: messages that are answered in free text, whose answers no program can score.

Rows are ``{"context"}``. A target is only for metrics that compare with it. Rows may hold an ``answer`` of
another time and its ``label``, a person's score: with metric rubric the evaluator is calibrated on these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from combee.tasks.dataset import Dataset, read_jsonl
from combee.tasks.protocol import ScoredElsewhere

MAX_ANSWER = 16_000
"""most characters kept of a reply."""


@dataclass(frozen=True, slots=True)
class ReplyTask(ScoredElsewhere):
    """Rows ``{"context"}``; an answer is the reply as it was written."""

    name: str = "Reply"
    instructions: str = (
        "You answer messages to a service desk. Answer what was asked, by the desk's own rules where you "
        "know them, "
        "briefly and politely, and promise nothing that you do not know."
    )
    answer_schema_description: str = "The reply as it is sent, and nothing else."
    unscored: ClassVar[str] = "a reply has no score of its own"

    def read_rows(self, data: Iterable[bytes], where: str) -> Dataset:
        """Read rows as the protocol says, with their labels."""
        return read_jsonl(data, where=where, with_labels=True)

    def parse_answer(self, text: str) -> str:
        """Return the reply without surrounding blanks, cut at MAX_ANSWER."""
        return text.strip()[:MAX_ANSWER].rstrip()
