"""A smaller model scores where the evaluator's verdicts take too much: on a laptop and as pods, after kills
and in a replay. The simulated evaluator thinks long before each verdict."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e_support import Sim, Sims, combee, process, result_of
from killing import Killed, files_of, kept
from pods import Cluster
from test_rubric import DATA, SCORES, SPLITS, example

pytestmark = pytest.mark.e2e
SMALL = "HuggingFaceTB/SmolLM2-360M"
ONCE = {"mode": "Fixed", "size": 144, "reason": "test"}
THINKS = ("--judge-thinking", "600", "--judge-flip", "0.02", "--seed", "5", "--served-model-name", SCORES)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    data = [word for name in SPLITS.values() for word in ("--data", DATA / f"{name}.jsonl")]
    assert process("sim", "key", "--task", "reply", *data, "-o", tmp_path / "key.json").returncode == 0
    return tmp_path / "key.json"


@pytest.fixture
def models(sims: Sims, key: Path) -> tuple[Sim, ...]:
    """The model that answers, the evaluator and its proxy."""
    small = ("--judge-flip", "0.02", "--seed", "9", "--served-model-name", SMALL)
    return tuple(sims.start("--key", key, "--time-scale", "0", *more) for more in ((), THINKS, small))


def bounded(folder: Path, tokens: int, **roles: Any) -> Path:
    """The example with a ceiling and a proxy, in one iteration."""
    path = example(folder, **roles)
    document = yaml.safe_load(path.read_text())
    spec = document["spec"]
    spec["batching"], spec["workers"]["concurrency"] = ONCE, 8
    spec["models"]["evaluator"] |= {"ceiling": {"tokens": tokens}, "sampling": {"reasoningTokens": 1000}}
    if "proxy" not in roles:
        vllm = {"model": SMALL, "modelCache": {"claimName": "models"}}
        spec["engines"].append({"name": "small", "vllm": vllm})
        spec["models"]["proxy"] = {"engineRef": {"name": "small"}}
    path.write_text(yaml.safe_dump(document))
    return path


def engines(models: tuple[Sim, ...]) -> list[str]:
    named = zip(("main", "scores", "small"), models, strict=True)
    return [word for name, sim in named for word in ("--engine", f"{name}={sim.url}")]


def learned(path: Path, out: Path, models: tuple[Sim, ...], code: int = 0) -> dict[str, Any]:
    done = process("run", "-f", path, "-o", out, *engines(models))
    assert done.returncode == code, done.stdout + done.stderr
    return result_of(out)


def judges(out: Path) -> dict[str, set[str]]:
    """Who scored, by the kind of step."""
    lines = [json.loads(line) for line in (out / "rollouts.jsonl").read_text().splitlines()]
    return {
        step: {line["evaluatorModel"] for line in lines if line["step"] == step}
        for step in sorted({line["step"] for line in lines})
    }


def test_above_the_ceiling_the_proxy_scores_all_but_gate_after_kills_and_in_a_replay(
    models: tuple[Sim, ...], tmp_path: Path
) -> None:
    path, out = bounded(tmp_path, 800), tmp_path / "out"
    result = learned(path, out, models)
    assert result["outcome"] == "Learned" and result["heldOut"]["gate"]["low"] > 0.1
    scorer = result["profile"]["scorer"]
    assert "over the ceiling of 800 tokens: the proxy scores map, replays and select" in scorer
    assert "all of its interval reaches 0.7" in scorer
    assert scorer.partition("[")[0] in (out / "report.md").read_text()
    assert judges(out) == {
        "evaluate": {SCORES},
        "finish": {SMALL},
        "map": {SMALL},
        "profile": {SCORES},
    }
    usage = result["usage"]
    # The start's answers to select and 50 labels, and two looks at gate.
    assert usage["evaluator"]["calls"] == 80 + 50 + 160
    assert usage["proxy"]["calls"] == result["rollouts"] - 160
    plan = out / "plans" / "i000.json"
    assert json.loads(plan.read_bytes())["scored_by"] == "proxy"
    again, wanted = tmp_path / "again", files_of(out)
    run = Killed(path, models[0], 8, flags=engines(models)[2:])
    for part in (0.25, 0.4, 0.6):
        assert run.killed_at(again, round(part * wanted)) is not None
    run.to_the_end(again)
    assert kept(again) == kept(out) and (again / "plans" / "i000.json").read_bytes() == plan.read_bytes()
    replayed = combee("replay", again, "-f", path, "--json")
    assert replayed.returncode == 0 and json.loads(replayed.stdout)["identical"], replayed.stdout


def test_within_the_ceiling_the_proxy_is_not_asked_and_a_report_says_so(
    models: tuple[Sim, ...], tmp_path: Path
) -> None:
    path, out = bounded(tmp_path, 5000), tmp_path / "out"
    result = learned(path, out, models)
    assert "proxy" not in result["usage"] and not models[2].answered()
    said = "within the ceiling of 5,000 tokens: the evaluator scores, and the proxy is not asked"
    assert said in result["profile"]["scorer"] and set().union(*judges(out).values()) == {SCORES}
    done = process("report", out, "--strategist")
    assert done.returncode == 0 and said in (out / "strategist.md").read_text()


def test_a_proxy_that_the_evaluator_disagrees_with_ends_the_run(
    sims: Sims, key: Path, models: tuple[Sim, ...], tmp_path: Path
) -> None:
    guesses = ("--judge-flip", "0.5", "--served-model-name", SMALL)
    proxy = sims.start("--key", key, "--time-scale", "0", *guesses)
    result = learned(bounded(tmp_path, 800), tmp_path / "out", (*models[:2], proxy), code=5)
    assert result["outcome"] == "Failed" and result["reason"].startswith("ProxyNotCalibrated: ")
    assert result["usage"]["proxy"]["calls"] == 80 and not result["iterations"]


def test_pods_learn_the_same(models: tuple[Sim, ...], tmp_path: Path, clusters: list[Cluster]) -> None:
    named = {"task": "openai/gpt-oss-120b", "proposer": "openai/gpt-oss-120b"}
    named |= {"evaluator": SCORES, "proxy": SMALL}
    urls = dict(zip(named, (models[0], *models), strict=True))
    at = {role: {"endpoint": {"url": urls[role].url, "model": model}} for role, model in named.items()}
    path, out = bounded(tmp_path, 800, **at), tmp_path / "out"
    assert process("run", "-f", path, "-o", out).returncode == 0
    document = yaml.safe_load(path.read_text())
    for split in SPLITS:
        document["spec"]["task"]["data"][split] = {"pvc": {"claimName": "rows", "path": f"{split}.jsonl"}}
    path.write_text(yaml.safe_dump(document))
    cluster = Cluster(tmp_path / "cluster", path, models[0].url)
    clusters.append(cluster)
    state = cluster.to_the_end()
    assert state.outcome is not None and state.outcome.name == "Learned" and state.best is not None
    assert state.best.artifact == result_of(out)["playbook"]["digest"]
    assert state.scored_by == "proxy" == cluster.plans[0].scored_by
    by_pods = Counter({role: used.calls for role, used in state.usage.items()})
    assert by_pods == Counter({role: used["calls"] for role, used in result_of(out)["usage"].items()})
