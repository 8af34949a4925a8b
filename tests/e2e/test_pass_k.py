"""A run whose closing look is by pass^k: each row of gate several times, with its score from all of them."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from e2e_support import Manifest, Sim, combee, result_of
from pods import Cluster

from combee.algo.stats import paired_difference

pytestmark = pytest.mark.e2e
K, ROLLOUTS = 2, 3


def with_pass_k(manifest: Manifest, rows: object) -> Path:
    batching = {"mode": "Fixed", "size": 60, "reason": "test"}
    workers = {"hedgeBudget": 0, "parallelism": 2, "concurrency": 32}
    path = manifest(train=rows(60), batching=batching, workers=workers)  # type: ignore[operator]
    document = yaml.safe_load(path.read_text())
    document["spec"]["task"] |= {"passK": {"k": K, "rollouts": ROLLOUTS}}
    document["spec"]["models"]["task"]["sampling"] = {"temperature": 1.0}
    path.write_text(yaml.safe_dump(document))
    return path


def test_gate_is_by_pass_k_and_pods_find_the_same(
    quick: Sim, manifest: Manifest, rows: object, tmp_path: Path, clusters: list[Cluster]
) -> None:
    path, out = with_pass_k(manifest, rows), tmp_path / "out"
    words = ("-f", path, "--engine", f"main={quick.url}")
    seen = combee("preview", *words)
    done = combee("run", *words, "-o", out)
    assert done.returncode in (0, 6), done.stdout + done.stderr
    result = result_of(out)
    gate, rows_of_gate = result["heldOut"]["gate"], result["data"]["heldOut"]["gate"]
    assert result["setup"]["metric"] == "accuracy, pass^2 of 3 rollouts"
    assert f"{2 * ROLLOUTS * rows_of_gate:,} rollouts" in seen.stdout, "kept for the look"
    right = defaultdict[str, dict[str, list[bool]]](lambda: defaultdict(list))
    for line in (out / "rollouts.jsonl").read_text().splitlines():
        one = json.loads(line)
        if one["split"] == "gate":
            right[one["stage"].split()[1]][one["example"]].append(one["correct"])
    scores = {
        side: {row: math.comb(sum(each), K) / math.comb(ROLLOUTS, K) for row, each in of.items()}
        for side, of in right.items()
    }
    assert {len(each) for of in right.values() for each in of.values()} == {ROLLOUTS}
    assert sum(0 < sum(each) < ROLLOUTS for of in right.values() for each in of.values()) > 0
    paired = paired_difference(scores["baseline"], scores["best"], seed=7)
    assert [gate[name] for name in ("gain", "low", "high", "n")] == pytest.approx(
        [paired.mean, paired.low, paired.high, rows_of_gate]
    )
    document = yaml.safe_load(path.read_text())
    data = document["spec"]["task"]["data"]
    for split in ("train", "heldOut"):
        (tmp_path / f"{split}.jsonl").write_bytes(Path(data[split]["uri"]).read_bytes())
        data[split] = {"pvc": {"claimName": "rows", "path": f"{split}.jsonl"}}
    path.write_text(yaml.safe_dump(document))
    cluster = Cluster(tmp_path / "cluster", path, quick.url)
    clusters.append(cluster)
    state = cluster.to_the_end()
    assert state.facts is not None and state.facts.look_rollouts == 2 * ROLLOUTS * rows_of_gate
    assert state.best is not None and state.best.artifact == result["playbook"]["digest"]
