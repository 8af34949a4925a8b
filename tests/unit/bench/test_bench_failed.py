"""A row that cannot be measured costs itself alone."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("no result"),
        TypeError("'NoneType' object is not subscriptable"),
        subprocess.CalledProcessError(1, "combee"),
    ],
    ids=["said so", "a result without a playbook", "a command that failed"],
)
def test_the_other_rows_are_measured_and_written(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.__main__ import document, measure
    from bench.harness import Row

    good = Row("a row", 1.0, "< 2", "s", "counted", True)

    def bad(_: Path) -> Any:
        raise error

    found, failed = measure({"bad": bad, "good": lambda _: good})
    assert (found, failed) == ([good], ["bad"])
    written = document(found, failed, 3)
    assert [row["how"] for row in written["rows"]] == ["counted"] and written["failed"] == ["bad"]
    assert f"bad: {error!r}" in capsys.readouterr().err


def test_a_row_that_cannot_be_written_costs_itself_alone(capsys: pytest.CaptureFixture[str]) -> None:
    from bench.__main__ import measure
    from bench.harness import Row

    good = Row("a row", 1.0, "< 2", "s", "counted", True)
    unfit = Row("another", 1.0, "< 2", "s", "counted", met=np.bool_(True))  # type: ignore[arg-type]
    assert measure({"unfit": lambda _: unfit, "good": lambda _: good}) == ([good], ["unfit"])
    assert "not JSON serializable" in capsys.readouterr().err


def test_the_shares_of_outcomes_are_plain_numbers() -> None:
    from bench.worlds.outcomes import shares

    assert {type(share) for share in shares(30, 0.0).values()} == {float}
