"""Divides the test files among xdist's workers by how long they took before (``--dist loadfile``).

What one worker does in one go is a file, since its tests share what is made once for the module. Workers have
lanes. Those of the first lane take the tests of the cluster, which mostly wait; those of the second take the
rest, which mostly compute; a worker whose lane is empty helps the other one. The longest file goes first, so
that the last ones are short and the workers end together. Files with tests marked ``alone`` go before all
others, to one worker: nobody else may use the cluster meanwhile, so all other workers compute until these are
over, and wait when there is nothing left to compute.

``tests/seconds.json`` says how long each file took; ``--write-seconds`` writes it anew (``make seconds``). A
file that is not in it counts like the middle one of its folder."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

RECORD = Path(__file__).parent / "seconds.json"
CLUSTER = "tests/cluster/"
NOTHING_KNOWN = 10.0
"""Seconds of a file in a folder of which nothing was measured."""


def file_of(nodeid: str) -> str:
    """The file of a test, from its id.

    >>> file_of("tests/unit/test_a.py::TestB::test_c[x::y]")
    'tests/unit/test_a.py'
    """
    return nodeid.partition("::")[0]


def expected(file: str, seconds: Mapping[str, float]) -> float:
    """The seconds to expect of a file; of one that is new, the median of ``tests/unit``, ``tests/e2e`` or
    ``tests/cluster``, wherever it is."""
    if file in seconds:
        return seconds[file]
    layer = file.split("/")[:2]
    return median([took for name, took in seconds.items() if name.split("/")[:2] == layer] or [NOTHING_KNOWN])


@dataclass(frozen=True)
class Lane:
    """Which files a worker prefers."""

    cluster: bool
    """whether it takes the files of the cluster before the rest."""
    alone: bool
    """whether it takes the files with tests marked ``alone``, before all others."""


def next_file(
    waiting: Iterable[str],
    lane: Lane,
    seconds: Mapping[str, float],
    alone: Collection[str],
    at_work: Collection[str],
) -> str | None:
    """The file of ``waiting`` that a worker takes: the longest of its lane, else the longest of the other
    one. As long as one of ``alone`` waits or is ``at_work``, only the worker that takes those takes files of
    the cluster. None when that leaves nothing.

    >>> waiting = ["tests/unit/test_a.py", "tests/cluster/test_b.py", "tests/e2e/test_c.py"]
    >>> first = Lane(cluster=True, alone=False)
    >>> next_file(waiting, first, {}, alone=(), at_work=())
    'tests/cluster/test_b.py'
    >>> next_file(waiting, Lane(False, False), {"tests/e2e/test_c.py": 60.0}, alone=(), at_work=())
    'tests/e2e/test_c.py'
    >>> next_file(waiting, first, {}, alone=["tests/cluster/test_k.py"], at_work=["tests/cluster/test_k.py"])
    'tests/unit/test_a.py'
    """
    waiting = list(waiting)
    if not lane.alone and not set(alone).isdisjoint({*waiting, *at_work}):
        waiting = [file for file in waiting if not file.startswith(CLUSTER)]

    def rank(file: str) -> tuple[bool, bool, float]:
        return (
            (file in alone) != lane.alone,
            file.startswith(CLUSTER) != lane.cluster,
            -expected(file, seconds),
        )

    return min(waiting, key=rank, default=None)


class Lanes(LoadFileScheduling):
    """Gives each worker the file that ``next_file`` names. Workers with an even number are of the cluster's
    lane, and the first one alive takes the files whose tests are ``alone``."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self.seconds = read(RECORD)
        files = (config.rootpath / CLUSTER).rglob("test_*.py")
        self.alone = {
            file.relative_to(config.rootpath).as_posix() for file in files if "mark.alone" in file.read_text()
        }

    def _assign_work_unit(self, node: Any) -> None:
        number = number_of(node)
        lane = Lane(cluster=number % 2 == 0, alone=number == min(map(number_of, self.nodes)))
        given = (unit for units in self.assigned_work.values() for unit in units.items())
        at_work = {file for file, tests in given if not all(tests.values())}
        file = next_file(self.workqueue, lane, self.seconds, self.alone, at_work)
        if file is not None:
            self.workqueue.move_to_end(file, last=False)
            super()._assign_work_unit(node)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """The files of the cluster may be open to the workers that wait for them."""
        super().mark_test_complete(node, item_index, duration)
        if file_of(self.registered_collections[node][item_index]) in self.alone:
            for waiting in self.nodes:
                self._reschedule(waiting)


def number_of(node: Any) -> int:
    """The number of a worker."""
    return int(node.gateway.id.removeprefix("gw"))


def read(record: Path) -> dict[str, float]:
    """The seconds of each file; none where there is no record."""
    if not record.exists():
        return {}
    seconds: dict[str, float] = json.loads(record.read_text())
    return seconds


def renewed(
    old: Mapping[str, float], measured: Mapping[str, float], exists: Iterable[str]
) -> dict[str, float]:
    """The record after a run: what was measured, and what was not run this time but still exists."""
    kept = {file: old[file] for file in exists if file in old}
    return dict(sorted({**kept, **{file: round(took, 1) for file, took in measured.items()}}.items()))


class Stopwatch:
    """Adds up what the tests of each file take, and writes it down when the suite has ended."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.measured: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.measured[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        old = read(RECORD)
        exists = [file for file in old if (self.root / file).exists()]
        RECORD.write_text(json.dumps(renewed(old, self.measured, exists), indent=1) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-seconds", action="store_true", help="write tests/seconds.json anew")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("write_seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Stopwatch(config.rootpath))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Lanes | None:
    """None leaves another ``--dist`` to xdist."""
    return Lanes(config, log) if config.getvalue("dist") == "loadfile" else None
