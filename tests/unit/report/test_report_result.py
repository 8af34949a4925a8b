"""result.json: round trip, strictness, and generated files that are up to date."""

from __future__ import annotations

import json
import subprocess
import sys

import jsonschema
import made_up
import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.errors import DataError
from combee.generate import schemas as schema
from combee.report import text
from combee.report.result import EXIT_CODES, read_result, to_bytes


@pytest.mark.parametrize("result", [made_up.result(), made_up.bare()], ids=["full", "bare"])
def test_bytes_round_trip_and_follow_the_schema(result):
    data = to_bytes(result)
    assert read_result(data) == result
    jsonschema.Draft202012Validator(schema.schema()).validate(json.loads(data))


def test_the_schema_refuses_what_the_models_refuse():
    data = json.loads(to_bytes(made_up.result()))
    data["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema.schema()).validate(data)
    with pytest.raises(DataError, match=r"result.json: surprise: .*not permitted"):
        made_up.read_back(data)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"version": 2}, "version"),
        ({"rollouts": -1}, "rollouts"),
        ({"rollouts": "7"}, "rollouts"),
        ({"wallSeconds": float("nan")}, "wallSeconds"),
        ({"outcome": "Fine"}, "outcome"),
        ({"exitCode": 3}, "exitCode"),
    ],
)
def test_a_wrong_value_is_named(change, path):
    with pytest.raises(DataError, match=path) as caught:
        made_up.read_back({**json.loads(to_bytes(made_up.result())), **change})
    assert "\n" not in str(caught.value)


def test_every_outcome_has_its_exit_code():
    codes = {"Learned": 0, "NothingBetter": 3, "BudgetExhausted": 4, "Failed": 5, "Unsure": 6, "Stopped": 130}
    assert codes == EXIT_CODES


def test_generated_files_are_up_to_date():
    for path, made in schema.generated().items():
        assert path.read_text("utf-8") == made, f"{path}: run python -m combee.generate.schemas --write"


def test_importing_the_screen_is_light():
    heavy = "{'rich', 'pydantic', 'matplotlib', 'jinja2', 'numpy'}"
    code = f"import combee.cli.screen, sys; print(sorted({heavy} & set(sys.modules)))"
    path = str(schema._ROOT / "operator")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": path}, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (9999, "9,999"),
        (56_100, "56.1 k"),
        (999_499, "999 k"),
        (999_700, "1.00 M"),
        (1_240_000, "1.24 M"),
    ],
)
def test_amounts(value, said):
    assert text.amount(value) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "unknown"),
        (float("nan"), "unknown"),
        (-3, "0 s"),
        (0.42, "0.42 s"),
        (9.9, "9.9 s"),
        (9.96, "10 s"),
        (134, "2 min 14 s"),
        (3599.7, "1 h 00 min"),
    ],
)
def test_durations(seconds, said):
    assert text.duration(seconds) == said


def test_percent_does_not_round_to_all_or_nothing():
    assert [text.percent(999, 1000), text.percent(1, 1000), text.percent(0, 5), text.percent(1, 0)] == [
        ">99 %",
        "<1 %",
        "0 %",
        "none to keep",
    ]


@given(st.text())
def test_visible_is_one_line_without_control_characters(said):
    shown = text.visible(said)
    assert all(char.isprintable() for char in shown), ascii(shown)
    assert text.visible(shown) == shown


@given(st.text(alphabet="ab <>&[]()`*_#-+=1.)!|~\\\nhttps:/w", max_size=40))
def test_markdown_escapes_what_acts(said):
    made = text.markdown(said)
    assert "\n" not in made
    bare = made.replace("\\\\", "")
    for mark in "<>`*[]|~":
        assert bare.count(mark) == bare.count("\\" + mark)
    assert "://" not in made or "https://" not in made
    assert not made.startswith(("# ", "- ", "+ ", "1. ", "1) "))
