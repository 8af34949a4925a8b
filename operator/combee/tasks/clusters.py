"""Which rows belong together: each gets the cluster that a field of it names. Pure.

A cluster is known by a hash of its name only, since names may be those of customers. Clusters decide which
rows select and which gate, so that they are part of the data's digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from combee.errors import DataError
from combee.records import Example
from combee.tasks.dataset import Dataset, id_of, without
from combee.tasks.protocol import Task

_DIGITS = 16


def read_clustered(
    task: Task, field: str, lines: Iterable[bytes], where: str, forgotten: Iterable[str] = ()
) -> Dataset:
    """Return the task's rows with their clusters, ``without`` those that are forgotten. Raises DataError, as
    the task does, and for a row whose field is no text and no whole number, or which the task knows by
    another id than its own."""
    names: dict[str, str] = {}
    rows = without(task.read_rows(_named(lines, field, names), where), forgotten, where)
    lost = [example.id for example in rows.examples if example.id not in names]
    if lost:
        raise DataError(
            f"row {lost[0]} has no {field} that names its cluster (task.clusterBy), and so {len(lost)} of "
            f"{len(rows.examples)} rows",
            where=where,
            fix=f"Give each row a {field}, a text or a whole number, or remove task.clusterBy",
        )
    examples = tuple(replace(one, cluster=names[one.id]) for one in rows.examples)
    return replace(rows, examples=examples, digest=_digest(rows.digest, examples))


def clusters_of(rows: Dataset) -> dict[str, str]:
    """Return the cluster of each example that has one, by its id."""
    return {example.id: example.cluster for example in rows.examples if example.cluster}


def _digest(of_rows: str, examples: Iterable[Example]) -> str:
    """Return the digest of rows, ``of_rows``, with that of which cluster each belongs to."""
    pairs = sorted((one.id, one.cluster) for one in examples)
    return hashlib.sha256(json.dumps([of_rows, pairs]).encode("ascii")).hexdigest()


def _named(lines: Iterable[bytes], field: str, names: dict[str, str]) -> Iterator[bytes]:
    """Pass the lines on and note the cluster of each row. A line that cannot be read is for the task to
    refuse."""
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        name = row.get(field) if isinstance(row, Mapping) else None
        if isinstance(name, str | int) and not isinstance(name, bool) and str(name).strip():
            given = row.get("id")
            example = str(number) if given is None else id_of(given)
            names[example] = hashlib.sha256(str(name).encode("utf-8", "replace")).hexdigest()[:_DIGITS]
        yield line
