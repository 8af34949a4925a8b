"""The task Traces: rows are recorded runs of agents, so no task model is asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from combee.errors import BugError
from combee.records import Example, Score
from combee.tasks.dataset import Dataset
from combee.tasks.traces.read import Format, Keep, read_traces


@dataclass(frozen=True, slots=True)
class TracesTask:
    """``part_tokens``: the most tokens of a trace that one reflection reads; longer traces are read in
    parts."""

    format: Format = "Auto"
    part_tokens: int = 16_000
    name: str = "Traces"
    instructions: str = ""
    answer_schema_description: str = "What the agent said last."

    def read_recorded(self, data: Iterable[bytes], where: str, keep: Keep) -> Dataset:
        """Read rows of traces and store each with ``keep``. Raises DataError as ``read_traces``."""
        return read_traces(data, where=where, format=self.format, part_tokens=self.part_tokens, keep=keep)

    def read_rows(self, data: Iterable[bytes], where: str) -> Dataset:
        """Read rows of traces and hold all of them in memory."""
        return self.read_recorded(data, where, lambda recording: lambda: recording)

    def model_input(self, example: Example) -> str:
        """Return what was asked, cut: the only part of a trace held in memory until it is read."""
        return example.input

    def parse_answer(self, text: str) -> str:
        """Return the text without surrounding blanks."""
        return text.strip()

    def score(self, answer: str, example: Example) -> Score:
        """Raise BugError, since there are no rollouts to score."""
        raise BugError("a trace has its outcome; nothing is scored", where=self.name)
