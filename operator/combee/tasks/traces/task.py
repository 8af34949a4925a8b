"""The task Traces: rows are what agents did already, so nothing is asked of a task model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from combee.errors import BugError
from combee.records import Example, Score
from combee.tasks.dataset import Dataset
from combee.tasks.traces.read import Format, Keep, read_traces


@dataclass(frozen=True, slots=True)
class TracesTask:
    """``part_tokens``: tokens of a trace that one reflection reads; longer ones are read in parts."""

    format: Format = "Auto"
    part_tokens: int = 16_000
    name: str = "Traces"
    instructions: str = ""
    answer_schema_description: str = "What the agent said last."

    def read_recorded(self, data: Iterable[bytes], where: str, keep: Keep) -> Dataset:
        """Rows of traces, each kept by ``keep``; DataError as ``read_traces`` says."""
        return read_traces(data, where=where, format=self.format, part_tokens=self.part_tokens, keep=keep)

    def read_rows(self, data: Iterable[bytes], where: str) -> Dataset:
        """The same with all of it in memory."""
        return self.read_recorded(data, where, lambda kept: lambda: kept)

    def model_input(self, example: Example) -> str:
        """What was asked, cut: all that is held of a trace until it is its turn."""
        return example.input

    def parse_answer(self, text: str) -> str:
        """The text without blanks around it."""
        return text.strip()

    def score(self, answer: str, example: Example) -> Score:
        """BugError: there are no rollouts to score."""
        raise BugError("a trace has its outcome; nothing is scored", where=self.name)
