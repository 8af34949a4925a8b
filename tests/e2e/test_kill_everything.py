"""SIGKILL at every kind of write of GEPA, of TextGrad, of MIPRO, of traces as a task, and of a reduce by TopK
and by Summarize: the same command goes on to the bytes of a run that nothing disturbed, and only what was in
flight is asked twice. The long ones: at ten seeded moments."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.harness import calls_of
from e2e_support import FORMULA, MODEL, ROOT, Sim, Sims, result_of
from killing import Killed, survives, survives_all, survives_every_write

pytestmark = [
    pytest.mark.e2e,
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


def diagnosed(sim: Sim, folder: Path) -> Killed:
    """A run that measures its serial baseline first; its curve goes to a no-go or beyond, as it comes."""
    serial = {"method": "ACE", "measure": True, "waived": None}
    path = written(folder, "formula.yaml", 12, task={"data": some(folder, 60, 40)}, serialBaseline=serial)
    return Killed(path, sim, CONCURRENCY)


def test_a_diagnosis_at_every_write(sim: Sim, tmp_path: Path) -> None:
    survives_every_write(diagnosed(sim, tmp_path), tmp_path, after="-profile")
    assert result_of(tmp_path / "whole")["diagnosis"]["examples"] > 0


def test_a_core_and_a_tail(sim: Sim, tmp_path: Path) -> None:
    rules = "\n".join(
        f"[p-{k}] helpful=0 harmful=0 :: On form F-{k:04d} write the year and the office that it is from."
        for k in range(250)
    )
    (tmp_path / "start.md").write_text(f"## FORMS\n{rules}\n")
    task = {"data": some(tmp_path, 20, 24), "initialPlaybook": {"uri": str(tmp_path / "start.md")}}
    method = {"ace": {"retrieval": {"coreTokens": 100, "tailTokens": 100}}}
    path = written(tmp_path, "formula.yaml", 10, task=task, method=method)
    survives_all(Killed(path, sim, CONCURRENCY), tmp_path, 3, "retrieval")
    lines = (tmp_path / "whole" / "rollouts.jsonl").read_text().splitlines()
    asked = {(one["stage"].split()[0], one["promptTokens"]) for one in map(json.loads, lines)}
    assert {"wave", "map", "replay", "select"} <= {stage for stage, _ in asked}
    calls = (row for row in calls_of(tmp_path / "whole", 1) if isinstance(row, list))
    read = {(row[1].split()[0], row[4]) for row in calls if row[0] == "proposer"}
    assert max(prompt for _, prompt in asked) < 1000, "no rollout is shown the whole playbook"
    assert max(prompt for stage, prompt in read if stage == "map") < 2000, "and no reflection"
    assert min(prompt for stage, prompt in read if stage == "leaf") > 4000, "a leaf is: it keeps it"


ROWS = {1: (20, 24), 3: (40, 40)}
"""of train and heldOut, by variants in flight: enough until the front has several, and an iteration more."""


def gepa(sim: Sim, folder: Path, in_flight: int) -> Killed:
    """The example of GEPA on two components."""
    task = {"data": some(folder, *ROWS[in_flight]), "initialPlaybook": beginning(folder)}
    method = {"gepa": {"variantsInFlight": in_flight, "diversity": in_flight > 1}}
    return Killed(written(folder, "gepa.yaml", 10, task=task, method=method), sim, CONCURRENCY)


@pytest.mark.parametrize("in_flight", [pytest.param(1, marks=pytest.mark.long), 3])
def test_gepa_at_every_write(in_flight: int, sim: Sim, tmp_path: Path) -> None:
    survives_every_write(gepa(sim, tmp_path, in_flight), tmp_path)
    built_on = [len(one["builtOn"]) for one in result_of(tmp_path / "whole")["iterations"]]
    assert len(built_on) >= 2
    assert (max(built_on) > 1) == (in_flight > 1), built_on


@pytest.mark.long
def test_gepa(sim: Sim, tmp_path: Path) -> None:
    survives(gepa(sim, tmp_path, 1), tmp_path, MOMENTS, "GEPA 1")


def test_textgrad_at_every_write(sim: Sim, tmp_path: Path) -> None:
    task = {"data": some(tmp_path, 20, 24), "initialPlaybook": beginning(tmp_path)}
    path = written(tmp_path, "textgrad.yaml", 10, task=task, method={"epochs": 1})
    survives_every_write(Killed(path, sim, CONCURRENCY), tmp_path)
    assert len(result_of(tmp_path / "whole")["iterations"]) == 2


def test_mipro_at_every_write(sim: Sim, tmp_path: Path) -> None:
    task = {"data": some(tmp_path, 20, 24), "initialPlaybook": beginning(tmp_path)}
    method = {"epochs": 1, "mipro": {"demonstrations": 2, "minibatch": 6, "probes": 5}}
    path = written(tmp_path, "mipro.yaml", 10, task=task, method=method)
    survives_every_write(Killed(path, sim, CONCURRENCY), tmp_path)
    assert len(result_of(tmp_path / "whole")["iterations"]) == 2


@pytest.mark.long
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


def of_traces(sim: Sim, folder: Path) -> Killed:
    """Two iterations of the example of traces."""
    (folder / "traces.jsonl").write_text(traces(24))
    task = {"data": {"train": {"uri": str(folder / "traces.jsonl")}}}
    return Killed(written(folder, "traces.yaml", 12, task=task), sim, CONCURRENCY)


def test_traces_at_every_write(sim: Sim, tmp_path: Path) -> None:
    survives_every_write(of_traces(sim, tmp_path), tmp_path)


@pytest.mark.long
def test_traces(sim: Sim, tmp_path: Path) -> None:
    survives_all(of_traces(sim, tmp_path), tmp_path, MOMENTS, "traces")


def of_strategy(strategy: str, sim: Sim, folder: Path) -> Killed:
    """Two iterations by a strategy whose one call takes at most six inputs."""
    path = written(
        folder,
        "formula.yaml",
        12,
        task={"data": some(folder, 24, 24)},
        models={"embedder": {"engineRef": {"name": "main"}}},
        aggregation={"strategy": strategy, "maxFanIn": 6},
    )
    # Each attempt asks first whether the embedder answers, which is not remembered.
    return Killed(path, sim, CONCURRENCY + 1)


@pytest.mark.parametrize("strategy", ["TopK", "Summarize"])
def test_other_strategies_at_every_write_of_a_reduce(strategy: str, sim: Sim, tmp_path: Path) -> None:
    """A strategy is a matter of the reduce, which follows the map."""
    survives_every_write(of_strategy(strategy, sim, tmp_path), tmp_path, after="-map")


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["TopK", "Summarize"])
def test_other_strategies(strategy: str, sim: Sim, tmp_path: Path) -> None:
    survives_all(of_strategy(strategy, sim, tmp_path), tmp_path, MOMENTS, strategy)
