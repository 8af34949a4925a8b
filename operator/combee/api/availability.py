"""Documented fields whose part is not built in this version, in one table.

A row speaks about what a manifest *states*; a default never makes a manifest refused. Rows go away
as parts arrive; the fields themselves stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from combee.api.playbook import Playbook
from combee.api.run import PromptLearningRun, RunSpec
from combee.errors import NotAvailableError


@dataclass(frozen=True, slots=True)
class Row:
    """A field of a run that is not built: where it stands, when a spec states it, what to do meanwhile."""

    path: str
    states: Callable[[RunSpec], bool]
    instead: str


ROWS: tuple[Row, ...] = ()


def not_available(
    resource: PromptLearningRun | Playbook, where: Callable[[str], str]
) -> list[NotAvailableError]:
    """Return an error for each row that a run, or a Playbook's template, meets; ``where`` words its path."""
    if isinstance(resource, PromptLearningRun):
        spec, at = resource.spec, "spec"
    elif resource.spec.learn is not None:
        spec, at = resource.spec.learn.template, "spec.learn.template"
    else:
        return []
    return [
        NotAvailableError(
            "not available in this version", where=where(row.path.replace("spec", at, 1)), fix=row.instead
        )
        for row in ROWS
        if row.states(spec)
    ]
