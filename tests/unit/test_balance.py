"""How test files are divided among workers: none is dropped or taken twice, lanes are kept, the longest go first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from balance import CLUSTER, NOTHING_KNOWN, expected, next_file, renewed

TESTS = Path(__file__).parents[1]
names = st.builds(
    "{}/test_{}.py".format, st.sampled_from(["tests/unit/a", "tests/e2e", "tests/cluster"]), st.integers(0, 9)
)
files = st.lists(names, unique=True)
records = st.dictionaries(names, st.floats(0, 1e4))


def drained(waiting: list[str], lanes: list[bool], seconds: dict[str, float], alone: set[str]) -> list[str]:
    """The files in the order in which workers of these lanes take them, until none is left or no worker is."""
    left, taken = list(waiting), []
    for lane in lanes[: len(waiting)]:
        taken.append(next_file(left, lane, seconds, alone))
        left.remove(taken[-1])
    return taken


@given(files, st.lists(st.booleans(), min_size=30, max_size=30), records, st.sets(names))
def test_every_file_is_taken_once_in_whatever_order_workers_ask(
    waiting: list[str], lanes: list[bool], seconds: dict[str, float], alone: set[str]
) -> None:
    assert sorted(drained(waiting, lanes, seconds, alone)) == sorted(waiting)


@given(files, st.booleans(), records, st.sets(names))
def test_a_worker_takes_the_longest_of_its_lane_and_helps_when_that_is_empty(
    waiting: list[str], lane: bool, seconds: dict[str, float], alone: set[str]
) -> None:
    order = drained(waiting, [lane] * len(waiting), seconds, alone)
    cluster = [file.startswith(CLUSTER) for file in order]
    assert cluster == sorted(cluster, reverse=lane)
    for of_the_cluster in (True, False):
        files = [file for file in order if file.startswith(CLUSTER) is of_the_cluster]
        keeps_others_away = [file in alone for file in files]
        assert keeps_others_away == sorted(keeps_others_away)
        for last in (True, False):
            took = [expected(file, seconds) for file in files if (file in alone) is last]
            assert took == sorted(took, reverse=True)


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


def test_xdist_runs_each_test_once_and_a_file_on_one_worker(tmp_path: Path) -> None:
    places = ["unit/test_a", "unit/test_b", "e2e/test_c", "cluster/test_d", "cluster/test_e"]
    for place in places:
        path = tmp_path / "tests" / f"{place}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FILE)
    for name in ("balance.py", "conftest.py"):
        (tmp_path / "tests" / name).write_text((TESTS / name).read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
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
    assert set(json.loads((tmp_path / "tests/seconds.json").read_text())) == {f"tests/{p}.py" for p in places}
