"""The scores that travel with a version: whole there and back, and nothing else is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.errors import UserError
from combee.plan.gatescores import GateScores

SCORES = st.dictionaries(st.text(max_size=8), st.floats(0, 1), max_size=30)


@given(SCORES, SCORES)
def test_they_come_back_as_they_were_on_the_examples_of_both(before: dict, after: dict) -> None:
    made = GateScores.paired("ab", before, after)
    read = GateScores.from_json(made.to_json())
    assert read.held_out == "ab" and read.best.keys() == read.baseline.keys() == made.best.keys()
    assert len(read.best) == len(before.keys() & after.keys())
    assert all(abs(read.best[name] - made.best[name]) <= 1e-4 for name in made.best)


def test_how_they_were_scored_comes_back_and_is_the_default_of_those_that_do_not_say_it() -> None:
    made = GateScores.paired("ab", {"a": 1.0}, {"a": 0.0}, "accuracy, pass^4 of 8 rollouts")
    assert GateScores.from_json(made.to_json()).scored_by == made.scored_by
    assert GateScores.from_json('{"version":1,"heldOut":"a","scores":{"x":[1,0]}}').scored_by == "accuracy"


def test_ids_are_not_told() -> None:
    assert "customer-17" not in GateScores.paired("ab", {"customer-17": 1.0}, {"customer-17": 0.0}).to_json()


def test_ten_thousand_examples_fit_a_config_map() -> None:
    scores = {str(k): (k % 7) / 6 for k in range(10_000)}
    assert len(GateScores.paired("ab" * 32, scores, scores).to_json()) < 400_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version":2,"heldOut":"a","scores":{}}',
        '{"version":1,"heldOut":"a","scores":[]}',
        '{"version":1,"heldOut":"a","scores":{"x":[1]}}',
        '{"version":1,"heldOut":"a","scores":{"x":[1,2]}}',
        '{"version":1,"heldOut":"a","scores":{"x":[1,NaN]}}',
        f'{{"version":1,"heldOut":"a","scores":{{"x":[1,1{"0" * 400}]}}}}',
        '{"version":1,"heldOut":"a","scores":{"x":[1,true]}}',
        '{"version":1,"heldOut":"a","scores":{"x":[1,"1"]}}',
        '{"version":1,"heldOut":"a","scoredBy":1,"scores":{}}',
        f'{{"version":1,"heldOut":"a","scoredBy":"{"x" * 1000}","scores":{{}}}}',
    ],
)
def test_what_somebody_else_wrote_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        GateScores.from_json(text)
