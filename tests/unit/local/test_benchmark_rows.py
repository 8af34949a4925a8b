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
from combee.assembly.benchmarks.terminal_bench import digest_of, read_terminal_bench
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


TOML = '[environment]\ndocker_image = "team/a:1"\ncpus = 2\nmemory_mb = 4096\n[agent]\ntimeout_sec = 900.0\n'
FOLDER: dict[str, str | None] = {
    "task.toml": TOML,
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM scratch\n",
    "tests/test.sh": "#!/bin/sh\n",
    "tests/deep/test_it.py": "assert True\n",
}


def harbor_task(checkout: Path, name: str = "a", **changes: str | None) -> Path:
    """A task in Harbor's layout, whose files ``changes`` replace; None leaves one out."""
    for file, content in (FOLDER | {key.replace("__", "."): value for key, value in changes.items()}).items():
        if content is not None:
            (checkout / name / file).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name / file).write_text(content)
    return checkout / name


@pytest.mark.parametrize("below", [".", "tasks"])
def test_terminal_bench_has_a_row_for_each_folder(tmp_path: Path, below: str) -> None:
    harbor_task(tmp_path / below, "b")
    task = harbor_task(tmp_path / below)
    (tmp_path / below / "notes").mkdir()
    splits = read_terminal_bench(tmp_path)
    assert list(splits) == ["train"] and [row["id"] for row in splits["train"]] == ["a", "b"]
    assert splits["train"][0] == {
        "id": "a",
        "task": "a",
        "instruction": "Do it.",
        "image": "team/a:1",
        "cpus": 2,
        "memoryMb": 4096,
        "agentSeconds": 900,
        "verifierSeconds": 600,
        "workdir": "",
        "testsDigest": digest_of(task / "tests"),
    }
    assert [row["id"] for row in read_terminal_bench(tmp_path, leave_out=["a"])["train"]] == ["b"]


def test_a_digest_tells_names_and_contents_of_tests(tmp_path: Path) -> None:
    contents = [
        {"x": "1", "y": "2"},
        {"x": "2", "y": "1"},
        {"x1": "", "y": "2"},
        {"x": "1y2"},
        {"d/x": "1", "y": "2"},
    ]
    digests = set()
    for number, files in enumerate(contents):
        for name, content in files.items():
            (tmp_path / str(number) / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / str(number) / name).write_text(content)
        digests.add(digest_of(tmp_path / str(number)))
    assert len(digests) == len(contents)


def test_what_a_task_does_not_say(tmp_path: Path) -> None:
    harbor_task(
        tmp_path, "old", task__toml='[environment]\nmemory = "2G"\nworkdir = "/app"\ngpus = 0\nenv = {}\n'
    )
    harbor_task(tmp_path, "bare", task__toml="")
    bare, old = read_terminal_bench(tmp_path, "registry.example.com/tb/")["train"]
    assert (bare["image"], old["image"]) == ("registry.example.com/tb/bare", "registry.example.com/tb/old")
    assert (bare["memoryMb"], bare["cpus"], bare["agentSeconds"], bare["workdir"]) == (2048, 1, 600, "")
    assert (old["memoryMb"], old["workdir"]) == (2048, "/app")


WRONG_HARBOR: dict[str, tuple[dict[str, str | None], str]] = {
    "no TOML": (
        {"task__toml": "["},
        "a/task.toml: it is not valid TOML. Give a folder whose folders are tasks",
    ),
    "no table": ({"task__toml": "agent = 1"}, "a/task.toml: [agent] is no table"),
    "no image": (
        {"task__toml": ""},
        "names no docker_image. Build its environment/, push it as PREFIXa, and set --image-prefix PREFIX",
    ),
    "no instruction": ({"instruction.md": None}, "a/instruction.md: the file cannot be read"),
    "an empty instruction": ({"instruction.md": " \n"}, "a/instruction.md: it is empty"),
    "no tests": ({"tests/test.sh": None}, "a: there is no tests/test.sh in it"),
    "no number": ({"task__toml": f"{TOML.replace('900.0', 'true')}"}, "timeout_sec is no number above 0"),
    "no time": ({"task__toml": f"{TOML.replace('900.0', '0')}"}, "timeout_sec is no number above 0"),
    "no amount": ({"task__toml": TOML.replace("memory_mb = 4096", 'memory = "two"')}, "no amount such as 2G"),
    "steps": (
        {"task__toml": f"{TOML}[[steps]]\nname = 'x'\n"},
        "it has several steps, which is not played here. Leave the task out with --leave-out a, or",
    ),
    "a GPU": ({"task__toml": TOML.replace("cpus = 2", "gpus = 1")}, "it needs a GPU"),
    "Windows": ({"task__toml": TOML.replace("cpus = 2", "os = 'Windows'")}, "it is not of Linux"),
    "tests apart": ({"task__toml": f"{TOML}[verifier.environment]\ncpus = 1\n"}, "environment of their own"),
    "containers": (
        {"environment/docker-compose.yaml": "services: {}"},
        "environment is of several containers",
    ),
}


@pytest.mark.parametrize(("changes", "says"), WRONG_HARBOR.values(), ids=WRONG_HARBOR)
def test_another_layout_than_harbors_is_refused(
    tmp_path: Path, changes: dict[str, str | None], says: str
) -> None:
    harbor_task(tmp_path, **changes)
    with pytest.raises(DataError) as caught:
        read_terminal_bench(tmp_path)
    assert says in str(caught.value)


def test_a_folder_without_tasks_and_a_task_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no folder with a task.toml in it. Give a folder whose folders"):
        read_terminal_bench(tmp_path)
    harbor_task(tmp_path)
    with pytest.raises(DataError, match=r"no task 'b' to leave out. Set --leave-out to a task's folder"):
        read_terminal_bench(tmp_path, leave_out=["b"])
    with pytest.raises(DataError, match="every task of it is left out"):
        read_terminal_bench(tmp_path, leave_out=["a"])
