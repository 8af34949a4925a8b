"""What a preview says of the outcomes that the rows of gate can show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.api.run import RunSpec
from combee.cli.preview import shown_as
from combee.plan.preview import DataShape, Preview, outlook_of, preview
from combee.plan.state import DataFacts

ROOT = Path(__file__).resolve().parents[3]
ENDPOINT = {"endpoint": {"url": "http://h/v1", "model": "m"}}


def shown(gate_rows: int, target: float) -> Preview:
    data = {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}}
    spec = RunSpec.model_validate(
        {
            "task": {"type": "Formula", "data": data},
            "method": {"type": "ACE"},
            "models": dict.fromkeys(("task", "proposer"), ENDPOINT),
            "stopping": {"targetGain": target},
        }
    )
    return preview(spec, DataShape(DataFacts(100, gate_rows, gate_rows, 0, {}), 300.0))


def test_rows_that_are_too_few_for_the_target_are_warned_about_with_what_would_do() -> None:
    (warning,) = shown(150, 0.01).warnings
    assert warning == (
        "heldOut is small: with 150 gate rows a true gain of 0.01 (stopping.targetGain) ends as Learned in "
        "3 % of runs, else as Unsure or NothingBetter; one of 0.108 does in 80 %; about 17,790 heldOut rows "
        "would do for 0.01"
    )


def test_rows_that_are_enough_are_not_warned_about() -> None:
    assert shown(150, 0.12).warnings == ()


@pytest.mark.parametrize("target", [0.12, 0.01])
def test_people_read_the_same_facts(target: float) -> None:
    made = shown(150, target)
    text = shown_as("formula", "combee run", made, as_json=False)
    assert "\nsmallest detectable gain          0.108 on gate (paired, power 0.8 at 5 %)\n" in text
    assert made.outlook is not None
    often = f"ends as Learned in {100 * made.outlook.power:.0f} % of runs, else as Unsure or NothingBetter"
    assert f"\na true gain of {target}, the target   {often}\n" in text
    assert f"\nheldOut rows for power 0.8        about {made.outlook.rows_needed:,}\n" in text
    assert ("warning: heldOut is small" in text) == (target == 0.01)
    said = json.loads(shown_as("formula", "combee run", made, as_json=True))["outlook"]
    assert (said["gate_rows"], said["target_gain"]) == (150, target)


def test_the_page_has_the_rows_of_four_targets() -> None:
    page = " ".join((ROOT / "docs" / "method.md").read_text().split())
    rows = [f"{outlook_of(150, target).rows_needed:,}" for target in (0.2, 0.1, 0.05, 0.01)]
    said = "a target of 0.2 takes {} rows of heldOut, 0.1 takes {}, 0.05 takes {} and 0.01 takes {}."
    assert said.format(*rows) in page


def test_too_few_rows_for_any_gain_and_a_target_of_none_say_so() -> None:
    (warning,) = shown(5, 0.0).warnings
    assert "ends as Learned in 0 % of runs" in warning and warning.endswith("; no gain does in 80 %")
    assert "none on gate" in shown_as("formula", "combee run", shown(5, 0.0), as_json=False)
    assert shown(150, 0.0).warnings == ()


@settings(max_examples=40, deadline=None)
@given(st.floats(0.005, 0.9))
def test_the_rows_said_to_do_are_enough_and_few_less_are_not(target: float) -> None:
    rows = outlook_of(150, target).rows_needed
    assert rows is not None
    assert outlook_of(rows // 2, target).shown
    assert rows < 40 or not outlook_of(rows * 2 // 5, target).shown
