"""The task Traces: rows are recorded runs of agents, so no task model is asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from combee.tasks.dataset import Dataset
from combee.tasks.protocol import ScoredElsewhere
from combee.tasks.traces.read import Format, Keep, read_traces


@dataclass(frozen=True, slots=True)
class TracesTask(ScoredElsewhere):
    """``part_tokens``: the most tokens of a trace that one reflection reads; longer traces are read in
    parts."""

    format: Format = "Auto"
    part_tokens: int = 16_000
    name: str = "Traces"
    instructions: str = ""
    answer_schema_description: str = "What the agent said last."
    unscored: ClassVar[str] = "a trace has its outcome; nothing is scored"

    def read_recorded(self, data: Iterable[bytes], where: str, keep: Keep) -> Dataset:
        """Read rows of traces and store each with ``keep``. Raises DataError as ``read_traces``."""
        return read_traces(data, where=where, format=self.format, part_tokens=self.part_tokens, keep=keep)

    def read_rows(self, data: Iterable[bytes], where: str) -> Dataset:
        """Read rows of traces and hold all of them in memory."""
        return self.read_recorded(data, where, lambda recording: lambda: recording)
