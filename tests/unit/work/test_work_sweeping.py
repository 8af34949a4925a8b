"""What is kept of traffic goes when its time is over, also where nobody keeps anything any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from combee.clients.store.store import Store
from combee.work.traffic.sweeping import memo_folder, state, sweep


def test_a_folder_is_emptied_whatever_made_it_and_says_itself_for_how_long(tmp_path: Path) -> None:
    asyncio.run(_story(tmp_path))


async def _story(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    await state(store, "gone", 100)
    await state(store, "formula", 50)
    for path in (
        "traffic/gone/pairs/t-1/1000-ab-000001.jsonl",
        "traffic/gone/requests/1100-ab-000001.jsonl",
        f"{memo_folder('gone', 't-1', 1000)}/memo/ab/abcdef",
        "traffic/formula/requests/1000-ab-000001.jsonl",
        "traffic/older/requests/1000-ab-000001.jsonl",
        "memo/ab/abcdef",
    ):
        await store.aput(path, b"{}")
    assert await sweep(store, {"formula": 200}, 1101.0) == 2
    assert await store.alist("traffic/gone") == [
        "traffic/gone/requests/1100-ab-000001.jsonl",
        "traffic/gone/retention",
    ]
    assert await sweep(store, {"formula": 200}, 1201.0) == 2
    said = ["traffic/formula/retention", "traffic/gone/retention"]
    assert await store.alist() == ["memo/ab/abcdef", *said, "traffic/older/requests/1000-ab-000001.jsonl"]
    assert await sweep(store, {"older": 1}, 9999.0) == 1
    assert await store.alist() == ["memo/ab/abcdef", *said], "who writes there has said it once"
    assert await sweep(store, {"gone": 100}, 9999.0, ending=("gone", "formula")) == 2
    assert await store.alist() == ["memo/ab/abcdef"], "nothing is left of a Playbook of which no more comes"


@pytest.mark.parametrize("said", [b"", b"soon", b"-1"])
def test_a_folder_that_does_not_say_is_left_alone(tmp_path: Path, said: bytes) -> None:
    async def work() -> int:
        store = Store.open(str(tmp_path))
        await store.aput("traffic/gone/retention", said)
        await store.aput("traffic/gone/requests/1000-ab-000001.jsonl", b"{}")
        return await sweep(store, {}, 1e12)

    assert asyncio.run(work()) == 0
