"""A receipt that was damaged counts as missing: its shard is done again, and it is replaced."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.plan.types import RoleUsage, StepSummary
from combee.work.context import decoded_receipt, encoded_receipt

PATH = "runs/run-3fa9c1d2/steps/run-i000-map-a0/00001.manifest.json"
RECEIPT = StepSummary(
    step="run-i000-map-a0",
    kind="map",
    outputs={"calls": "ab" * 32},
    counts={"iteration": 0, "rollouts": 12},
    scores={"select": 0.25},
    usage={"task": RoleUsage(12, 3, 400, 50, 0, 7)},
    seconds={"wall": 1.5},
)


def test_a_receipt_is_read_as_it_was_written() -> None:
    assert decoded_receipt(encoded_receipt(RECEIPT, PATH), PATH) == RECEIPT
    bare = replace(RECEIPT, outputs={})
    assert decoded_receipt(encoded_receipt(bare, PATH), PATH) == bare


def test_an_earlier_version_is_read_and_reads_this_one() -> None:
    before = json.dumps(RECEIPT.to_plain(), indent=1, sort_keys=True, ensure_ascii=False).encode()
    assert decoded_receipt(before, PATH) == RECEIPT
    there = StepSummary.from_plain(json.loads(encoded_receipt(RECEIPT, PATH)))
    assert there.outputs["calls"] == RECEIPT.outputs["calls"] and there.counts == RECEIPT.counts


@pytest.mark.parametrize(
    "place", ["run-i000-map-a0/00002", "run-i001-map-a0/00001", "run-i000-reduce-a0/00001"]
)
def test_the_receipt_of_another_shard_or_step_is_none(place: str) -> None:
    elsewhere = f"runs/run-3fa9c1d2/steps/{place}.manifest.json"
    assert decoded_receipt(encoded_receipt(RECEIPT, PATH), elsewhere) is None


@given(st.data())
def test_a_damaged_receipt_is_none_or_says_the_same(data: st.DataObject) -> None:
    written = encoded_receipt(RECEIPT, PATH)
    at = data.draw(st.integers(0, len(written) - 1))
    flipped = bytes([written[at] ^ (1 << data.draw(st.integers(0, 7)))])
    for damaged in (
        written[:at] + flipped + written[at + 1 :],
        written[:at],
        written[:at] + written[at + 1 :],
    ):
        assert decoded_receipt(damaged, PATH) in (None, RECEIPT)
