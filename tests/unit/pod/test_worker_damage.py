"""A shard that is done again because a file of it is damaged keeps what it said, or refuses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from combee.clients.store.store import Store
from combee.errors import DamagedError, StoreError
from combee.plan.types import Step, StepSummary
from combee.pod.damage import is_to_be_mended, made_again, written_by
from combee.work.context import decoded_receipt, encoded_receipt

STEP = "run-3fa9c1d2-i000-map-a0"
PATH = f"runs/run-3fa9c1d2/steps/{STEP}/00001.manifest.json"
BEFORE = StepSummary(
    STEP, "map", outputs={"calls": "ca" * 32, "reflections": "ab" * 32}, counts={"rollouts": 8}
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store.open(str(tmp_path))
    made.put(PATH, encoded_receipt(BEFORE, PATH))
    return made


def again(store: Store, **outputs: str) -> StepSummary:
    """The shard done again, with other outputs where told."""

    async def work() -> StepSummary:
        assert store.get(PATH) is None, "its receipt would be taken for its work"
        return replace(BEFORE, outputs={**BEFORE.outputs, **outputs}, counts={"rollouts": 9})

    context: Any = SimpleNamespace(store=store, prefix="runs/run-3fa9c1d2")
    return asyncio.run(made_again(context, BEFORE, 1, work))


def test_it_keeps_what_it_counted_and_names_the_calls_that_are_there_now(store: Store) -> None:
    whole = again(store, calls="cb" * 32)
    assert whole == replace(BEFORE, outputs={"calls": "cb" * 32, "reflections": "ab" * 32})
    assert decoded_receipt(store.get(PATH) or b"", PATH) == whole


def test_it_refuses_where_anything_else_comes_out(store: Store) -> None:
    with pytest.raises(StoreError, match=r"cannot be made again: reflections comes out otherwise") as refused:
        again(store, reflections="ac" * 32)
    assert not isinstance(refused.value, DamagedError)
    assert store.get(PATH) is None, "the error has to take its place"


@pytest.mark.parametrize(
    ("file", "outputs", "error", "expected"),
    [
        (f"blobs/ab/{'ab' * 32}", BEFORE.outputs, "", True),
        (f"blobs/ee/{'ee' * 32}", BEFORE.outputs, "", False),
        (f"blobs/ee/{'ee' * 32}", {}, "Damaged", True),
        ("", {"note": ""}, "Damaged", False),
    ],
    ids=["its own", "another's", "met it", "nothing is"],
)
def test_a_shard_is_done_again_for_its_own_file_or_one_that_it_met(
    file: str, outputs: dict[str, str], error: str, expected: bool
) -> None:
    step = Step(STEP, "map", 0, 7, params={"damaged": file} if file else {})
    assert is_to_be_mended(replace(BEFORE, outputs=outputs, error=error), step) is expected


@pytest.mark.parametrize(
    ("path", "writer"),
    [(f"blobs/ab/{'ab' * 32}", STEP), (PATH, STEP), (f"blobs/ee/{'ee' * 32}", None)],
    ids=["a blob", "a receipt", "nobody's"],
)
def test_the_step_that_wrote_a_file_is_found_by_its_receipt(
    path: str, writer: str | None, store: Store
) -> None:
    damaged = DamagedError("the file is missing", where=f"{store.uri}/{path}")
    left = asyncio.run(written_by(store, "runs/run-3fa9c1d2", damaged))
    assert left == ({} if writer is None else {"damaged": path, "writer": writer})
