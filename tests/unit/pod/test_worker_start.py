"""What a run starts from: the text of a version, or its components where the method keeps them apart."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from combee.api.run import PromptLearningRun
from combee.errors import DataError
from combee.names import LESSONS_MARK
from combee.objects.types import Settings as ClusterSettings
from combee.objects.volumes import step_mounts
from combee.plan.types import Step
from combee.pod.data import initial_playbook
from combee.pod.environment import read_pod
from combee.records import Owner
from combee.settings import WorkerSettings

PARTS = {"ask": "Round late.", "check": "Check units."}
NOTES = f"# Lessons of run\n\n{LESSONS_MARK}\n\n- Round late.\n"
TEXT = "# ask\n\nRound late."


def run(method: str, key: str, sha256: str = "") -> dict[str, Any]:
    model = {"endpoint": {"url": "http://h/v1", "model": "m"}}
    return {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": "run", "namespace": "team", "uid": "u-1"},
        "spec": {
            "task": {
                "type": "Formula",
                "data": {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}},
                "initialPlaybook": {"configMap": {"name": "formula-0123456789ab", "key": key}}
                | ({"sha256": sha256} if sha256 else {}),
            },
            "method": {"type": method},
            "models": {"task": model, "proposer": model},
        },
    }


def started(root: Path, method: str, key: str = "prompt.md", sha256: str = "") -> str:
    """What profile's pod starts from, with exactly the keys mounted that its manifest asks for."""
    document = run(method, key, sha256)
    made = step_mounts(
        PromptLearningRun.model_validate(document),
        Owner("run", "team", "u-1"),
        Step("run-u-1-i000-profile-a0", "profile", 0, 7),
        ClusterSettings(worker_image="i", vllm_image="v"),
    )
    volume = next(one for one in made.volumes if one["name"] == "data-initialplaybook")
    sources = volume["projected"]["sources"] if "projected" in volume else [volume]
    held = {
        "prompt.md": TEXT,
        "prompt.json": json.dumps(PARTS),
        "start.txt": "Be brief.",
        "lessons.md": NOTES,
    }
    folder = root / "data/initialPlaybook"
    folder.mkdir(parents=True)
    for one in sources:
        for item in one["configMap"]["items"]:
            (folder / item["path"]).write_text(held[item["key"]])
    (root / "etc/combee/run").mkdir(parents=True)
    (root / "etc/combee/run/run.json").write_text(json.dumps(document))
    step = json.dumps({"name": "s", "kind": "profile", "iteration": 0, "seed": 1})
    return initial_playbook(read_pod(WorkerSettings(root, "INFO", step, 0, "/store", "{}", "", "")))


def test_gepa_starts_from_the_components_of_a_published_prompt(tmp_path: Path) -> None:
    assert json.loads(started(tmp_path, "GEPA")) == PARTS


@pytest.mark.parametrize(
    ("method", "key", "text"), [("ACE", "prompt.md", TEXT), ("GEPA", "start.txt", "Be brief.")]
)
def test_everything_else_starts_from_the_text_that_is_named(
    tmp_path: Path, method: str, key: str, text: str
) -> None:
    assert started(tmp_path, method, key) == text


@pytest.mark.parametrize(
    ("method", "key", "text"),
    [("ACE", "prompt.md", TEXT), ("GEPA", "prompt.md", TEXT), ("GEPA", "prompt.json", json.dumps(PARTS))],
)
def test_a_digest_is_of_the_key_that_is_named(tmp_path: Path, method: str, key: str, text: str) -> None:
    assert started(tmp_path, method, key, hashlib.sha256(text.encode()).hexdigest()) == text
    other = hashlib.sha256(b"another").hexdigest()
    with pytest.raises(DataError, match="this is another text"):
        started(tmp_path / "other", method, key, other)


def test_the_notes_of_a_run_are_no_start(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lessons\.md: this is lessons\.md: .* Give prompt\.md"):
        started(tmp_path, "ACE", "lessons.md")


def test_a_step_imports_what_every_step_uses() -> None:
    """Pods are many and short, and most of their seconds are imports."""
    seldom = ("json_repair", "multiprocessing", "optuna", "starlette", "uvicorn")
    rooms = "sys, combee.pod.step, combee.methods.ace, combee.methods.mipro"
    code = f"import {rooms}; print(set({seldom}) & set(sys.modules))"
    folder = Path(__file__).parents[3] / "operator"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    assert out.stdout.strip() == "set()"
