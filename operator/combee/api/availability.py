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


def _initial_from_playbook(spec: RunSpec) -> bool:
    return spec.task.initial_playbook is not None and spec.task.initial_playbook.active_version is True


ROWS: tuple[Row[RunSpec], ...] = (
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
    Row("spec.task.initialPlaybook.activeVersion", "", _initial_from_playbook, "Give the playbook by uri."),
)


PLAYBOOK_ROWS: tuple[Row[PlaybookSpec], ...] = (
    Row("spec.learn", "", lambda s: s.learn is not None, "Write the run as a PromptLearningRun of its own."),
    Row("spec.canary", "", lambda s: s.canary is not None, "Remove it; heldOut decides alone."),
    Row("spec.version.pinnedDigest", "", lambda s: s.version.pinned_digest is not None, "Remove it."),
    Row(
        "spec.delivery.gateway.enabled",
        "true",
        lambda s: s.delivery.gateway.enabled,
        "Remove it; mount the ConfigMap.",
    ),
)


def unavailable(spec: RunSpec) -> Iterator[Row[RunSpec]]:
    """The rows that a run's spec runs into, in the table's order."""
    return (row for row in ROWS if row.states(spec))


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
            *(_error(row, lambda p: where(at + p.removeprefix("spec"))) for row in unavailable(template)),
        ]
    return [_error(row, where) for row in unavailable(resource.spec)]


def _error(row: Row[RunSpec] | Row[PlaybookSpec], where: Callable[[str], str]) -> NotAvailableError:
    return NotAvailableError(
        f"{row.value} is not available in this version" if row.value else "not available in this version",
        where=where(row.path),
        fix=row.instead,
    )
