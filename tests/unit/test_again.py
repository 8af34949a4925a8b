"""What runs once more after the suite, and what the suite ends with then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

AGAIN = Path(__file__).parents[1] / "again.py"
ONCE = """
import pathlib
def test_once():
    there = pathlib.Path("seen")
    first = not there.exists()
    there.touch()
    assert not first
"""
NEVER = "def test_never():\n    assert False\n"
FOUR = "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_four(n):\n    assert False\n"
UNREADABLE = "import what_is_nowhere\n"


def suite(folder: Path, **files: str) -> tuple[int, str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=folder, env=clean, capture_output=True, text=True, timeout=120)

    first = run(sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile")
    again = run(sys.executable, str(AGAIN), str(first.returncode), "3")
    return again.returncode, again.stdout


@pytest.mark.parametrize(
    ("files", "status", "says"),
    [
        ({"once": ONCE, "fine": "def test_fine():\n    pass\n"}, 0, "passed alone"),
        ({"once": ONCE, "never": NEVER}, 1, "failed alone, too"),
        ({"four": FOUR}, 1, ""),
        ({"fine": "def test_fine():\n    pass\n"}, 0, ""),
        ({"unreadable": UNREADABLE, "once": ONCE}, 2, "failed alone, too"),
    ],
)
def test_what_failed_beside_others_has_to_pass_alone(
    tmp_path: Path, files: dict[str, str], status: int, says: str
) -> None:
    ended, told = suite(tmp_path, **files)
    assert ended == status, told
    assert says in told and bool(told) == bool(says)
    assert "fine" not in told, "only what failed runs again"


@pytest.mark.parametrize("status", [0, 2, 3, 130])
def test_a_suite_that_did_not_run_to_its_end_is_not_saved(tmp_path: Path, status: int) -> None:
    failed = tmp_path / ".pytest_cache/v/cache/lastfailed"
    failed.parent.mkdir(parents=True)
    failed.write_text('{"test_once.py::test_once": true}')
    done = subprocess.run([sys.executable, str(AGAIN), str(status), "3"], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stdout) == (status, b"")
