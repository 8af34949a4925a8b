"""What a task is: the only part that knows what rows mean and which answers are right.

Any class with these members is a task (``spec.task.custom.class``); docs/custom-tasks.md shows one. It needs
no base class. ``combee.records`` has Example and Score, and ``combee.tasks.dataset`` reads rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol

from combee.errors import BugError
from combee.records import Example, Score
from combee.tasks.dataset import Dataset, read_jsonl


class Task(Protocol):
    """Pure and stateless; one object serves any number of runs and threads."""

    @property
    def name(self) -> str:
        """The manifest's ``task.type``."""
        ...

    @property
    def instructions(self) -> str:
        """The text before the playbook in every prompt, the same for all examples."""
        ...

    @property
    def answer_schema_description(self) -> str:
        """One sentence on what the answer field of the model's reply holds."""
        ...

    def read_rows(self, data: Iterable[bytes], where: str) -> Dataset:
        """Return the examples in lines of bytes. Raises DataError with ``where`` and the line for an unfit
        row."""
        ...

    def model_input(self, example: Example) -> str:
        """Return the part of the prompt that varies between examples; it is put last."""
        ...

    def parse_answer(self, text: str) -> str:
        """Return the answer inside the model's reply, in one spelling. Idempotent; never raises."""
        ...

    def score(self, answer: str, example: Example) -> Score:
        """Return the verdict on an answer, parsed or as the model wrote it. Never raises on any answer."""
        ...


class ContextTask:
    """What tasks of rows ``{"context", "target"}`` have in common."""

    __slots__ = ()

    def read_rows(self, data: Iterable[bytes], where: str) -> Dataset:
        """Read rows as the protocol says; a target that cannot be scored is a DataError."""
        return read_jsonl(data, where=where, unfit=self.unfit_target)

    def unfit_target(self, target: str) -> str | None:
        """Return what is wrong with a target that cannot be scored, or None."""
        raise NotImplementedError

    def model_input(self, example: Example) -> str:
        """Return the row's context unchanged."""
        return example.input


class ScoredElsewhere:
    """What tasks have in common whose rollouts or traces come with their score."""

    __slots__ = ()
    name: str
    unscored: ClassVar[str]
    """why there is nothing to score."""

    def model_input(self, example: Example) -> str:
        """Return the row, or what was asked in a trace."""
        return example.input

    def parse_answer(self, text: str) -> str:
        """Return the text without surrounding blanks."""
        return text.strip()

    def score(self, answer: str, example: Example) -> Score:
        """Raise BugError: nothing asks for it."""
        raise BugError(self.unscored, where=self.name)
