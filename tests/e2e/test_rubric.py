"""Replies that no program can score: learned by an evaluator's rubric, on a laptop and as pods."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e_support import ROOT, Sim, Sims, process, result_of
from pods import Cluster

pytestmark = pytest.mark.e2e
DATA = ROOT / "examples" / "data" / "replies"
SPLITS = {"train": "train", "heldOut": "heldout"}
SCORES = "Qwen/Qwen3-8B"


@pytest.fixture
def models(sims: Sims, tmp_path: Path) -> tuple[Sim, Sim]:
    """The model that answers and proposes, and the one that scores."""
    key = tmp_path / "key.json"
    data = [word for name in SPLITS.values() for word in ("--data", DATA / f"{name}.jsonl")]
    made = process("sim", "key", "--task", "reply", *data, "-o", key)
    assert made.returncode == 0 and "304 answers, 12 topics" in made.stdout, made.stderr
    flags = ("--key", key, "--time-scale", "0")
    return sims.start(*flags), sims.start(*flags, "--seed", "5", "--served-model-name", SCORES)


def example(folder: Path, **changes: Any) -> Path:
    """The example, with batches of a fixed size."""
    document = yaml.safe_load((ROOT / "examples" / "replies.yaml").read_text())
    spec = document["spec"]
    spec["batching"] = {"mode": "Fixed", "size": 48, "reason": "test"}
    spec["workers"] = {"hedgeBudget": 0, "parallelism": 2, "concurrency": 32}
    spec["models"] |= changes
    for split, name in SPLITS.items():
        spec["task"]["data"][split]["uri"] = str(folder / f"{split}.jsonl")
        rows = [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "replies.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def rewritten(path: Path, change: Any) -> None:
    """Change the rows of a file one by one."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(change(row)) + "\n" for row in rows))


def engines(models: tuple[Sim, Sim], *more: str) -> list[str]:
    main, scores = models
    named = {"main": main.url, "scores": scores.url, **dict.fromkeys(more, main.url)}
    return [word for name, url in named.items() for word in ("--engine", f"{name}={url}")]


def test_the_example_learns_by_what_the_evaluator_says(models: tuple[Sim, Sim], tmp_path: Path) -> None:
    path, out = example(tmp_path), tmp_path / "out"
    done = process("run", "-f", path, "-o", out, *engines(models))
    assert done.returncode == 0, done.stdout + done.stderr
    result = result_of(out)
    gate, usage = result["heldOut"]["gate"], result["usage"]
    assert result["outcome"] == "Learned" and gate["low"] > 0.1 and result["setup"]["metric"] == "rubric"
    assert "all of its interval reaches 0.7" in result["profile"]["calibration"]
    assert "evaluator" in done.stdout and "Spearman's rho" in (out / "report.md").read_text()
    # One verdict for each rollout that was answered, and one for each label that was compared.
    assert usage["evaluator"]["calls"] == result["rollouts"] + 50 and "referee" not in usage
    assert usage["evaluator"]["hits"] > 0
    assert sum(models[1].answered().values()) == usage["evaluator"]["calls"] - usage["evaluator"]["hits"]
    prices = yaml.safe_load(path.read_text())
    row = {"promptPerMillionTokens": 1, "completionPerMillionTokens": 2}
    prices["spec"]["prices"] = {"currency": "EUR", "models": [{"name": "openai/gpt-oss-120b", **row}]}
    path.write_text(yaml.safe_dump(prices))
    said = process("validate", "-f", path)
    assert said.returncode == 2 and f"models.evaluator ({SCORES})" in said.stderr


