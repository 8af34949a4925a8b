"""What a report's pod prints of the store for a replay, and that it prints no more than a log carries."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from combee.clients.store.store import Store
from combee.errors import UserError
from combee.plan.types import StepSummary
from combee.pod import report
from combee.work.context import encoded_receipt


def stored(store: Store) -> dict[str, bytes]:
    context: Any = SimpleNamespace(store=store, prefix="runs/mine-3fa9c1d2")
    return asyncio.run(report._stored(context))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(str(tmp_path))


def test_a_runs_folder_what_it_names_and_all_answers_are_printed(store: Store) -> None:
    named, empty, other = (store.put_blob(data) for data in (b"calls", b"", b"of another run"))
    outputs = {"calls": named, "leaves": empty, "configMap": "mine-1b2c"}
    path = "runs/mine-3fa9c1d2/steps/mine-i000-map-a0/00000.manifest.json"
    kept = {
        path: encoded_receipt(StepSummary("mine-i000-map-a0", "map", outputs=outputs), path),
        "runs/mine-3fa9c1d2/diagnose/start.md": b"text",
        "memo/aa/aa11": b"an answer",
    }
    elsewhere = "runs/mine-3fa9c1d2x/steps/a/00000.manifest.json"
    another = encoded_receipt(StepSummary("a", "map", outputs={"calls": other}), elsewhere)
    for path, data in kept.items():
        store.put(path, data)
    store.put(elsewhere, another)
    blobs = {f"blobs/{digest[:2]}/{digest}": data for digest, data in ((named, b"calls"), (empty, b""))}
    assert stored(store) == {f"store/{path}": data for path, data in (kept | blobs).items()}


@pytest.mark.parametrize("data", [b"", b'{"outputs": {', b"[]", b'{"outputs": {"calls": 1}}'])
def test_a_damaged_receipt_is_printed_as_it_is(data: bytes, store: Store) -> None:
    """A replay counts it as missing, as a resume does."""
    store.put("runs/mine-3fa9c1d2/steps/mine-i000-map-a0/00000.manifest.json", data)
    assert stored(store) == {"store/runs/mine-3fa9c1d2/steps/mine-i000-map-a0/00000.manifest.json": data}


def test_more_than_a_log_carries_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MAX_STORE_BYTES", 3 << 20)
    for number in range(3):
        store.put(f"memo/aa/{number}", bytes(1 << 20))
    assert len(stored(store)) == 3
    store.put("memo/aa/last", b"1")
    with pytest.raises(UserError, match=r"over 3 MiB.*--store"):
        stored(store)


def test_no_more_is_read_once_it_is_too_much(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod has little memory, and what others left on its store may be any amount."""
    monkeypatch.setattr(report, "MAX_STORE_BYTES", 3 << 20)
    for number in range(200):
        store.put(f"memo/aa/{number}", bytes(1 << 20))
    get, read = store.aget, list[str]()

    async def counted(path: str) -> bytes | None:
        read.append(path)
        return await get(path)

    monkeypatch.setattr(store, "aget", counted)
    with pytest.raises(UserError, match="over 3 MiB"):
        stored(store)
    assert len(read) <= 3 + 2 * 16
