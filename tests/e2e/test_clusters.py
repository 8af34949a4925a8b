"""A run whose rows belong to clusters: its scores and intervals are over these, on a laptop and as pods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from e2e_support import FORMULA, ROOT, Manifest, Sim, combee, process, result_of
from pods import Cluster

from combee.algo.clusters import by_cluster
from combee.algo.stats import paired_difference

pytestmark = pytest.mark.e2e
CUSTOMERS = 60


def clustered(manifest: Manifest, rows: object, tmp_path: Path) -> Path:
    held_out = tmp_path / "heldOut.jsonl"
    given = [json.loads(line) for line in (FORMULA / "heldout.jsonl").read_text().splitlines()]
    named = [row | {"customer": f"customer {n * n % CUSTOMERS}"} for n, row in enumerate(given)]
    held_out.write_text("".join(json.dumps(row) + "\n" for row in named))
    batching = {"mode": "Fixed", "size": 100, "reason": "test"}
    workers = {"hedgeBudget": 0, "parallelism": 2, "concurrency": 32}
    path = manifest(train=rows(100), held_out=held_out, batching=batching, workers=workers)  # type: ignore[operator]
    document = yaml.safe_load(path.read_text())
    document["spec"]["task"]["clusterBy"] = "customer"
    path.write_text(yaml.safe_dump(document))
    return path


def test_gate_is_over_customers_and_pods_find_the_same(
    quick: Sim, manifest: Manifest, rows: object, tmp_path: Path, clusters: list[Cluster]
) -> None:
    path, out = clustered(manifest, rows, tmp_path), tmp_path / "out"
    seen = combee("preview", "-f", path, "--engine", f"main={quick.url}")
    done = combee("run", "-f", path, "-o", out, "--engine", f"main={quick.url}")
    assert done.returncode in (0, 6), done.stdout + done.stderr
    result = result_of(out)
    gate, half = result["heldOut"]["gate"], result["data"]["heldOut"]["gate"]
    assert 5 < gate["n"] < CUSTOMERS / 2 + 1 < half and f"with {gate['n']} gate clusters" in seen.stdout
    assert result["setup"]["metric"] == "accuracy, clustered by customer"
    (record,) = [
        json.loads(blob.read_bytes())
        for blob in (out / "store").rglob("*")
        if blob.is_file()
        and blob.read_bytes().startswith(b'{"baseline": {')
        and b'"clusters"' in blob.read_bytes()
    ]
    before, after = (by_cluster(record[side], record["clusters"]) for side in ("baseline", "best"))
    paired = paired_difference(before, after, seed=7)
    assert [gate[name] for name in ("gain", "low", "high")] == pytest.approx(
        [paired.mean, paired.low, paired.high]
    )
    assert "customer 1" not in json.dumps(record), "names of clusters are kept nowhere"
    document = yaml.safe_load(path.read_text())
    data = document["spec"]["task"]["data"]
    (tmp_path / "train.jsonl").write_bytes(Path(data["train"]["uri"]).read_bytes())
    for split in ("train", "heldOut"):
        data[split] = {"pvc": {"claimName": "rows", "path": f"{split}.jsonl"}}
    path.write_text(yaml.safe_dump(document))
    cluster = Cluster(tmp_path / "cluster", path, quick.url)
    clusters.append(cluster)
    state = cluster.to_the_end()
    assert state.facts is not None and state.facts.gate_units == gate["n"]
    assert state.best is not None and state.best.artifact == result["playbook"]["digest"]


def test_an_audit_is_over_customers_as_its_run_is(
    quick: Sim, manifest: Manifest, rows: object, tmp_path: Path
) -> None:
    path, out = clustered(manifest, rows, tmp_path), tmp_path / "out"
    words = ("-f", path, "--engine", f"main={quick.url}")
    done = combee("run", *words, "-o", out)
    assert done.returncode == 0, done.stdout + done.stderr
    audited = combee("audit", out, *words, "--yes")
    assert audited.returncode in (0, 6), audited.stdout + audited.stderr
    made, gate = json.loads((out / "audit" / "audit.json").read_text()), result_of(out)["heldOut"]["gate"]
    assert made["rescored"]["n"] == made["pooled"]["n"] == gate["n"] < CUSTOMERS / 2 + 1


def test_a_class_of_ones_own_is_the_metric(
    quick: Sim, manifest: Manifest, rows: object, tmp_path: Path
) -> None:
    """The class that docs/evaluator.md shows: fractions by it, from map to gate, over customers."""
    path, out = clustered(manifest, rows, tmp_path), tmp_path / "out"
    page = (ROOT / "docs/evaluator.md").read_text()
    (tmp_path / "scores.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    document = yaml.safe_load(path.read_text())
    document["spec"]["task"] |= {"type": "Custom", "custom": {"class": "scores:WithinTenPercent"}}
    path.write_text(yaml.safe_dump(document))
    found = f"{ROOT / 'operator'}:{tmp_path}"
    flags = ("run", "-f", path, "-o", out, "--engine", f"main={quick.url}")
    done = process(*flags, PYTHONPATH=found)
    assert done.returncode in (0, 3, 6), done.stdout + done.stderr
    result = result_of(out)
    assert result["setup"]["task"] == "Custom"
    lines = [json.loads(line) for line in (out / "rollouts.jsonl").read_text().splitlines()]
    assert any(0 < line["score"] < 1 for line in lines), "fractions, not right and wrong alone"
