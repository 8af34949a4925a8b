"""Replies that another model scores, after a third has agreed with it, and a fourth in its stead where its
verdicts take too much: learned on a real cluster, each model in a pod of its own, and a laptop with the same
plans learns the very same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_tools import REPOSITORY, Cluster
from laptop import blob, combee_run
from runs import Runs, operating, quickstart

sys.path.insert(0, str(REPOSITORY / "tests" / "e2e"))
from e2e_support import Sims, environment, result_of

from warm import run_program

pytestmark = pytest.mark.timeout(900, func_only=True)
DATA = REPOSITORY / "examples" / "data" / "replies"
SURE = ("--judge-flip=0.02",)
ENGINES: dict[str, tuple[str, ...]] = {
    "main": ("openai/gpt-oss-120b",),
    "scores": ("Qwen/Qwen3-8B", "--judge-thinking=600", *SURE),
    "small": ("HuggingFaceTB/SmolLM2-360M", *SURE),
    "compared": ("mistralai/Ministral-8B",),
}
"""The models, and how each is simulated."""
MODEL_ROLES = ("task", "proposer", "evaluator", "proxy", "referee")


def rows(split: str) -> str:
    """The example's rows without the labels of people, so that a referee is asked."""
    found = [json.loads(line) for line in (DATA / f"{split}.jsonl").read_text().splitlines()]
    return "".join(
        json.dumps({name: row[name] for name in ("id", "context", "target")}) + "\n" for row in found
    )


def replies() -> list[dict[str, Any]]:
    """The example's task, with the quickstart's simulated engines and store."""
    *others, run = sorted(quickstart(), key=lambda one: one["kind"] == "PromptLearningRun")
    example = yaml.safe_load((REPOSITORY / "examples" / "replies.yaml").read_text())["spec"]
    spec, (engine,) = run["spec"], run["spec"]["engines"]
    spec["task"] = example["task"] | {"data": spec["task"]["data"]}
    spec["engines"] = [
        {
            **engine,
            "name": name,
            "vllm": {**engine["vllm"], "model": model, "args": ["--time-scale=0", *flags]},
        }
        for name, (model, *flags) in ENGINES.items()
    ]
    further = {"proxy": "small", "referee": "compared"}
    spec["models"] = example["models"] | {
        role: {"engineRef": {"name": name}} for role, name in further.items()
    }
    thinks = {"ceiling": {"tokens": 800}, "sampling": {"reasoningTokens": 1000}}
    spec["models"]["evaluator"] |= thinks
    spec["batching"] = {"mode": "Fixed", "size": 48, "reason": "sizes that no clock has a say in"}
    spec["stopping"] = example["stopping"]
    for one in others:
        if one["kind"] == "ConfigMap":
            one["data"] = {"train.jsonl": rows("train"), "heldout.jsonl": rows("heldout")}
    return [*others, run]


def test_a_run_learns_by_what_an_evaluator_says_that_a_referee_agrees_with(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    runs = Runs(cluster, namespace)
    with operating(cluster, namespace, tmp_path / "operator.log"):
        cluster.reader.apply(replies(), namespace)
        status = runs.ended()
    print(yaml.safe_dump(status))
    assert status["phase"] == "Learned", status["message"]
    conditions = {one["type"]: one for one in status["conditions"]}
    calibrated, proxied = conditions["EvaluatorCalibrated"], conditions["ProxyCalibrated"]
    assert "Spearman's rho is 0." in calibrated["message"]
    assert (proxied["status"], proxied["reason"]) == ("True", "Calibrated")
    assert "over the ceiling of 800 tokens: the proxy scores" in proxied["message"]
    calls = {role: usage["calls"] for role, usage in status["usage"].items() if "calls" in usage}
    assert set(calls) == set(MODEL_ROLES) and calls["referee"] >= 50
    runs.plans(tmp_path / "plans")
    profile = locally(tmp_path)["profile"]
    assert (profile["calibration"], profile["scorer"]) == (calibrated["message"], proxied["message"])
    assert blob(tmp_path, runs.playbook()).exists()


def locally(folder: Path) -> dict[str, Any]:
    """Learn on this machine from the plans of the run, with the same models; returns the result."""
    run = replies()[-1]
    key = folder / "key.json"
    data = [word for name in ("train", "heldout") for word in ("--data", str(DATA / f"{name}.jsonl"))]
    made = run_program(["combee", "sim", "key", "--task", "reply", *data, "-o", str(key)], environment())
    assert made.returncode == 0, made.stderr
    flags = ["--plans", str(folder / "plans")]
    for split, name in {"train": "train", "heldOut": "heldout"}.items():
        (folder / f"{name}.jsonl").write_text(rows(name))
        flags += ["--data", f"{split}={folder / name}.jsonl"]
    sims = Sims(folder)
    for name, (model, *how) in ENGINES.items():
        sim = sims.start("--key", str(key), "--time-scale", "0", "--served-model-name", model, *how)
        flags += ["--engine", f"{name}={sim.url}"]
    try:
        combee_run(run, folder, flags)
    finally:
        sims.stop()
    return result_of(folder / "out")
