"""tau2-bench: the tasks of a domain, from a checkout of github.com/sierra-research/tau2-bench.

A domain is a folder of ``data/tau2/domains`` with ``tasks.json``, a list of tasks, and ``split_tasks.json``,
the ids of its tasks by split. A row has its whole task, since what is told of a row is its digest.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from combee.assembly.benchmarks.layout import Row, Splits, read_json, row_id, wrong

DOMAINS = Path("data", "tau2", "domains")
TASKS, SPLIT_TASKS = "tasks.json", "split_tasks.json"
FIX = "Give the folder of a checkout of tau2-bench: git clone https://github.com/sierra-research/tau2-bench"
_PARTS = ("user_scenario", "evaluation_criteria")


def read_tau2(checkout: Path, domain: str) -> Splits:
    """Return the train and test tasks of a domain. Raises DataError for another layout."""
    domains = checkout / DOMAINS
    if not domains.is_dir():
        wrong(f"there is no folder {DOMAINS} in it", checkout, FIX)
    folder = domains / domain
    having = sorted(path.parent.name for path in domains.glob(f"*/{SPLIT_TASKS}"))
    if not (folder / SPLIT_TASKS).is_file():
        wrong(
            f"the domain {domain!r} has no {SPLIT_TASKS}",
            folder,
            f"Set --domain to one of {', '.join(having)}" if having else FIX,
        )
    tasks, ids = _tasks(folder / TASKS, domain), _ids(folder)
    for name in chain.from_iterable(ids.values()):
        if name not in tasks:
            wrong(f"there is no task {name!r}, which a split names", folder / TASKS, FIX)
    return {split: [tasks[name] for name in names] for split, names in ids.items()}


def _tasks(path: Path, domain: str) -> dict[str, Row]:
    tasks = read_json(path, FIX)
    if not isinstance(tasks, list):
        wrong("it is not a list of tasks", path, FIX)
    rows: dict[str, Row] = {}
    for number, task in enumerate(tasks, 1):
        if not _is_task(task):
            wrong(f"task {number} of it has no id, or none of {' and '.join(_PARTS)}", path, FIX)
        rows[task["id"]] = {"id": row_id(task["id"]), "domain": domain, "task": task}
    return rows


def _is_task(task: Any) -> bool:
    return isinstance(task, dict) and isinstance(task.get("id"), str) and any(task.get(one) for one in _PARTS)


def _ids(folder: Path) -> dict[str, list[str]]:
    path = folder / SPLIT_TASKS
    splits = read_json(path, FIX)
    for split in ("train", "test"):
        ids = splits.get(split) if isinstance(splits, dict) else None
        if not isinstance(ids, list) or not ids or not all(isinstance(one, str) for one in ids):
            wrong(
                f"it has no list of ids as {split!r}", path, "Choose a domain with a train and a test split"
            )
    return {split: splits[split] for split in ("train", "test")}
