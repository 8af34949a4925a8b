"""What a run starts from: the version that was active when it was first seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from combee.api.load import parse_run
from combee.api.run import PromptLearningRun
from combee.operator.versions import with_start
from combee.plan.cluster.memory import Memory, Start

QUICKSTART = Path(__file__).resolve().parents[3] / "examples" / "quickstart.yaml"


@pytest.fixture
def run() -> PromptLearningRun:
    body = next(o for o in yaml.safe_load_all(QUICKSTART.read_text()) if o["kind"] == "PromptLearningRun")
    body["spec"]["task"]["initialPlaybook"] = {"activeVersion": True}
    return parse_run(body, "")


def test_pods_are_told_the_config_map_of_the_version_that_was_active(run: PromptLearningRun) -> None:
    seen = with_start(run, Memory(start=Start("a" * 64, "formula-aaaaaaaaaaaa")))
    told = seen.dump()["spec"]["task"]["initialPlaybook"]
    assert told == {"configMap": {"name": "formula-aaaaaaaaaaaa", "key": "prompt.md"}}
    # All else is as it was written, and pods can read it again.
    assert parse_run(seen.dump(), "").spec.task.model_copy(update={"initial_playbook": None}) == (
        run.spec.task.model_copy(update={"initial_playbook": None})
    )


def test_where_none_was_active_it_starts_from_nothing(run: PromptLearningRun) -> None:
    assert "initialPlaybook" not in with_start(run, Memory(start=Start())).dump()["spec"]["task"]


def test_a_run_that_starts_from_something_else_stays_as_it_is(run: PromptLearningRun) -> None:
    assert with_start(run, Memory()) is run
