"""What packages outside the product add to it: base methods, task types and strategies, by entry point.

A package declares the name that manifests use and what it stands for::

    [project.entry-points."combee.methods"]
    Notes = "notes:NotesMethod"

It works wherever it is installed beside the product: on a laptop, in the operator's and the worker's image.
Names are read from the packages' metadata; a package's code is imported when one of its names is first used.
What the product has itself is never replaced.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from combee.errors import ManifestError

METHODS, TASKS, STRATEGIES = "combee.methods", "combee.tasks", "combee.strategies"
"""Groups of entry points."""


def names(group: str) -> tuple[str, ...]:
    """Return the names that installed packages add to a group, sorted."""
    return tuple(sorted(_declared(group)))


def path(group: str, name: str) -> str:
    """Return ``module:name`` of what a name of a group stands for, without importing it."""
    return _declared(group)[name].value


def load(group: str, name: str) -> Any:
    """Return what a name of a group stands for.

    Raises KeyError for a name that no package declares, and ManifestError for a package that cannot be
    imported.
    """
    return _loaded(_declared(group)[name])


@cache
def _declared(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


@cache
def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    # The code is not ours, and may raise anything while it is imported.
    except Exception as error:
        raise ManifestError(
            f"{point.value} cannot be imported: {type(error).__name__}: {error}",
            where=f"entry point {point.name} of {point.group}",
            fix="Mend or remove the package that declares it",
        ) from error
