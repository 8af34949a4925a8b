"""The strategist's report: its ten sections in order, what was measured in them, and nothing invented."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest
from made_up import bare, result

from combee.cli.main import app
from combee.report import figures
from combee.report.build import build_strategist
from combee.report.result import to_bytes
from combee.report.strategist import HEADINGS, sections
from combee.report.tables import tables

SEED = Path(__file__).parent / "headings.txt"
"""The headings of the OUTPUT FORMAT of the strategist's brief, a line each."""
SERIAL = {
    "method": "ACE",
    "curve": [
        {"examples": 0, "seconds": 0.0, "score": 0.632},
        {"examples": 90, "seconds": 1800.0, "score": 0.86},
    ],
    "converged": 0.86,
    "examplesToConverge": 90,
    "secondsPerPoint": 78.9,
}
ACCEPTED = {
    "iteration": 4,
    "select": 0.856,
    "rollouts": 1800,
    "tokens": 1_200_000,
    "wallSeconds": 90.0,
    "serialSeconds": 1800.0,
    "costPerPoint": {"tokens": 53_571.4, "rollouts": 80.4, "wallSeconds": 4.0},
}


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "figures", lambda _: {})


def lines(made: Any, title: str) -> dict[str, str]:
    (section,) = (one for one in sections(made) if one.title == title)
    return dict(section.lines)


@pytest.mark.parametrize("made", [result(), bare()], ids=["whole", "bare"])
def test_the_headings_are_those_of_the_brief_in_its_order(made: Any) -> None:
    wanted = SEED.read_text().splitlines()
    assert len(wanted) == 10 and tuple(line.partition(". ")[2] for line in wanted) == HEADINGS
    report = build_strategist(made)
    assert re.findall(r"^## (.+)$", report.markdown, re.MULTILINE) == wanted
    assert [html.unescape(one) for one in re.findall(r"<h2>(.+?)</h2>", report.html)] == wanted


def test_without_a_serial_baseline_no_speed_up_and_no_decision_is_shown() -> None:
    made = result()
    missing = "not shown: no serial baseline was stated or measured"
    assert lines(made, "Task & Baseline")["its converged held-out score"] == missing
    assert lines(made, "Parallelism Shape")["speed-up against the serial baseline"] == missing
    assert lines(made, "Cost Report")["against the serial baseline"] == missing
    assert (
        "no speed-up is claimed" in lines(made, "Risks & Honest Limits")["where the speed-up does not hold"]
    )
    assert lines(made, "Convergence Diagnosis")["go or no-go"].startswith("not shown")


def test_with_one_the_speed_up_is_that_to_the_same_score_and_its_source_is_named() -> None:
    point = {"tokens": 67_211.5, "rollouts": 101.2, "wallSeconds": 4.7}
    made = result(serialBaseline=SERIAL, accepted=[ACCEPTED], costPerPoint=point)
    speed = lines(made, "Parallelism Shape")["speed-up against the serial baseline"]
    assert speed.startswith("20.0x to select 0.856: 30 min 00 s serial (stated)")
    cost = lines(made, "Cost Report")["against the serial baseline"]
    assert cost.startswith("4.7 s a point of gate here") and "same hardware is not shown" in cost
    unreached = result(serialBaseline=SERIAL, accepted=[ACCEPTED | {"serialSeconds": None}])
    assert "does not reach" in lines(unreached, "Parallelism Shape")["speed-up against the serial baseline"]


def test_a_curve_of_other_hardware_gives_no_speed_up() -> None:
    away = SERIAL | {"hardware": "8x H200", "measuredHere": False}
    setup = {"hardware": "6x H100", "waivers": ["the canary is waived: a demo"]}
    point = {"tokens": 67_211.5, "rollouts": 101.2, "wallSeconds": 4.7}
    made = result(serialBaseline=away, accepted=[ACCEPTED], costPerPoint=point, setup=setup)
    told = "not shown: other hardware: the curve is of 8x H200, this run of 6x H100"
    assert lines(made, "Parallelism Shape")["speed-up against the serial baseline"] == told
    assert lines(made, "Cost Report")["against the serial baseline"] == told
    table = tables(made)["serial"]
    assert table.note.endswith("; the curve is of 8x H200, this run of 6x H100.")
    same = result(serialBaseline=SERIAL | {"hardware": "6x H100", "measuredHere": True}, accepted=[ACCEPTED])
    speed = lines(same, "Parallelism Shape")["speed-up against the serial baseline"]
    assert speed.startswith("20.0x") and speed.endswith("on the same hardware, 6x H100")


@pytest.mark.parametrize("title", ["Task & Baseline", "Cost Report", "Risks & Honest Limits"])
def test_what_is_waived_and_the_hardware_stand_in_three_sections(title: str) -> None:
    reason = "the serial baseline is waived, so no speed-up is shown: a <i>demo</i>"
    made = result(setup={"hardware": "6x H100, shared by task model and proposer", "waivers": [reason]})
    told = lines(made, title)
    assert told["waived"] == reason
    assert any("6x H100, shared by task model and proposer" in value for value in told.values())
    assert "<i>demo" not in build_strategist(made).html
    assert lines(result(), title)["waived"] == "nothing"


