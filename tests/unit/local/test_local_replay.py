"""By which clocks a decision is made again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from combee.errors import DamagedError, UserError
from combee.local import mend
from combee.local.meter import Silent
from combee.local.replay import Replayed, _RecordFolder
from combee.local.session import Prepared
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


async def test_mending_a_folder_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither endpoints nor the energy meter are open in a replay from the record."""
    replayed: list[Prepared] = []

    async def replay(prepared: Prepared, *_: object) -> None:
        replayed.append(prepared)
        raise UserError("enough")

    monkeypatch.setattr(mend, "read_record", lambda *_: None)
    monkeypatch.setattr(mend, "replay", replay)
    prepared = Prepared(cast(Any, SimpleNamespace(name="run")), {}, {}, "")
    out = tmp_path / "out"

    async def run_session(*_: object) -> None:
        raise DamagedError("damaged", where=str(out / "store" / "blobs" / "a"))

    monkeypatch.setattr(mend, "run_session", run_session)
    with pytest.raises(DamagedError, match=r"cannot be made again \(enough\).*-o .*out-anew"):
        await mend.run_mended(prepared, out, Silent())
    assert [one.recorded for one in replayed] == [True]
