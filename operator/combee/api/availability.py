"""Documented fields and values whose part is not built in this version, in one table.

A row speaks about what a manifest *states*; a default never makes a manifest refused. Rows go away
as parts arrive; the fields themselves stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from combee.api.run import PromptLearningRun, RunSpec
from combee.errors import NotAvailableError

UNAVAILABLE_KINDS = ("Playbook", "PlaybookVersion")


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is not built: where it stands, when a spec states it, what to do meanwhile."""

    path: str
    value: str
    states: Callable[[RunSpec], bool]
    instead: str


def _initial_from_playbook(spec: RunSpec) -> bool:
    return spec.task.initial_playbook is not None and spec.task.initial_playbook.active_version is True


ROWS: tuple[Row, ...] = (
    Row("spec.method.type", "GEPA", lambda s: s.method.type == "GEPA", "Use ACE."),
    Row("spec.task.type", "Traces", lambda s: s.task.type == "Traces", "Use Formula or FiNER."),
    Row("spec.task.type", "Custom", lambda s: s.task.type == "Custom", "Use Formula or FiNER."),
    Row(
        "spec.aggregation.strategy",
        "TopK",
        lambda s: s.aggregation.strategy == "TopK",
        "Use ParallelScan, Naive or Sequential.",
    ),
    Row(
        "spec.aggregation.strategy",
        "Summarize",
        lambda s: s.aggregation.strategy == "Summarize",
        "Use ParallelScan, Naive or Sequential.",
    ),
    Row(
        "spec.models.embedder", "", lambda s: s.models.embedder is not None, "Remove it; only TopK needs it."
    ),
    Row("spec.serialBaseline", "", lambda s: s.serial_baseline is not None, "Remove it."),
    Row("spec.queue", "", lambda s: s.queue is not None, "Remove it."),
    Row("spec.task.initialPlaybook.activeVersion", "", _initial_from_playbook, "Give the playbook by uri."),
)


def unavailable(spec: RunSpec) -> Iterator[Row]:
    """The rows that a spec runs into, in the table's order."""
    return (row for row in ROWS if row.states(spec))


def not_available(run: PromptLearningRun, where: Callable[[str], str]) -> list[NotAvailableError]:
    """An error for each row that the run runs into; ``where`` words its path."""
    return [
        NotAvailableError(
            f"{row.value} is not available in this version" if row.value else "not available in this version",
            where=where(row.path),
            fix=row.instead,
        )
        for row in unavailable(run.spec)
    ]


def refuse_kind(kind: str, where: str) -> NotAvailableError:
    """The error for a documented kind of object whose part is not built."""
    return NotAvailableError(
        f"kind {kind} is not available in this version",
        where=where,
        fix="Keep only PromptLearningRun objects in this file.",
    )
