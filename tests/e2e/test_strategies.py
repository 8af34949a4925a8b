"""TopK and Summarize by the command line and in pods: charged, counted, the same at any pace."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from checks import refused
from e2e_support import ENDED, FORMULA, MODEL, Manifest, Sim, Sims, combee, result_of
from pods import UID, Cluster

from answering import Reply, Request, answering, in_json
from combee.names import step_name
from combee.plan.types import StepSummary

pytestmark = pytest.mark.e2e

STRATEGIES = ("TopK", "Summarize")
MAIN = {"engineRef": {"name": "main"}}
MODELS = {"task": MAIN, "proposer": MAIN, "embedder": MAIN}
FIXED = {"mode": "Fixed", "size": 20, "reason": "test"}


@pytest.fixture
def small(tmp_path: Path) -> dict[str, Path]:
    """40 train rows and 40 heldOut rows of the real data, under the names that pods look for."""
    paths = {}
    for name, source in (("train", "train"), ("heldOut", "heldout")):
        paths[name] = tmp_path / f"{name}.jsonl"
        lines = (FORMULA / f"{source}.jsonl").read_bytes().splitlines(keepends=True)
        paths[name].write_bytes(b"".join(lines[:40]))
    return paths


def spec(strategy: str, **more: Any) -> dict[str, Any]:
    """A run whose aggregator takes at most six inputs, so that something is left out."""
    return {
        "models": MODELS,
        "aggregation": {"strategy": strategy, "maxFanIn": 6},
        "batching": FIXED,
        "workers": {"concurrency": 8, "parallelism": 2, "hedgeBudget": 0, "waitSeconds": 60},
        **more,
    }


def learned(out: Path) -> list[tuple[str, str]]:
    """Of every iteration: the digests of what its reduce gave and of the ledger after it."""
    steps = {path.name: StepSummary.decode(path.read_bytes()) for path in sorted((out / "steps").iterdir())}
    made = {kind: [s for s in steps.values() if s and s.kind == kind] for kind in ("reduce", "finish")}
    assert len(made["finish"]) == 2 and all(summary.counts["updates"] > 0 for summary in made["reduce"])
    pairs = zip(made["reduce"], made["finish"], strict=True)
    return [(reduce.outputs["updates"], finish.outputs["artifact"]) for reduce, finish in pairs]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_at_another_pace_it_learns_the_same(
    strategy: str,
    quick: Sim,
    common: Sims,
    key: Path,
    manifest: Manifest,
    small: dict[str, Path],
    tmp_path: Path,
) -> None:
    sim = common.shared("--key", key, "--time-scale", "0.01")
    path = manifest(train=small["train"], held_out=small["heldOut"], **spec(strategy))
    words = ["run", "-f", str(path), "--engine", f"main={sim.url}", "-o"]
    done = combee(*words, tmp_path / "whole")
    assert done.returncode in ENDED, done.stderr
    wanted = learned(tmp_path / "whole")

    alone = spec(strategy, workers={"concurrency": 1, "hedgeBudget": 0})
    slow = manifest(name="alone", train=small["train"], held_out=small["heldOut"], **alone)
    done = combee("run", "-f", slow, "--engine", f"main={quick.url}", "-o", tmp_path / "alone")
    assert done.returncode in ENDED, done.stderr
    assert learned(tmp_path / "alone") == wanted


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_it_cost_and_left_out_is_in_the_result(
    strategy: str, sims: Sims, key: Path, manifest: Manifest, small: dict[str, Path], tmp_path: Path
) -> None:
    sim = sims.start("--key", key, "--time-scale", "0")
    path = manifest(train=small["train"], held_out=small["heldOut"], **spec(strategy))
    done = combee("run", "-f", path, "--engine", f"main={sim.url}", "-o", tmp_path / "out")
    assert done.returncode in ENDED, done.stderr
    result = result_of(tmp_path / "out")
    assert result["setup"]["strategy"] == strategy
    retention = [iteration["retention"] for iteration in result["iterations"]]
    levels = [level["level"] for level in retention[0]["levels"]]
    assert levels[-1] == "one call"
    answered = [json.loads(line)["role"] for line in sim.log.read_text().splitlines()]
    if strategy == "TopK":
        usage = result["usage"]["embedder"]
        assert usage["calls"] >= 1 + len(retention) and usage["promptTokens"] > 0 == usage["completionTokens"]
        assert result["models"]["embedder"]["simulated"]
        assert levels == ["nearest", "one call"]
        assert all(one["leftOut"] > 0 for one in retention)
        assert retention[0]["levels"][0]["carried"] < retention[0]["levels"][0]["lessons"]
        assert answered.count("embed") >= usage["calls"] - usage["hits"]
        assert "embedder" in (tmp_path / "out/report.md").read_text()
    else:
        assert "embedder" not in result["usage"] and "embed" not in answered
        assert levels[0] == "summary level 1" and all(one["leftOut"] == 0 for one in retention)
    charged = sum(one["promptTokens"] + one["completionTokens"] for one in result["usage"].values())
    assert charged == next(line["spent"] for line in result["budget"] if line["name"] == "tokens")


@pytest.mark.skipif(sys.platform != "linux", reason="pods are Linux processes")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_pods_learn_what_a_laptop_learns(
    strategy: str, sims: Sims, key: Path, manifest: Manifest, small: dict[str, Path], tmp_path: Path
) -> None:
    sim = sims.start("--key", key, "--time-scale", "0")
    local = manifest(name="pods", train=small["train"], held_out=small["heldOut"], **spec(strategy))
    document = yaml.safe_load(local.read_text())
    document["spec"]["task"]["data"] = {
        "train": {"pvc": {"claimName": "rows", "path": "train.jsonl"}},
        "heldOut": {"configMap": {"name": "rows", "key": "heldOut.jsonl"}},
    }
    remote = tmp_path / "cluster.yaml"
    remote.write_text(yaml.safe_dump(document))
    cluster = Cluster(tmp_path / "cluster", remote, sim.url)
    try:
        state = cluster.to_the_end()
    finally:
        cluster.stop()
    assert ("embedder" in state.usage) == (strategy == "TopK")

    plans, out = tmp_path / "plans", tmp_path / "laptop"
    plans.mkdir()
    for number, plan in cluster.plans.items():
        (plans / f"i{number:03d}.json").write_bytes(plan.to_json())
    done = combee("run", "-f", local, "-o", out, "--engine", f"main={sim.url}", "--plans", plans)
    assert done.returncode in ENDED, done.stderr
    outputs = {
        kind: [cluster.summaries[step_name("pods", UID, number, kind)].outputs for number in cluster.plans]
        for kind in ("reduce", "finish")
    }
    pairs = zip(outputs["reduce"], outputs["finish"], strict=True)
    assert [(one["updates"], other["artifact"]) for one, other in pairs] == learned(out)


def _chat_only(request: Request) -> Reply:
    """It lists its model and knows nothing else, as a server of a generative model does."""
    if request.method == "GET":
        return in_json({"data": [{"id": MODEL, "object": "model", "owned_by": "vllm"}]})
    return in_json({"detail": "Not Found"}, 404)


@pytest.fixture
def chat_only() -> Iterator[str]:
    with answering(_chat_only) as server:
        yield f"{server.url}/v1"


def test_an_endpoint_without_embeddings_is_refused_before_any_work(
    sims: Sims, manifest: Manifest, small: dict[str, Path], tmp_path: Path, chat_only: str
) -> None:
    sim = sims.start("--time-scale", "0")
    models = {**MODELS, "embedder": {"endpoint": {"url": chat_only, "model": MODEL}}}
    given = spec("TopK", models=models)
    path, out = manifest(train=small["train"], held_out=small["heldOut"], **given), tmp_path / "out"
    done = combee("run", "-f", path, "-o", out, "--engine", f"main={sim.url}")
    refused(done, "models.embedder", "gives no embeddings", "spec.models.embedder")
    assert not out.exists() and not sim.answered()
    path = manifest(train=small["train"], held_out=small["heldOut"], **{**given, "models": {"task": MAIN,
     "proposer": MAIN}})  # fmt: skip
    refused(
        combee("run", "-f", path, "-o", out), "strategy TopK without models.embedder", "Add models.embedder"
    )


def test_an_embedder_that_is_not_used_is_not_asked(
    sims: Sims, manifest: Manifest, small: dict[str, Path], tmp_path: Path
) -> None:
    sim = sims.start("--time-scale", "0")
    models = {**MODELS, "embedder": {"engineRef": {"name": "embed"}}}
    engines = [{"name": name, "vllm": {"model": MODEL}} for name in ("main", "embed")]
    given = spec("Naive", models=models, engines=engines)
    path = manifest(train=small["train"], held_out=small["heldOut"], **given)
    done = combee("run", "-f", path, "-o", tmp_path / "out", "--engine", f"main={sim.url}")
    assert done.returncode in ENDED, done.stderr
    assert "embedder" not in result_of(tmp_path / "out")["models"]
