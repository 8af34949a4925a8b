"""How test files are divided among workers: each is taken once, lanes are kept, the longest go first."""

from __future__ import annotations

import doctest
import json
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import balance
from balance import CLUSTER, NOTHING_KNOWN, Lane, expected, next_file, renewed

TESTS = Path(__file__).parents[1]
names = st.builds(
    "{}/test_{}.py".format, st.sampled_from(["tests/unit/a", "tests/e2e", "tests/cluster"]), st.integers(0, 9)
)
files = st.lists(names, unique=True)
records = st.dictionaries(names, st.floats(0, 1e4))


lanes = st.sampled_from([Lane(cluster, alone) for cluster in (True, False) for alone in (True, False)])


def drained(waiting: list[str], order: list[Lane], seconds: dict[str, float], alone: set[str]) -> list[str]:
    """The files in the order in which workers of these lanes take them, until files or workers run
    out; none is at work when the next one is taken."""
    left, taken = list(waiting), []
    for lane in order[: len(waiting)]:
        file = next_file(left, lane, seconds, alone, at_work=())
        if file is not None:
            taken.append(file)
            left.remove(file)
    return taken


@given(files, st.lists(lanes, min_size=30, max_size=30), records, st.sets(names))
def test_every_file_is_taken_once_in_whatever_order_workers_ask(
    waiting: list[str], order: list[Lane], seconds: dict[str, float], alone: set[str]
) -> None:
    whoever_comes = drained(waiting, order, seconds, alone)
    assert len(whoever_comes) == len(set(whoever_comes))
    left = [file for file in waiting if file not in whoever_comes]
    the_first_worker = drained(left, [Lane(cluster=True, alone=True)] * len(left), seconds, alone)
    assert sorted(whoever_comes + the_first_worker) == sorted(waiting)


@given(files, st.booleans(), records)
def test_a_worker_takes_the_longest_of_its_lane_and_helps_when_that_is_empty(
    waiting: list[str], cluster_first: bool, seconds: dict[str, float]
) -> None:
    order = drained(waiting, [Lane(cluster_first, alone=False)] * len(waiting), seconds, set())
    cluster = [file.startswith(CLUSTER) for file in order]
    assert cluster == sorted(cluster, reverse=cluster_first)
    for of_the_cluster in (True, False):
        took = [expected(file, seconds) for file in order if file.startswith(CLUSTER) is of_the_cluster]
        assert took == sorted(took, reverse=True)


@given(files, st.booleans(), records, st.sets(names))
def test_one_worker_takes_what_wants_the_cluster_alone_before_all_else(
    waiting: list[str], cluster_first: bool, seconds: dict[str, float], alone: set[str]
) -> None:
    order = drained(waiting, [Lane(cluster_first, alone=True)] * len(waiting), seconds, alone)
    keeps_others_away = [file in alone for file in order]
    assert keeps_others_away == sorted(keeps_others_away, reverse=True)


@given(files, st.booleans(), records, names, st.booleans())
def test_no_other_worker_goes_to_the_cluster_until_those_that_want_it_alone_are_over(
    waiting: list[str], cluster_first: bool, seconds: dict[str, float], one: str, is_at_work: bool
) -> None:
    if not is_at_work:
        waiting = [one, *(file for file in waiting if file != one)]
    file = next_file(waiting, Lane(cluster_first, False), seconds, {one}, at_work=[one] if is_at_work else [])
    elsewhere = [file for file in waiting if not file.startswith(CLUSTER)]
    assert file in elsewhere if elsewhere else file is None


def test_the_examples_of_the_docstrings_are_true() -> None:
    assert doctest.testmod(balance).failed == 0


def test_a_new_file_counts_like_the_middle_one_of_its_folder() -> None:
    seconds = {"tests/e2e/test_a.py": 1.0, "tests/e2e/test_b.py": 5.0, "tests/e2e/test_c.py": 90.0}
    assert expected("tests/e2e/test_new.py", seconds) == 5.0
    assert expected("tests/unit/algo/test_new.py", seconds) == NOTHING_KNOWN


def test_the_record_forgets_files_that_are_gone_and_keeps_what_did_not_run() -> None:
    old = {"tests/a.py": 1.0, "tests/gone.py": 2.0, "tests/b.py": 3.0}
    assert renewed(old, {"tests/b.py": 4.06, "tests/c.py": 5.0}, ["tests/a.py", "tests/b.py"]) == {
        "tests/a.py": 1.0,
        "tests/b.py": 4.1,
        "tests/c.py": 5.0,
    }


FILE = """
import pytest
@pytest.mark.parametrize("n", range(4))
def test_here(n, worker_id):
    with open("ran", "a") as log: log.write(f"{__name__} {n} {worker_id}\\n")
"""
ALONE = """
from pathlib import Path
import pytest
@pytest.mark.alone
@pytest.mark.parametrize("n", range(4))
def test_here(n, worker_id):
    while Path("ran").read_text().count("\\n") < 10: pass  # of 12; two workers keep one each
    with open("ran", "a") as log: log.write(f"{__name__} {n} {worker_id}\\n")
"""


def test_xdist_runs_each_test_once_a_file_on_one_worker_and_those_alone_first(
    tmp_path: Path,
) -> None:
    places = [
        "unit/test_a",
        "unit/test_b",
        "e2e/test_c",
        "cluster/test_d",
        "cluster/test_e",
        "cluster/test_f",
    ]
    alone = places[-1]
    for place in places:
        path = tmp_path / "tests" / f"{place}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(ALONE if place == alone else FILE)
    (tmp_path / "ran").touch()
    for name in ("balance.py", "conftest.py"):
        (tmp_path / "tests" / name).write_text((TESTS / name).read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\nmarkers = alone\n")
    words = ["-p", "xdist", "-p", "no:cacheprovider", "--dist", "loadfile", "-n", "3", "--write-seconds"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert sorted((name, n) for name, n, _ in ran) == sorted(
        (Path(p).name, str(n)) for p in places for n in range(4)
    )
    assert len({(name, worker) for name, _, worker in ran}) == len(places)
    of_the_cluster = [name for name, _, _ in ran if f"cluster/{name}" in places]
    assert of_the_cluster[:4] == [Path(alone).name] * 4
    assert set(json.loads((tmp_path / "tests/seconds.json").read_text())) == {f"tests/{p}.py" for p in places}
