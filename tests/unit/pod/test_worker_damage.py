"""A shard that is done again because a file of it is damaged keeps what it said, or refuses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from combee.clients.store.store import Store, blob_path
from combee.errors import DamagedError, StoreError, TransientError, UserError
from combee.plan.types import Step, StepSummary
from combee.pod.damage import answers_before, is_to_be_mended, not_made_again, written_by
from combee.work.context import decoded_receipt, done_before, encoded_receipt, write_receipt
from combee.work.noted import LostCall, Notes

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


def again(store: Store, before: StepSummary = BEFORE, **outputs: str) -> StepSummary:
    """The shard done again, with other outputs where told."""
    made = replace(BEFORE, outputs={**BEFORE.outputs, **outputs}, counts={"rollouts": 9})
    context: Any = SimpleNamespace(store=store, prefix="runs/run-3fa9c1d2", before=before)
    assert asyncio.run(done_before(context, STEP, 1)) is None, "its receipt would be taken for its work"
    return asyncio.run(write_receipt(context, made, 1))


def test_it_keeps_what_it_counted_and_names_the_calls_that_are_there_now(store: Store) -> None:
    whole = again(store, calls="cb" * 32)
    assert whole == replace(BEFORE, outputs={"calls": "cb" * 32, "reflections": "ab" * 32})
    assert decoded_receipt(store.get(PATH) or b"", PATH) == whole


def test_it_refuses_where_anything_else_comes_out_and_keeps_what_it_said(store: Store) -> None:
    with pytest.raises(StoreError, match=f"reflections of {STEP} comes out otherwise") as refused:
        again(store, reflections="ac" * 32)
    assert not isinstance(refused.value, DamagedError)
    assert decoded_receipt(store.get(PATH) or b"", PATH) == BEFORE
    error = not_made_again(store, "blobs/ab/abc", refused.value)
    assert str(error).startswith(
        f"{store.uri}/blobs/ab/abc: the file is damaged, and it cannot be made again"
    )


def test_what_met_damage_itself_is_replaced_whatever_comes_out(store: Store) -> None:
    made = again(store, replace(BEFORE, error="Damaged"), reflections="ac" * 32)
    assert made.counts == {"rollouts": 9} and decoded_receipt(store.get(PATH) or b"", PATH) == made


@pytest.mark.parametrize("whole", [True, False], ids=["a whole call graph", "a damaged one"])
def test_a_call_that_was_lost_is_lost_again_and_one_that_the_memo_lacks_is_named(
    whole: bool, store: Store
) -> None:
    notes = Notes(lost=[LostCall("ab12", "Transient", "no answer")])
    digest = store.put_blob(notes.encode())
    if not whole:
        store.put(blob_path(digest), b"{}")
    memo = asyncio.run(answers_before(store, replace(BEFORE, outputs={"calls": digest})))
    with pytest.raises(TransientError if whole else UserError, match="no answer" if whole else "lacks"):
        asyncio.run(memo.get("ab12"))
    with pytest.raises(UserError, match="lacks the call ab12") as refused:
        asyncio.run(memo.get("ab12"))
    assert refused.value.where == f"{store.uri}/memo/ab/ab12"


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
