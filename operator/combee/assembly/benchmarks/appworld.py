"""AppWorld: the tasks that its own download puts into a folder (``appworld download data --root ROOT``).

``data/datasets/train.txt`` lists ids of tasks, and ``data/tasks/ID/specs.json`` has a task. An id is that of
a scenario and a number (``82e2fac_1``): the tasks of a scenario are alike, and are clustered by it.
"""

from __future__ import annotations

from pathlib import Path

from combee.assembly.benchmarks.layout import Row, Splits, read_json, read_text, wrong

DATASETS, TASKS, SPECS = Path("data", "datasets"), Path("data", "tasks"), "specs.json"
FIX = "Give the folder that AppWorld downloads to: appworld download data --root ROOT"
SPLITS = {"train": "train", "heldOut": "dev"}


def read_appworld(root: Path, dataset: str) -> Splits:
    """Return the tasks of train, of dev as heldOut, and of ``dataset`` to test with. Raises DataError for
    another layout."""
    if not (root / DATASETS).is_dir():
        wrong(f"there is no folder {DATASETS} in it", root, FIX)
    return {split: _rows(root, name) for split, name in {**SPLITS, "test": dataset}.items()}


def _rows(root: Path, dataset: str) -> list[Row]:
    path = root / DATASETS / f"{dataset}.txt"
    ids = read_text(path, FIX).split()
    if not ids:
        wrong("it lists no task", path, FIX)
    return [_row(root, task, path) for task in ids]


def _row(root: Path, task: str, named: Path) -> Row:
    scenario, _, number = task.rpartition("_")
    if not scenario or not number.isdecimal():
        wrong(f"{task!r} is no id of a task, such as 82e2fac_1", named, FIX)
    path = root / TASKS / task / SPECS
    specs = read_json(path, FIX)
    instruction = specs.get("instruction") if isinstance(specs, dict) else None
    if not isinstance(instruction, str) or not instruction:
        wrong("it has no instruction", path, FIX)
    return {"id": task, "scenario": scenario, "instruction": instruction}
