"""The release: what its workflow may do, that all it uses is pinned, and what its script refuses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from combee import __version__

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "images/release.sh"
WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
(JOB,) = WORKFLOW["jobs"].values()
LOCK = (ROOT / "requirements-release.lock").read_text()
DIGEST = "@sha256:" + "a" * 64


def test_it_runs_for_tags_alone_and_may_do_what_a_release_needs() -> None:
    # YAML takes the key `on` for true.
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}
    assert WORKFLOW["permissions"] == {}
    assert JOB["permissions"] == {"contents": "write", "packages": "write", "id-token": "write"}


def test_no_action_of_somebody_else_runs_and_no_text_of_an_event_goes_into_a_shell() -> None:
    for step in JOB["steps"]:
        assert set(step) == {"name", "run"}, step
        assert "${{" not in step["run"], step["name"]
        checked = subprocess.run(
            ["bash", "-n"], input=step["run"], text=True, capture_output=True, check=False
        )
        assert checked.returncode == 0, checked.stderr


def test_its_tools_are_installed_by_hash_only() -> None:
    installs = [line for step in JOB["steps"] for line in step["run"].splitlines() if "pip install" in line]
    assert installs and all("--require-hashes --only-binary :all:" in line for line in installs)
    for tool in ("cyclonedx-bom", "sigstore", "setuptools", "packaging"):
        assert re.search(rf"^{tool}==\S+ \\\n    --hash=sha256:[0-9a-f]{{64}}", LOCK, re.M), tool


def test_what_is_built_is_described_and_all_of_it_signed() -> None:
    runs = [step["run"].strip() for step in JOB["steps"]]
    parts = [run.rpartition(" ")[2] for run in runs if "images/release.sh" in run]
    assert parts == ["build", "describe", "sign"]
    assert runs[-1].startswith("gh release create") and runs[-1].endswith("build/release/*")
    script = SCRIPT.read_text()
    images = re.search(r"^IMAGES=\((.*)\)$", script, re.M)
    assert images is not None
    assert all((ROOT / "images" / name / "requirements.lock").is_file() for name in images[1].split())


def release(part: str, out: Path, **given: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "OUT": str(out), **given}
    return subprocess.run([str(SCRIPT), part], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("part", ["build", "describe", "sign"])
def test_a_tag_of_another_version_is_no_release(part: str, tmp_path: Path) -> None:
    assert JOB["env"]["TAG"] == "${{ github.ref_name }}"
    done = release(part, tmp_path / "out", TAG=f"v{__version__}0")
    assert done.returncode == 2 and f"is not v{__version__}" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_tag_of_its_version_goes_on(tmp_path: Path) -> None:
    done = release("build", tmp_path, TAG=f"v{__version__}")
    assert "BASE must name an image by its digest" in done.stderr


@pytest.mark.parametrize("part", ["build", "describe"])
def test_without_helm_there_is_no_release(part: str, tmp_path: Path) -> None:
    for name in ("bash", "env", "dirname", "sed", "mkdir"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    bases = {"BASE": f"x{DIGEST}", "SHELL_IMAGE": f"y{DIGEST}", "REGISTRY": "r"}
    done = release(part, tmp_path / "out", PATH=str(tmp_path), PYTHON="/bin/true", **bases)
    assert done.returncode == 2 and "helm is not on the PATH" in done.stderr


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "BASE must name an image by its digest"),
        ({"BASE": "docker.io/library/python:3.11.14-slim-bookworm"}, "BASE must name an image by its digest"),
        ({"BASE": "x@sha256:abc"}, "BASE must name an image by its digest"),
        ({"BASE": f"x{DIGEST}"}, "SHELL_IMAGE must name an image by its digest"),
        ({"BASE": f"x{DIGEST}", "SHELL_IMAGE": f"y{DIGEST}"}, "REGISTRY must name where images are pushed"),
    ],
)
def test_nothing_is_built_on_an_image_that_can_move(given: dict[str, str], says: str, tmp_path: Path) -> None:
    done = release("build", tmp_path, **given)
    assert done.returncode == 2 and says in done.stderr
