"""A release, made with the tools that its lock names, without a registry and without an identity."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from combee import __version__

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "chart"))
from chart_tools import program

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what is released, made as the workflow makes it: in a new environment, by hash."""
    folder = tmp_path_factory.mktemp("release")
    tools, python = folder / "tools", folder / "tools" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True, timeout=300)
    locked = ["--require-hashes", "--only-binary", ":all:", "-r", ROOT / "requirements-release.lock"]
    subprocess.run([python, "-m", "pip", "install", "-q", *locked], check=True, timeout=900)
    path = f"{Path(program()).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OUT": str(folder / "out"), "PYTHON": str(python)}
    made = subprocess.run(
        [ROOT / "images/release.sh", "rehearse"], env=environment, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "not rehearsed: " in made.stdout
    return folder / "out"


@pytest.mark.timeout(1500, func_only=True)
@pytest.mark.parametrize("image", ["worker", "operator"])
def test_a_bill_names_each_package_of_the_lock_with_its_hashes(release: Path, image: str) -> None:
    bill = json.loads((release / f"combee-{image}-{__version__}.cdx.json").read_text())
    lock = (ROOT / "images" / image / "requirements.lock").read_text()
    locked = {(name.lower(), version) for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.M)}
    assert {(part["name"].lower(), part["version"]) for part in bill["components"]} == locked
    hashes = {
        named["content"]
        for part in bill["components"]
        for link in part["externalReferences"]
        for named in link.get("hashes", [])
    }
    assert hashes == set(re.findall(r"--hash=sha256:([0-9a-f]{64})", lock))


def test_the_sums_are_of_all_that_is_released(release: Path) -> None:
    sums = dict(reversed(line.split("  ")) for line in (release / "SHA256SUMS").read_text().splitlines())
    files = {path.name for path in release.iterdir()} - {"SHA256SUMS"}
    assert set(sums) == files and f"combee-operator-{__version__}.tgz" in files
    for name, digest in sums.items():
        assert hashlib.sha256((release / name).read_bytes()).hexdigest() == digest, name
