"""What a run leaves is what its models were shown, and another run can start from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e_support import ENDED, Manifest, Sim, combee, result_of
from heard import heard

from combee.names import COMPONENTS_KEY, LESSONS_FILE, PROMPT_KEY

pytestmark = pytest.mark.e2e
OWN = """\
Round half up, never to even.

## FORMULAS
Keep the units in view.
[own-1] helpful=0 harmful=0 :: Return on equity is net income over equity.

"""
"""A text of the user's own, which ends in a blank line."""
PARTS = {"ask": "Answer with the number alone.\n", "check": "Check the units."}
FIXED = {"mode": "Fixed", "size": 100, "reason": "test"}


@pytest.fixture
def starting_from(manifest: Manifest, rows: Any) -> Callable[..., Path]:
    """Writes a manifest whose run starts from a file; of a few examples, where ``examples`` says so."""

    def write(initial: Path | None, method: str = "ACE", examples: int = 200, **spec: Any) -> Path:
        path = manifest(method={"type": method}, train=rows(examples), batching=FIXED, **spec)
        document = yaml.safe_load(path.read_text())
        if initial is not None:
            document["spec"]["task"]["initialPlaybook"] = {"uri": str(initial)}
        path.write_text(yaml.safe_dump(document))
        return path

    return write


@pytest.mark.parametrize(
    ("method", "own"), [("ACE", ""), ("ACE", OWN), ("GEPA", OWN), ("GEPA", json.dumps(PARTS))]
)
def test_prompt_md_is_to_the_byte_what_the_model_is_shown(
    method: str, own: str, quick: Sim, starting_from: Callable[..., Path], tmp_path: Path
) -> None:
    given, out = tmp_path / "own.txt", tmp_path / "out"
    given.write_text(own)
    path = starting_from(given if own else None, method)
    with heard(quick.url) as model:
        learned = combee("run", "-f", path, "-o", out, "--engine", f"main={model.url}")
    assert learned.returncode == 0, learned.stderr
    prompt, result = (out / PROMPT_KEY).read_bytes().decode(), result_of(out)
    assert prompt and result["playbook"]["text"] == prompt
    digest = hashlib.sha256(prompt.encode()).hexdigest()
    assert (out / "store" / "blobs" / digest[:2] / digest).exists(), "what finish kept is the same"
    shown = [system for system in model.systems if f"\n\n{prompt}\n" in system]
    assert len(shown) >= result["data"]["heldOut"]["gate"], "the best one is tried on every example of gate"
    if method == "ACE":
        assert prompt.startswith(own.strip()) and all(system.endswith(f"\n\n{prompt}\n") for system in shown)
    assert (out / COMPONENTS_KEY).exists() == (method == "GEPA")


@pytest.mark.parametrize(
    ("method", "file"), [("ACE", PROMPT_KEY), ("GEPA", PROMPT_KEY), ("GEPA", COMPONENTS_KEY)]
)
def test_another_run_starts_from_it_and_shows_the_same_bytes(
    method: str, file: str, quick: Sim, starting_from: Callable[..., Path], few: Path, tmp_path: Path
) -> None:
    given, first, second = tmp_path / "own.txt", tmp_path / "first", tmp_path / "second"
    given.write_text(OWN if method == "ACE" else json.dumps(PARTS))
    learned = combee("run", "-f", starting_from(given, method), "-o", first, "--engine", f"main={quick.url}")
    assert learned.returncode == 0, learned.stderr
    again = starting_from(first / file, method, examples=20, held_out=few, name="again")
    with heard(quick.url) as model:
        done = combee("run", "-f", again, "-o", second, "--engine", f"main={model.url}")
    assert done.returncode in ENDED, done.stderr
    assert f"\n\n{(first / PROMPT_KEY).read_bytes().decode()}\n" in model.systems[0]


@pytest.mark.parametrize("method", ["ACE", "GEPA"])
def test_notes_for_people_are_refused_before_any_call(
    method: str, quick: Sim, starting_from: Callable[..., Path], few: Path, tmp_path: Path
) -> None:
    given, out = tmp_path / "own.txt", tmp_path / "out"
    given.write_text(OWN)
    path = starting_from(given, method, examples=20, held_out=few)
    made = combee("run", "-f", path, "-o", out, "--engine", f"main={quick.url}")
    assert made.returncode in ENDED, made.stderr
    notes = starting_from(out / LESSONS_FILE, method, examples=20, held_out=few, name="again")
    with heard(quick.url) as model:
        flags = ("-f", notes, "--engine", f"main={model.url}")
        refusals = [combee("preview", *flags), combee("run", *flags, "-o", tmp_path / "again")]
    assert not model.requests and not (tmp_path / "again").exists()
    for refused in refusals:
        assert refused.returncode == 2
        assert f"{out / LESSONS_FILE}: this is lessons.md" in refused.stderr
        assert "Give prompt.md of the same run, or prompt.json where it has one" in refused.stderr
