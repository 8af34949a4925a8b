"""What a run on a laptop starts from: the folder of another run."""

from __future__ import annotations

from pathlib import Path

import made_up
import pytest
import yaml

from combee.api.load import parse_run
from combee.local.sources import StandIns, read_initial_playbook
from combee.report.result import to_bytes

QUICKSTART = Path(__file__).resolve().parents[3] / "examples" / "quickstart.yaml"
LEDGER = '{"a": "ledger"}'


@pytest.mark.parametrize(
    ("learned_by", "starts_from"),
    [("ACE", LEDGER), ("", LEDGER), ("GEPA", "Divide."), (None, LEDGER)],
    ids=["the same method", "unknown", "another method", "no result"],
)
def test_an_artifact_is_started_from_where_the_same_method_left_it(
    tmp_path: Path, learned_by: str | None, starts_from: str
) -> None:
    (tmp_path / "prompt.md").write_text("Divide.")
    (tmp_path / "artifact.json").write_text(LEDGER)
    if learned_by is not None:
        result = made_up.result(setup={"task": "Formula", "method": learned_by})
        (tmp_path / "result.json").write_bytes(to_bytes(result))
    body = next(o for o in yaml.safe_load_all(QUICKSTART.read_text()) if o["kind"] == "PromptLearningRun")
    body["spec"]["task"]["initialPlaybook"] = {"uri": str(tmp_path)}
    assert read_initial_playbook(parse_run(body, ""), StandIns(), tmp_path) == starts_from
