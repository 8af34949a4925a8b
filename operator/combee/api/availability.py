"""Documented fields and values whose part is not built in this version, in one table.

A row speaks about what a manifest *states*; a default never makes a manifest refused. Rows go away
as parts arrive; the fields themselves stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from combee.api.playbook import Playbook, PlaybookSpec
from combee.api.run import PromptLearningRun, RunSpec
from combee.errors import NotAvailableError

SpecT = TypeVar("SpecT")


@dataclass(frozen=True, slots=True)
class Row(Generic[SpecT]):
    """One thing that is not built: where it stands, when a spec states it, what to do meanwhile."""

    path: str
    value: str
    states: Callable[[SpecT], bool]
    instead: str


ROWS: tuple[Row[RunSpec], ...] = (
    Row("spec.serialBaseline", "", lambda s: s.serial_baseline is not None, "Remove it."),
    Row(
        "spec.models.evaluator",
        "",
        lambda s: s.models.evaluator is not None,
        "Remove it: each task scores its answers itself.",
    ),
)

CLUSTER_ROWS: tuple[Row[RunSpec], ...] = ()
"""what is built for a laptop alone"""


PLAYBOOK_ROWS: tuple[Row[PlaybookSpec], ...] = ()


def unavailable(spec: RunSpec) -> Iterator[Row[RunSpec]]:
    """The rows that a run's spec runs into, in the table's order."""
    return (row for row in ROWS if row.states(spec))


def on_a_cluster(spec: RunSpec) -> Iterator[Row[RunSpec]]:
    """The rows that a run's spec runs into on a cluster."""
    return (row for row in (*ROWS, *CLUSTER_ROWS) if row.states(spec))


def not_available_on_a_cluster(run: PromptLearningRun) -> list[NotAvailableError]:
    """An error for each row that only a cluster's run runs into."""
    return [_error(row, lambda path: path) for row in CLUSTER_ROWS if row.states(run.spec)]


def not_available(
    resource: PromptLearningRun | Playbook, where: Callable[[str], str]
) -> list[NotAvailableError]:
    """An error for each row that the run or Playbook runs into; ``where`` words its path."""
    if isinstance(resource, Playbook):
        found = [_error(row, where) for row in PLAYBOOK_ROWS if row.states(resource.spec)]
        if resource.spec.learn is None:
            return found
        template = resource.spec.learn.template
        at = "spec.learn.template"
        return [
            *found,
            *(_error(row, lambda p: where(at + p.removeprefix("spec"))) for row in on_a_cluster(template)),
        ]
    return [_error(row, where) for row in unavailable(resource.spec)]


def _error(row: Row[RunSpec] | Row[PlaybookSpec], where: Callable[[str], str]) -> NotAvailableError:
    return NotAvailableError(
        _what(row.value),
        where=where(row.path),
        fix=row.instead,
    )


def _what(value: str) -> str:
    """``value``: what is not available, or where it is not; empty: the field itself."""
    missing = "not available in this version"
    return f"{missing} {value}" if value.startswith("on ") else f"{value} is {missing}" if value else missing
