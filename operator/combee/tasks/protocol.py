"""What a task is: the only thing that knows what rows mean and which answers are right.

A class of your own that has these members is a task (``spec.task.custom.class``); docs/custom-tasks.md shows
one. It needs no base class. ``combee.records`` has Example and Score, ``combee.tasks.dataset`` what reads rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from combee.records import Example, Score
from combee.tasks.dataset import Dataset


class Task(Protocol):
    """Pure and stateless; one object serves any number of runs and threads."""

    @property
    def name(self) -> str:
        """The manifest's ``task.type``."""
        ...

    @property
    def instructions(self) -> str:
        """What the model is told before the playbook: the same for all examples."""
        ...

    @property
    def answer_schema_description(self) -> str:
        """What the answer field of the model's reply holds, in one sentence."""
        ...

    def read_rows(self, data: Iterable[bytes], where: str) -> Dataset:
        """Rows from lines of bytes; DataError naming ``where`` and the line for anything unfit."""
        ...

    def model_input(self, example: Example) -> str:
        """What varies between examples, to be put last in the prompt."""
        ...

    def parse_answer(self, text: str) -> str:
        """The answer inside the model's words, in one spelling. Idempotent; never raises."""
        ...

    def score(self, answer: str, example: Example) -> Score:
        """The verdict on an answer, parsed or as the model wrote it. Never raises on any answer."""
        ...
