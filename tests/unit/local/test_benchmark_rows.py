"""Public benchmarks' layouts as rows: which tasks, in which split, and what is said of another layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from combee.assembly.benchmarks.appworld import read_appworld
from combee.assembly.benchmarks.layout import Splits, row_id, with_held_out, write_rows
from combee.assembly.benchmarks.tau2 import read_tau2
from combee.errors import DataError, UserError
from combee.tasks.container import ContainerTask


def tau2_domain(checkout: Path, name: str = "shop", **changes: Any) -> Path:
    """A domain of tau2-bench with three tasks, whose files ``changes`` replace."""
    folder = checkout / "data" / "tau2" / "domains" / name
    folder.mkdir(parents=True)
    tasks = [{"id": one, "user_scenario": {"instructions": one}, "initial_state": None} for one in "abc"]
    files = {"tasks": tasks, "split_tasks": {"train": ["b", "a"], "test": ["c"], "base": ["a", "b", "c"]}}
    for file, content in (files | changes).items():
        (folder / f"{file}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def test_tau2_has_the_tasks_that_its_splits_name(tmp_path: Path) -> None:
    tau2_domain(tmp_path)
    splits = read_tau2(tmp_path, "shop")
    assert {split: [row["id"] for row in rows] for split, rows in splits.items()} == {
        "train": ["b", "a"],
        "test": ["c"],
    }
    assert splits["test"][0]["domain"] == "shop" and splits["test"][0]["task"]["id"] == "c"


TASK = {"id": "a", "user_scenario": {"instructions": "a"}}
WRONG_TAU2: dict[str, tuple[dict[str, Any], str]] = {
    "tasks are no JSON": ({"tasks": "{"}, "tasks.json: it is not valid JSON. Give the folder of a checkout"),
    "tasks are no list": ({"tasks": {}}, "tasks.json: it is not a list of tasks"),
    "a task is another thing": (
        {"tasks": [TASK, {"id": "b"}]},
        "task 2 of it has no id, or none of user_scen",
    ),
    "a split names no task": ({"tasks": [TASK]}, "tasks.json: there is no task 'b', which a split names"),
    "no train": ({"split_tasks": {"test": ["c"]}}, "no list of ids as 'train'. Choose a domain with a train"),
    "no test": ({"split_tasks": {"train": ["a"], "test": []}}, "no list of ids as 'test'"),
    "splits are a list": ({"split_tasks": ["a"]}, "no list of ids as 'train'"),
}


@pytest.mark.parametrize(("changes", "says"), WRONG_TAU2.values(), ids=WRONG_TAU2)
def test_another_layout_than_tau2s_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    tau2_domain(tmp_path, **changes)
    with pytest.raises(DataError) as caught:
        read_tau2(tmp_path, "shop")
    assert says in str(caught.value)


def test_a_folder_that_is_no_checkout_and_a_domain_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no folder data/tau2/domains in it. Give the folder of a checkout"):
        read_tau2(tmp_path, "shop")
    tau2_domain(tmp_path)
    with pytest.raises(DataError, match=r"'bank' has no split_tasks.json. Set --domain to one of shop"):
        read_tau2(tmp_path, "bank")
    (tmp_path / "data/tau2/domains/shop/tasks.json").unlink()
    with pytest.raises(DataError, match=r"cannot be read \(No such file or directory\). Give the folder"):
        read_tau2(tmp_path, "shop")


def numbered(count: int) -> Splits:
    return {"train": [{"id": str(n)} for n in range(count)]}


@pytest.mark.parametrize(("count", "held_out"), [(None, 10), (4, 4), (19, 19)])
def test_the_same_rows_are_held_out_each_time(count: int | None, held_out: int) -> None:
    splits, again = with_held_out(numbered(20), count), with_held_out(numbered(20), count)
    assert splits == again and len(splits["heldOut"]) == held_out
    ids = {split: {str(row["id"]) for row in rows} for split, rows in splits.items()}
    assert ids["train"] | ids["heldOut"] == set(map(str, range(20))) and not ids["train"] & ids["heldOut"]


def test_a_split_of_ones_own_stays() -> None:
    own: Splits = {**numbered(4), "heldOut": [{"id": "x"}]}
    assert with_held_out(own, 2) == own


@pytest.mark.parametrize("count", [0, 4, 9])
def test_so_many_rows_cannot_be_held_out(count: int) -> None:
    with pytest.raises(
        UserError, match=rf"{count} of 4 rows of train cannot be held out. Give a number from"
    ):
        with_held_out(numbered(4), count)


def test_what_is_written_is_what_a_run_reads(tmp_path: Path) -> None:
    tau2_domain(tmp_path)
    counts = write_rows(with_held_out(read_tau2(tmp_path, "shop"), None), tmp_path / "rows")
    assert counts == {"train": 1, "test": 1, "heldOut": 1}
    for name in ("train", "heldout", "test"):
        with (tmp_path / "rows" / f"{name}.jsonl").open("rb") as lines:
            assert len(ContainerTask().read_rows(lines, name).examples) == 1


LONG = "[mms_issue]" + "x" * 200
NAMES: list[tuple[str, Callable[[str], bool]]] = [
    ("retail-1", lambda made: made == "retail-1"),
    (LONG, lambda made: len(made) == 16 and made != row_id(LONG + "x")),
    ("two words", lambda made: len(made) == 16),
    ("", lambda made: len(made) == 16),
]


@pytest.mark.parametrize(("name", "holds"), NAMES)
def test_an_id_is_a_word(name: str, holds: Callable[[str], bool]) -> None:
    assert holds(row_id(name))


def test_a_row_that_no_run_takes_and_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"big: the row is longer than 1,048,576 bytes. Leave this task out"):
        write_rows({"train": [{"id": "big", "text": "x" * 2_000_000}]}, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_rows(numbered(2), tmp_path / "file")


def appworld_root(root: Path, **changes: str) -> None:
    """What AppWorld downloads, a task a dataset; ``changes`` are other texts of its files."""
    for dataset, task in (("train", "a1_1"), ("dev", "b1_1"), ("test_normal", "c1_1")):
        specs = root / "data" / "tasks" / task / "specs.json"
        specs.parent.mkdir(parents=True)
        specs.write_text(changes.get("specs", json.dumps({"instruction": f"do {task}"})))
        (root / "data" / "datasets").mkdir(exist_ok=True)
        (root / "data" / "datasets" / f"{dataset}.txt").write_text(changes.get(dataset, f"{task}\n"))


def test_appworld_has_dev_as_heldout_and_a_test_of_ones_choice(tmp_path: Path) -> None:
    appworld_root(tmp_path)
    assert read_appworld(tmp_path, "test_normal") == {
        "train": [{"id": "a1_1", "scenario": "a1", "instruction": "do a1_1"}],
        "heldOut": [{"id": "b1_1", "scenario": "b1", "instruction": "do b1_1"}],
        "test": [{"id": "c1_1", "scenario": "c1", "instruction": "do c1_1"}],
    }
    with pytest.raises(DataError, match=r"test_challenge.txt: the file cannot be read .*appworld download"):
        read_appworld(tmp_path, "test_challenge")


WRONG_APPWORLD = {
    "no task": ({"train": "\n"}, "train.txt: it lists no task. Give the folder that AppWorld downloads to"),
    "another id": ({"dev": "b1"}, "dev.txt: 'b1' is no id of a task, such as 82e2fac_1"),
    "a task that is not there": ({"dev": "b9_1"}, "b9_1/specs.json: the file cannot be read"),
    "no instruction": ({"specs": "{}"}, "a1_1/specs.json: it has no instruction"),
    "no JSON": ({"specs": ""}, "a1_1/specs.json: it is not valid JSON"),
}


@pytest.mark.parametrize(("changes", "says"), WRONG_APPWORLD.values(), ids=WRONG_APPWORLD)
def test_another_layout_than_appworlds_is_refused(tmp_path: Path, changes: dict[str, str], says: str) -> None:
    appworld_root(tmp_path, **changes)
    with pytest.raises(DataError) as caught:
        read_appworld(tmp_path, "test_normal")
    assert says in str(caught.value)


def test_a_folder_that_appworld_did_not_fill(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no folder data/datasets in it. Give the folder that AppWorld"):
        read_appworld(tmp_path, "test_normal")
