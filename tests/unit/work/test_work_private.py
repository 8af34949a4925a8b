"""What is kept of a trajectory: no row, no recording, and nothing that looks private."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from combee.records import Recorded, Trajectory
from combee.work.context import line_of
from combee.work.decode import outcome_of
from combee.work.private import kept_anew, trajectory_line

MAIL = "jane.doe@example.com"
ONE = Trajectory(
    id="17@0",
    example_id="17",
    input=f"the row of Jane Doe, {MAIL}",
    output=f"I wrote to {MAIL}: 3.5",
    answer=f"3.5 ({MAIL})",
    score=0.5,
    correct=False,
    feedback=f"Expected 4, got {MAIL}.",
    cited=("x-1",),
    records=(("instructions", f"It asked {MAIL}."),),
)
TEXTS = st.text(max_size=60)


def kept(trajectory: Trajectory) -> dict[str, Any]:
    return json.loads(trajectory_line(trajectory))


def test_a_row_is_not_kept_and_the_rest_is_redacted() -> None:
    mark = "[an e-mail address]"
    assert kept(ONE) == json.loads(line_of(ONE)) | {
        "input": "",
        "output": f"I wrote to {mark}: 3.5",
        "answer": f"3.5 ({mark})",
        "feedback": f"Expected 4, got {mark}.",
        "records": [["instructions", f"It asked {mark}."]],
    }


def test_what_looks_like_nothing_private_is_kept_as_it_was() -> None:
    plain = replace(ONE, input="", output="3.5", answer="3.5", feedback="Expected 4.", records=None)
    assert trajectory_line(plain) == line_of(plain)


def test_a_recording_is_not_kept_again() -> None:
    recorded = replace(ONE, recorded=Recorded(1, 2))
    assert kept(recorded)["output"] == "" and kept(recorded)["recorded"]["of"] == 2


@given(TEXTS, TEXTS, TEXTS)
def test_what_decides_is_kept_and_an_older_record_is_kept_anew(row: str, output: str, feedback: str) -> None:
    one = replace(ONE, input=row, output=output, feedback=feedback)
    older, line = line_of(one), trajectory_line(one)
    assert kept_anew(older) == line
    assert outcome_of(json.loads(line)) == outcome_of(json.loads(older))
