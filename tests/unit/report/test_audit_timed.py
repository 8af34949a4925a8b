"""A run's learning timed by another law, against the serial learning that it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from combee.algo.latency import LatencyLaw
from combee.audit.timed import speed_up
from combee.clients.store.store import Store
from combee.errors import DamagedError
from combee.local.record import Record
from combee.plan.decide import Identity
from combee.plan.types import StepSummary
from combee.work.asker import Asker, CallRow

LAW = LatencyLaw(0.005, 0.0001, 0.00003)


def left(store: Store, step: str, kind: str, *, calls: int, failed: int = 0) -> None:
    """Put down what a step left that asked one call after the other."""
    asker = Asker({}, {})
    asker.begin("map")
    asker.rows += [CallRow("task", "map", 0, 1.0, 100, 10, 0, False, 1) for _ in range(calls)]
    outputs = {"calls": store.put_blob(asker.encode())}
    receipt = StepSummary(
        step.rpartition("/")[2], kind, outputs=outputs, counts={"failed": failed, "examples": 1}
    )
    store.put_new(f"{step}/00000.manifest.json", json.dumps(receipt.to_plain()).encode())


@pytest.mark.parametrize("lost", [0, 1, 3])
async def test_an_example_that_got_no_answer_is_no_example_of_serial_learning(
    lost: int, tmp_path: Path
) -> None:
    """Serial learning makes three calls an example, the run one: three times faster, whatever was lost."""
    store = Store.open(str(tmp_path))
    for number in range(4 + lost):
        head = f"runs/r/serial/steps/r-{number:05d}"
        left(store, f"{head}-map", "map", calls=3 if number < 4 else 1)
        left(store, f"{head}-finish", "finish", calls=0, failed=int(number >= 4))
    left(store, "runs/r/steps/r-i000-map-a0", "map", calls=1)
    done = StepSummary("r-i000-finish-a0", "finish", observations=((1, 1.0),))
    record = Record(Identity("r", "u"), {}, {}, {done.step: done}, store, None, {}, 1.0)
    assert await speed_up(record, "runs/r", 4, LAW) == pytest.approx(3.0)
    store.close()


@pytest.mark.parametrize("damaged", ["runs/r/serial/steps/r-00000-map", "runs/r/steps/r-i000-map-a0"])
async def test_a_damaged_receipt_is_named_and_is_no_step_without_calls(damaged: str, tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    left(store, "runs/r/serial/steps/r-00000-map", "map", calls=3)
    left(store, "runs/r/serial/steps/r-00000-finish", "finish", calls=0)
    left(store, "runs/r/steps/r-i000-map-a0", "map", calls=1)
    store.put(f"{damaged}/00000.manifest.json", b'{"outputs": {')
    done = StepSummary("r-i000-finish-a0", "finish", observations=((1, 1.0),))
    record = Record(Identity("r", "u"), {}, {}, {done.step: done}, store, None, {}, 1.0)
    with pytest.raises(DamagedError, match=f"{damaged}/00000.*damaged"):
        await speed_up(record, "runs/r", 4, LAW)
    store.close()
