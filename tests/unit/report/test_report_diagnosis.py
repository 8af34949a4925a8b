"""What the report, its figure and its table say of serial learning."""

from __future__ import annotations

import made_up
import pytest

from combee.report.build import build_report
from combee.report.diagnosis import diagnosis_figure, diagnosis_table, sentences
from combee.report.parts import CurvePointRecord, DiagnosisRecord, HeadroomRecord
from combee.report.result import read_result, to_bytes
from combee.report.words import next_steps

POINTS = [(0, 0.5), (100, 0.7), (200, 0.8), (300, 0.8), (400, 0.81), (500, 0.79)]


def record(**changes: object) -> DiagnosisRecord:
    values: dict[str, object] = {
        "verdict": "Plateau",
        "go": True,
        "words": "serial learning is level at 0.800",
        "measured": True,
        "points": tuple(
            CurvePointRecord(at=at, score=score, low=score - 0.1, high=score + 0.1, n=60)
            for at, score in POINTS
        ),
        "level": 0.8,
        "low": 0.7,
        "high": 0.9,
        "plateau_at": 200,
        "plateau_rollouts": 200,
        "headroom": HeadroomRecord(rows=48, wrong=20, tried=16, own=11, other=2),
        "examples": 60,
        "rollouts": 580,
        "tokens": 120_000,
        "seconds_per_example": 4.0,
        "run_seconds_per_example": 0.5,
        "speed_up": 8.0,
        "target_score": 0.81,
        "rollout_limit": 1400,
        **changes,
    }
    return DiagnosisRecord.model_validate(values)


def test_the_report_has_the_curve_the_verdict_and_what_followed() -> None:
    result = made_up.result().model_copy(update={"diagnosis": record()})
    report = build_report(result, lessons_markdown="")
    for said in (report.html, report.markdown.replace("\\", "")):
        assert "Serial learning before any in parallel" in said
        for text in ("Go: serial learning is level at 0.800.", "11 came right with their own lesson",
                     "580 rollouts", "a soft target of 0.810", "8.0 times as fast"):  # fmt: skip
            assert text in said
    without = build_report(made_up.result(), lessons_markdown="")
    assert "Serial learning before" not in without.html + without.markdown


def test_the_figure_and_the_table_show_the_same_points() -> None:
    result = made_up.result().model_copy(update={"diagnosis": record()})
    figure, table = diagnosis_figure(result), diagnosis_table(record())
    assert figure is not None and "Thick: the plateau" in figure.caption
    assert [row[-1] for row in table.rows] == ["start", "", *["plateau"] * 4]
    for (at, score), row in zip(POINTS, table.rows, strict=True):
        assert f"{at:,}: {score:.3f}" in figure.alt
        assert row[:2] == (f"{at:,}", f"{score:.3f}")
    assert diagnosis_figure(made_up.result()) is None


def test_a_no_go_tells_to_do_what_it_says_and_nothing_else() -> None:
    stopped = record(verdict="NoHeadroom", go=False, plateau_at=None, words="no playbook is seen to help")
    result = made_up.result().model_copy(update={"diagnosis": stopped})
    (step,) = next_steps(result)
    assert "diagnosis" in step
    assert sentences(stopped)[0] == "No-go: no playbook is seen to help."


@pytest.mark.parametrize("one", [record(), record(measured=False, headroom=None, rollouts=0)])
def test_a_result_with_it_is_read_again(one: DiagnosisRecord) -> None:
    result = made_up.result().model_copy(update={"diagnosis": one})
    assert read_result(to_bytes(result)).diagnosis == one
