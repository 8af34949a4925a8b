"""A receipt that was damaged counts as missing: its shard is done again, and it is replaced."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from combee.plan.types import RoleUsage, StepSummary
from combee.work.context import decoded_receipt, encoded_receipt

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
    assert decoded_receipt(encoded_receipt(RECEIPT)) == RECEIPT
    assert decoded_receipt(encoded_receipt(replace(RECEIPT, outputs={}))) == replace(RECEIPT, outputs={})


def test_an_earlier_version_is_read_and_reads_this_one() -> None:
    before = json.dumps(RECEIPT.to_plain(), indent=1, sort_keys=True, ensure_ascii=False).encode()
    assert decoded_receipt(before) == RECEIPT
    there = StepSummary.from_plain(json.loads(encoded_receipt(RECEIPT)))
    assert there.outputs["calls"] == RECEIPT.outputs["calls"] and there.counts == RECEIPT.counts


@given(st.data())
def test_a_damaged_receipt_is_none_or_says_the_same(data: st.DataObject) -> None:
    written = encoded_receipt(RECEIPT)
    at = data.draw(st.integers(0, len(written) - 1))
    flipped = bytes([written[at] ^ (1 << data.draw(st.integers(0, 7)))])
    for damaged in (
        written[:at] + flipped + written[at + 1 :],
        written[:at],
        written[:at] + written[at + 1 :],
    ):
        assert decoded_receipt(damaged) in (None, RECEIPT)