def test_a_pair_is_judged_once_and_again_only_for_a_reason(models: tuple[Sim, Sim], tmp_path: Path) -> None:
    """Runs share what is remembered: the second asks nobody, the third, with a reason, the evaluator."""
    path, reason = example(tmp_path), "The service that scored had a fault on Monday"
    document = yaml.safe_load(path.read_text())
    document["spec"]["budget"] |= {"rollouts": 400}
    used, asked = [], []
    for number, again in enumerate(({}, {}, {"scoreAgain": reason})):
        document["spec"]["models"]["evaluator"] |= again
        path.write_text(yaml.safe_dump(document))
        out = tmp_path / f"out{number}"
        if number:
            shutil.copytree(tmp_path / f"out{number - 1}" / "store" / "memo", out / "store" / "memo")
        process("run", "-f", path, "-o", out, *engines(models))
        used.append(result_of(out)["usage"])
        asked.append([sum(sim.answered().values()) for sim in models])
    scored, other = ([usage[role] for usage in used] for role in ("evaluator", "task"))
    assert scored[0]["calls"] > scored[0]["hits"] and asked[1] == asked[0]
    assert scored[1]["hits"] == scored[1]["calls"] == scored[2]["calls"] == scored[0]["calls"]
    assert scored[2]["hits"] == scored[0]["hits"] and other[2]["hits"] == other[2]["calls"]
    assert asked[2][0] == asked[1][0] and asked[2][1] - asked[1][1] == asked[1][1]
    lines = [json.loads(line) for line in (tmp_path / "out2" / "rollouts.jsonl").read_text().splitlines()]
    assert {line["scoredAgain"] for line in lines} == {reason}
    report = (tmp_path / "out2" / "report.md").read_text()
    assert f"answers that were scored before are scored again: {reason}" in report


def test_an_evaluator_that_people_disagree_with_ends_the_run(models: tuple[Sim, Sim], tmp_path: Path) -> None:
    path = example(tmp_path)
    rewritten(
        tmp_path / "train.jsonl", lambda row: row | ({"label": 1 - row["label"]} if "label" in row else {})
    )
    done = process("run", "-f", path, "-o", tmp_path / "out", *engines(models))
    assert done.returncode == 5 and "all of its interval lies below 0.7" in done.stdout + done.stderr
    result = result_of(tmp_path / "out")
    assert result["outcome"] == "Failed" and "EvaluatorNotCalibrated" in result["reason"]
    usage = result["usage"]
    assert usage["evaluator"]["calls"] >= 50 and usage["task"]["calls"] == result["rollouts"]
    assert "in another folder with a copy of this one's store/memo" in " ".join(done.stdout.split())
    asked = sum(models[1].answered().values())
    again = process("run", "-f", path, "-o", tmp_path / "out", *engines(models))
    assert again.returncode == 5 and sum(models[1].answered().values()) == asked


def test_without_labels_a_referee_is_asked_and_without_either_nothing(
    models: tuple[Sim, Sim], tmp_path: Path
) -> None:
    path = example(tmp_path)
    bare = ("id", "context", "target")
    rewritten(tmp_path / "train.jsonl", lambda row: {name: row[name] for name in bare})
    done = process("run", "-f", path, "-o", tmp_path / "none", *engines(models))
    assert done.returncode == 2 and "nothing to calibrate the evaluator with" in done.stderr
    assert not models[0].answered()
    document = yaml.safe_load(path.read_text())
    document["spec"]["models"]["referee"] = {"engineRef": {"name": "main"}}
    path.write_text(yaml.safe_dump(document))
    done = process("run", "-f", path, "-o", tmp_path / "out", *engines(models))
    assert done.returncode == 0, done.stdout + done.stderr
    result = result_of(tmp_path / "out")
    assert result["usage"]["referee"]["calls"] >= 50 and "Spearman" in result["profile"]["calibration"]


def test_pods_learn_the_same(models: tuple[Sim, Sim], tmp_path: Path, clusters: list[Cluster]) -> None:
    main, scores = models
    at = {
        role: {"endpoint": {"url": sim.url, "model": model}}
        for role, sim, model in (
            ("task", main, "openai/gpt-oss-120b"),
            ("proposer", scores, SCORES),
            ("evaluator", scores, SCORES),
        )
    }
    at["evaluator"]["sameAsProposer"] = "a second model costs too much"
    path, out = example(tmp_path, **at), tmp_path / "out"
    done = process("run", "-f", path, "-o", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "scored by the proposer's own model: a second model costs too much" in done.stdout
    document = yaml.safe_load(path.read_text())
    for split in SPLITS:
        document["spec"]["task"]["data"][split] = {"pvc": {"claimName": "rows", "path": f"{split}.jsonl"}}
    path.write_text(yaml.safe_dump(document))
    cluster = Cluster(tmp_path / "cluster", path, main.url)
    clusters.append(cluster)
    state = cluster.to_the_end()
    assert state.outcome is not None and state.outcome.name == "Learned" and state.best is not None
    assert state.best.artifact == result_of(out)["playbook"]["digest"]
    assert state.calibration is not None and state.calibration.verdict == "Calibrated"
