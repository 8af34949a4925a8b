"""What a laptop says of a run that does not state its inputs: warnings, or exit code 2 with Strict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from combee.cli.preview import run_preview
from combee.cli.run import run_run
from combee.cli.validate import run_validate
from combee.local.flags import StandInFlags

EXAMPLE = Path(__file__).parents[3] / "examples" / "formula.yaml"
ASKED = "spec.task.failureCost"
STRICT = f"discipline Strict: not stated: {ASKED} (what happens if it gets worse in production?)"


def manifest(folder: Path, discipline: str | None = None) -> Path:
    """The example without what a failure costs."""
    made = yaml.safe_load(EXAMPLE.read_text())
    del made["spec"]["task"]["failureCost"]
    for split in made["spec"]["task"]["data"].values():
        split["uri"] = str(EXAMPLE.parent / split["uri"])
    if discipline is not None:
        made["spec"]["discipline"] = discipline
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(made, sort_keys=False))
    return path


@pytest.mark.parametrize("discipline", [None, "Advisory"])
def test_it_is_warned(discipline: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = manifest(tmp_path, discipline)
    warning = f"not stated: {ASKED}: what happens if it gets worse in production?\n"
    assert run_validate(path, as_json=False) == 0
    assert f"warning: PromptLearningRun formula-ace: {warning}" in capsys.readouterr().err
    assert run_preview(path, StandInFlags(), as_json=False) == 0
    shown = capsys.readouterr().out
    assert f"warning: {warning}" in shown and "would be refused" not in shown
    assert "hardware                          2 x 2 GPUs, shared by task model and proposer\n" in shown
    assert "\nshape of parallelism, expected    " in shown and "rejected: " in shown


def test_it_is_refused_where_the_manifest_says_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(tmp_path, "Strict")
    assert run_validate(path, as_json=False) == 2
    (line,) = [text for text in capsys.readouterr().err.splitlines() if ASKED in text]
    assert f"run.yaml:8: {ASKED}: not stated (what happens if it gets worse in production?). " in line
    assert "with spec.discipline: Advisory it is a warning." in line
    assert run_preview(path, StandInFlags(), as_json=True) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["refused"].startswith(STRICT) and not shown["unstated"]
    engine = StandInFlags(engines=["main=http://127.0.0.1:9/v1"])
    assert run_run(path, tmp_path / "out", engine, None, as_json=False) == 2
    assert STRICT in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
