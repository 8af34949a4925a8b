"""``combee run`` that learns without rows which are forgotten (simulated model)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from e2e_support import ENDED, Manifest, Sim, combee

pytestmark = pytest.mark.e2e

Rows = Callable[[int], Path]
BATCH = {"mode": "Fixed", "size": 12, "reason": "test"}
LEARNED = ("prompt.md", "artifact.json", "lessons.md")


def run(path: Path, out: Path, sim: Sim, **data: Path) -> dict[str, bytes]:
    """What a run leaves of what it learned. ``data``: files that stand for the manifest's."""
    flags = [word for name, one in data.items() for word in ("--data", f"{name}={one}")]
    done = combee("run", "-f", path, "-o", out, "--engine", f"main={sim.url}", *flags)
    assert done.returncode in ENDED, done.stderr
    return {name: (out / name).read_bytes() for name in LEARNED}


def split(path: Path, *forgotten: str) -> dict[str, Any]:
    return {"uri": str(path), **({"forgotten": list(forgotten)} if forgotten else {})}


def blanked(path: Path, *lines: str) -> Path:
    """A copy of a file in which these lines are blank, so that the others keep their numbers."""
    rows = path.read_bytes().splitlines(keepends=True)
    copy = path.with_name(f"{path.stem}-blanked.jsonl")
    copy.write_bytes(b"".join(b"\n" if str(n) in lines else row for n, row in enumerate(rows, 1)))
    return copy


@pytest.mark.parametrize(
    ("aggregation", "size"),
    [
        pytest.param({"strategy": "ParallelScan"}, 12, id="group-by"),
        pytest.param({"strategy": "ParallelScan", "merge": "Model"}, 12, id="tree"),
        pytest.param({"strategy": "Summarize"}, 12, id="summaries"),
        pytest.param({"strategy": "Sequential"}, 1, id="one at a time"),
    ],
)
def test_a_forgotten_row_makes_no_difference(
    quick: Sim,
    manifest: Manifest,
    rows: Rows,
    few: Path,
    tmp_path: Path,
    aggregation: dict[str, Any],
    size: int,
) -> None:
    """Whether it is in the file or not: no byte of what is learned comes from it."""
    train = rows(36)
    data = {"train": split(train, "5", "17"), "heldOut": split(few, "3")}
    path = manifest(
        task={"type": "Formula", "data": data}, batching=BATCH | {"size": size}, aggregation=aggregation
    )
    there = run(path, tmp_path / "there", quick)
    gone = {"train": blanked(train, "5", "17"), "heldOut": blanked(few, "3")}
    assert there == run(path, tmp_path / "gone", quick, **gone)
    assert json.loads(there["artifact.json"])["forgotten"] == ["17", "5", "heldOut 3"]


def test_a_forgotten_trace_makes_no_difference(
    quick: Sim, manifest: Manifest, rows: Rows, tmp_path: Path
) -> None:
    path = tmp_path / "traces.jsonl"
    traces = []
    for number, line in enumerate(rows(16).read_text().splitlines()):
        row = json.loads(line)
        said = [("user", row["context"]), ("assistant", "It is 3.14159.")]
        messages = [{"role": role, "content": text} for role, text in said]
        outcome = {"success": False, "feedback": f"Expected {row['target']}, got 3.14159."}
        traces.append(json.dumps({"trace_id": f"call-{number}", "messages": messages, "outcome": outcome}))
    path.write_text("\n".join([*traces, ""]))
    task = {"type": "Traces", "data": {"train": split(path, "call-5")}}
    spec = {"task": task, "batching": BATCH | {"size": 6}, "aggregation": {"verify": "Off"}}
    left = run(manifest(**spec), tmp_path / "there", quick)
    path.write_text("\n".join([*traces[:5], *traces[6:], ""]))
    assert left == run(tmp_path / "run.yaml", tmp_path / "gone", quick)
    assert b"call-4@" in left["artifact.json"] and b"call-5@" not in left["artifact.json"]
