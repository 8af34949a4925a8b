"""The table and the figure of the kinds of edits by iteration."""

from __future__ import annotations

from typing import Any

from made_up import result

from combee.report.build import build_report, build_strategist
from combee.report.diverse import diversity_figure
from combee.report.tables import tables


def made(*decisions: dict[str, Any]) -> Any:
    """A result whose iterations were decided so."""
    one = result().iterations[0].model_dump(by_alias=True)
    rows = [{**one, "iteration": n, "diversity": of} for n, of in enumerate(decisions, start=1)]
    return result(setup={"diversity": True}, iterations=rows)


ALIKE = {"temperature": 0.7}
WEIGHED = {"temperature": 1.0, "fresh": True, "weights": {"insert": 0.75, "delete": 0.25}}


def test_each_iteration_has_its_weights_its_temperature_and_what_it_built_on() -> None:
    table = tables(made(ALIKE, WEIGHED))["diversity"]
    assert [label for label, _ in table.heads] == ["iteration", "temperature", "built on", "delete", "insert"]
    assert table.rows == (
        ("1", "0.7", "the pool", "alike", "alike"),
        ("2", "1", "the start", "0.25", "0.75"),
    )
    alike = tables(made(ALIKE))["diversity"]
    assert alike.rows == (("1", "0.7", "the pool", "alike"),)


def test_it_is_drawn_where_weights_differ_and_stands_in_both_reports() -> None:
    figure = diversity_figure(made(ALIKE, WEIGHED))
    assert figure is not None and "insert 0.75" in figure.caption and "1 at most" in figure.caption
    assert diversity_figure(made(ALIKE)) is None
    for report in (build_report(made(WEIGHED), lessons_markdown=""), build_strategist(made(WEIGHED))):
        assert "| 1 | 1 | the start | 0.25 | 0.75 |" in report.markdown
        assert "Weights of the kinds of edits" in report.html


def test_a_run_that_asked_for_no_kinds_has_neither() -> None:
    plain = result()
    assert "diversity" not in tables(plain) and diversity_figure(plain) is None
    assert "Kinds of edits" not in build_report(plain, lessons_markdown="").markdown