def test_numbers_of_a_simulated_model_say_so() -> None:
    report = build_strategist(result())
    assert "Numbers made with a simulated model" in report.markdown
    assert report.markdown.count("| what | value (simulated model) |") == 10
    assert report.html.count('<span class="mark">simulated model</span>') >= 10
    real = {"model": "m", "endpointHost": "h", "servedBy": "vllm"}
    told = build_strategist(result(models={"task": real, "proposer": real}))
    assert "simulated" not in told.markdown and "simulated" not in told.html


def test_the_policy_is_told_as_it_was_set() -> None:
    setup = {"batching": "Fixed 25", "sizes": [25], "batchingReason": "a <b>quota</b>", "patience": 2}
    made = result(setup={**setup, "targetScore": 0.9, "temperatures": {"task": 0.0, "proposer": 0.7}})
    assert lines(made, "Dynamic Batching Policy")["policy"] == "Fixed 25; fixed because: a <b>quota</b>"
    rewards = "reward variance caps the planned size"
    assert rewards not in lines(made, "Dynamic Batching Policy")["other triggers"]
    assert rewards in lines(result(), "Dynamic Batching Policy")["other triggers"]
    assert lines(made, "Stopping Rule & Final Selection")["soft target"] == "0.900"
    assert lines(made, "Rollout Diversity Controls")["temperature"].endswith("task 0, proposer 0.7")
    report = build_strategist(made)
    assert "<b>quota" not in report.html and "<b>quota" not in report.markdown
    assert "b = min(size, what the budget pays for" in report.markdown
    assert "AICc" in build_strategist(result(setup={"batching": "Dynamic, rule Saving"})).markdown


def test_a_folder_is_reported_on_the_laptop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "result.json").write_bytes(to_bytes(result()))
    assert app(["report", str(tmp_path), "--strategist"], standalone_mode=False) == 0
    text = (tmp_path / "strategist.md").read_text()
    assert capsys.readouterr().out == text and "## 10. Risks & Honest Limits" in text
    assert (tmp_path / "strategist.html").read_text().startswith("<!doctype html>")
    (tmp_path / "result.json").write_text("{}")
    assert app(["report", str(tmp_path), "--strategist"], standalone_mode=False) == 2


def test_the_time_of_a_run_out_of_memory_is_no_ceiling() -> None:
    quick = result().iterations[0].model_copy(update={"wall_seconds": 0.1})
    made = result().model_copy(update={"iterations": (quick,)})
    assert "answers came from memory" in lines(made, "Parallelism Shape")["beside the time of its calls"]
    assert "times as long" in lines(result(), "Parallelism Shape")["beside the time of its calls"]


def test_the_energy_of_a_shared_engine_is_not_shown_and_why() -> None:
    told = lines(result(setup={"sharedEngines": ["main"]}), "Cost Report")["energy of its GPUs"]
    assert told.startswith("not shown: other runs may use main")


def test_the_shape_is_the_one_that_the_run_was_told() -> None:
    told = lines(result(), "Parallelism Shape")
    assert told["shape"] == "Hybrid: its calls keep 31 % of 64 slots busy; run similar tasks beside it"
    assert told["rejected: Task"] == "a batch fills the slots"
    assert told["ceiling"].endswith("at most 3.2 times as fast as in turn")
    assert told["what would invalidate it"] == "another hardware class; another split"
    old = lines(result(shape=None), "Parallelism Shape")
    assert old["shape"].startswith("not shown") and not any(what.startswith("rejected") for what in old)


def test_a_diagnosis_is_told_with_its_plateau_or_its_no_go() -> None:
    found = {
        "verdict": "Plateau",
        "go": True,
        "words": "serial learning is level",
        "measured": True,
        "points": [{"at": 0, "score": 0.6, "low": 0.5, "high": 0.7, "n": 80}],
        "level": 0.8,
        "low": 0.75,
        "high": 0.85,
        "plateauAt": 400,
        "plateauRollouts": 400,
        "examples": 60,
        "speedUp": 12.5,
    }
    made = result(diagnosis=found)
    told = lines(made, "Convergence Diagnosis")
    assert told["plateau"] == "0.800 (0.750 to 0.850), after 400 rollouts"
    assert told["go or no-go"] == "go: serial learning is level"
    assert told["serial curve"] == "1 point, measured on 60 examples"
    assert lines(made, "Task & Baseline")["its rollouts to converge"] == "400"
    speed = lines(made, "Parallelism Shape")["speed-up against the serial baseline"]
    assert speed.startswith("12.5x an example")
    assert lines(made, "Cost Report")["against the serial baseline"].startswith("not shown: ")
    own = ACCEPTED | {"serialSeconds": None, "serialRollouts": 300}
    timed = {"tokens": 60_000, "secondsPerExample": 4.0, "runSecondsPerExample": 0.5}
    told = lines(result(diagnosis=found | timed, accepted=[own]), "Cost Report")
    cost = told["against the serial baseline"]
    assert cost.startswith("a point of select took 80.4 rollouts here, the diagnosis included; 20.0 in ")
    assert "measured to its plateau of 0.800; 53.6 k tokens here and 3,000 there" in cost
    assert "select 0.856 took 1,800 rollouts here; 300 in serial learning" in cost
    assert "4.00 modelled seconds" in cost
    stopped = result(diagnosis=found | {"verdict": "NotAbove", "go": False, "plateauRollouts": None})
    told = lines(stopped, "Convergence Diagnosis")
    assert told["go or no-go"].startswith("no-go: ") and told["alternative if no-go"] == "as above"
    assert told["plateau"].startswith("none was seen")
