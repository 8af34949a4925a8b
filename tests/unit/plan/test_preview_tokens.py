"""How many tokens a preview says that a run takes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.ranges import Range
from combee.cli.main import _exit_code
from combee.plan.lengths import ALL, LITTLE, MUCH, USUAL, Counts, Writing, _playbook, tokens, usage
from combee.report.text import amount

ROOT = Path(__file__).parents[3]
OFFICE = [f"{split}=examples/office/{split.lower()}.jsonl" for split in ("train", "heldOut")]
COUNTS = Counts(
    rollouts=Range(950, 3200),
    reflections=Range(500, 500),
    aggregator_calls=Range(500, 1250),
    examples=500,
    input_tokens=300.0,
    start_tokens=0.0,
    budget_tokens=8000,
    shown_tokens=8000,
    leaf_inputs=1,
    kept=0.05,
    reflects=True,
    embeds=False,
)
ROW = re.compile(r"^\| (\w+) \| ([\d.]+ [kM]) \| ([\d.]+ [kM]) \| ([\d.]+ [kM]) \| ([\d.]+ [kM]) \|$", re.M)


def number(text: str) -> float:
    digits, unit = text.split()
    return float(digits) * {"k": 1e3, "M": 1e6}[unit]


def previewed(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    rows = [word for split in OFFICE for word in ("--data", split)] if name == "real" else []
    assert _exit_code(["preview", "-f", f"examples/{name}.yaml", "--json", *rows]) == 0
    shown: dict[str, object] = json.loads(capsys.readouterr().out)
    return shown


@pytest.mark.parametrize(
    "row", ROW.findall((ROOT / "docs" / "method.md").read_text()), ids=lambda row: row[0]
)
def test_the_page_has_what_it_says_of_each_example_and_what_the_run_took(
    row: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "office"))
    name, *said, taken = row
    shown = previewed(name, capsys)
    low, high = shown["tokens"]["low"], shown["tokens"]["high"]  # type: ignore[index]
    likely, most = shown["likely_tokens"], shown["most_tokens"]
    assert said == [amount(likely), amount(low), amount(high)]
    assert low < number(taken) < high < most
    assert 0.5 < number(taken) / likely < 2


def test_people_read_the_likely_figure_the_interval_and_what_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    ends = {"gepa": "72.0 M; spec.budget.tokens ends the run at 50.0 M\n", "formula": "44.7 M\n"}
    likely = {"gepa": "11.8 M, from 1.93 M to 34.3 M", "formula": "3.36 M, from 1.37 M to 10.2 M"}
    for name, end in ends.items():
        assert _exit_code(["preview", "-f", f"examples/{name}.yaml"]) == 0
        printed = capsys.readouterr().out
        assert f"\ntokens, likely                    about {likely[name]}\n" in printed
        assert f"\ntokens, with a full playbook      {end}" in printed


RANGES = st.tuples(st.integers(0, 5000), st.integers(0, 5000)).map(lambda pair: Range(min(pair), max(pair)))


@given(RANGES, RANGES, RANGES, st.integers(0, 5000), st.integers(0, 9000), st.booleans(), st.booleans())
def test_models_that_write_more_never_take_less(
    rollouts: Range,
    reflections: Range,
    calls: Range,
    examples: int,
    start: int,
    reflects: bool,
    embeds: bool,
) -> None:
    counts = replace(
        COUNTS,
        rollouts=rollouts,
        reflections=reflections,
        aggregator_calls=calls,
        examples=examples,
        start_tokens=start,
        reflects=reflects,
        embeds=embeds,
    )
    taken = [tokens(counts, writing) for writing in (LITTLE, USUAL, MUCH, ALL)]
    assert taken == sorted(taken)


@given(st.integers(1, 400), st.floats(0, 9000), st.integers(1, 8000), st.floats(0, 3))
def test_the_playbook_is_the_mean_over_examples_of_one_that_grows_to_its_budget(
    examples: int, start: float, budget: int, kept: float
) -> None:
    counts = replace(COUNTS, examples=examples, start_tokens=start, kept=1)
    steps = 2000
    grown = [50 * kept * examples * (step + 0.5) / steps for step in range(steps)]
    mean = sum(min(budget, min(start, budget) + more) for more in grown) / steps
    assert _playbook(counts, Writing(0, 0, kept, 0), budget) == pytest.approx(mean, rel=1e-3, abs=1e-3)


def test_a_full_playbook_is_in_every_call() -> None:
    assert _playbook(COUNTS, ALL, 8000) == pytest.approx(8000)


def test_a_rollout_and_its_reflection_count_what_they_are_shown_and_a_leaf_the_whole_playbook() -> None:
    whole, chosen = usage(COUNTS, ALL), usage(replace(COUNTS, shown_tokens=500), ALL)
    rollouts, reflections = COUNTS.rollouts.high, COUNTS.reflections.high
    assert whole["task"][0] - chosen["task"][0] == pytest.approx(7500 * rollouts)
    assert whole["proposer"][0] - chosen["proposer"][0] == pytest.approx(7500 * reflections)
    assert [written for _, written in whole.values()] == [written for _, written in chosen.values()]
