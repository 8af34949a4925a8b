"""By which clocks a decision is made again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from combee.local.replay import Replayed, _RecordFolder
from combee.plan.types import Clocks

KEPT = Clocks(5.0, 20.0)


@pytest.mark.parametrize(
    ("clocks", "first", "second"),
    [
        pytest.param({}, Clocks(), Clocks(90.0), id="of an earlier version, where learning stopped"),
        pytest.param({0: KEPT}, KEPT, Clocks(), id="on a cluster, where a budget ended an iteration"),
        pytest.param({0: KEPT, 1: KEPT}, KEPT, KEPT, id="recorded"),
    ],
)
def test_a_decision_is_made_by_its_clocks(clocks: dict[int, Clocks], first: Clocks, second: Clocks) -> None:
    record = SimpleNamespace(plans={0: None}, clocks=clocks, stop_seconds=90.0)
    folder = _RecordFolder(cast(Any, record), Replayed("run"))
    assert (folder.clocks(0, Clocks(1.0)), folder.clocks(1, Clocks(1.0))) == (first, second)
