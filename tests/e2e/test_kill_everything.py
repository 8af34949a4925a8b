"""SIGKILL from outside at ten seeded moments of GEPA, of an adapter and of traces as tasks, of TopK and of Summarize: the
same command goes on to the bytes of a run that nothing disturbed, and only what was in flight is asked twice."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e_support import FORMULA, MODEL, ROOT, Sim, Sims
from killing import Killed, survives, survives_all

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="an adapter's processes are Linux processes"),
    pytest.mark.timeout(1500, func_only=True),  # eleven runs in the longest
]
EXAMPLES = ROOT / "examples"
MOMENTS, CONCURRENCY = 10, 8
START = {"work": "Work step by step.", "check": "Check the result."}


@pytest.fixture
def sim(sims: Sims, key: Path) -> Sim:
    return sims.start("--key", key, "--time-scale", "0.01")


def some(folder: Path, train: int, held_out: int) -> dict[str, Any]:
    """The first rows of the Formula data, as ``task.data``."""
    data = {}
    for name, count in (("train", train), ("heldOut", held_out)):
        lines = (FORMULA / f"{name.lower()}.jsonl").read_text().splitlines(keepends=True)
        (folder / f"{name}.jsonl").write_text("".join(lines[:count]))
        data[name] = {"uri": str(folder / f"{name}.jsonl")}
    return data


def written(folder: Path, example: str, size: int, **changes: Any) -> Path:
    """An example with batches of one size, each call asked once, and other fields of ``spec`` changed."""
    document = yaml.safe_load((EXAMPLES / example).read_text())
    document["spec"]["batching"] = {"mode": "Fixed", "size": size, "reason": "test"}
    document["spec"]["engines"][0]["vllm"]["model"] = MODEL
    document["spec"]["workers"] = {"concurrency": CONCURRENCY, "hedgeBudget": 0}
    for name, value in changes.items():
        document["spec"][name] = (document["spec"].get(name) or {}) | value
    (folder / "run.yaml").write_text(yaml.safe_dump(document))
    return folder / "run.yaml"


def beginning(folder: Path) -> dict[str, str]:
    """Two components to begin with."""
    (folder / "start.json").write_text(json.dumps(START))
    return {"uri": str(folder / "start.json")}


def test_gepa(sim: Sim, tmp_path: Path) -> None:
    task = {"data": some(tmp_path, 20, 24), "initialPlaybook": beginning(tmp_path)}
    path = written(tmp_path, "gepa.yaml", 10, task=task)
    survives(Killed(path, sim, CONCURRENCY), tmp_path, MOMENTS, "GEPA 1")


def test_an_adapter_of_gepa(sim: Sim, tmp_path: Path) -> None:
    task = {
        "data": some(tmp_path, 24, 24),
        "initialPlaybook": {"uri": str(EXAMPLES / "data/formula/system_prompt.json")},
    }
    path = written(tmp_path, "adapter.yaml", 12, task=task)
    variables = {"PYTHONPATH": f"{ROOT / 'operator'}:{EXAMPLES / 'adapter'}"}
    # Its rollouts in flight have a limit of their own, beside that of the calls.
    in_flight = (
        CONCURRENCY + yaml.safe_load(path.read_text())["spec"]["task"]["custom"]["adapter"]["concurrency"]
    )
    survives_all(Killed(path, sim, in_flight, variables=variables), tmp_path, MOMENTS, "adapter")


def traces(count: int) -> str:
    """Somebody answered rows of the Formula data wrongly, and wrote it down."""
    lines = []
    for line in (FORMULA / "train.jsonl").read_text().splitlines()[:count]:
        row = json.loads(line)
        said = [
            {"role": "user", "content": row["context"]},
            {"role": "assistant", "content": "It is 3.14159."},
        ]
        outcome = {"success": False, "feedback": f"Expected {row['target']}, got 3.14159."}
        lines.append(json.dumps({"messages": said, "outcome": outcome}) + "\n")
    return "".join(lines)


def test_traces(sim: Sim, tmp_path: Path) -> None:
    (tmp_path / "traces.jsonl").write_text(traces(40))
    task = {"data": {"train": {"uri": str(tmp_path / "traces.jsonl")}}}
    path = written(tmp_path, "traces.yaml", 20, task=task)
    survives_all(Killed(path, sim, CONCURRENCY), tmp_path, MOMENTS, "traces")


@pytest.mark.parametrize("strategy", ["TopK", "Summarize"])
def test_other_strategies(strategy: str, sim: Sim, tmp_path: Path) -> None:
    embedder = {"embedder": {"engineRef": {"name": "main"}}}
    path = written(
        tmp_path,
        "formula.yaml",
        20,
        task={"data": some(tmp_path, 40, 40)},
        models=embedder,
        aggregation={"strategy": strategy, "maxFanIn": 6},
    )
    survives_all(Killed(path, sim, CONCURRENCY), tmp_path, MOMENTS, strategy)
