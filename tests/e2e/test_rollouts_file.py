"""``rollouts.jsonl``: every rollout has its line, the lines add up to the result, and none quotes a row."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from e2e_support import ENDED, FORMULA, MODEL, Manifest, Sim, combee, result_of

pytestmark = pytest.mark.e2e
PRIVATE = (
    "jane.doe@example.com",
    "+49-30-1234567",
    "DE89370400440532013000",
    "sk-4f1dNOBODYMAYSEETHIS99abcdef0123",
    "4111-1111-1111-1111",
)


def lines_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "rollouts.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("method", ["ACE", "GEPA"])
def test_the_lines_add_up_to_the_result(
    method: str, quick: Sim, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    path = manifest(
        train=rows(20),
        held_out=few,
        method={"type": method},
        batching={"mode": "Fixed", "size": 10, "reason": "test"},
        workers={"hedgeBudget": 0},
    )
    done = combee("run", "-f", path, "-o", tmp_path / "out", "--engine", f"main={quick.url}")
    assert done.returncode in ENDED, done.stderr
    lines, result = lines_of(tmp_path / "out"), result_of(tmp_path / "out")
    assert len(lines) == result["rollouts"] > 0
    for name in ("promptTokens", "completionTokens", "cachedTokens", "lostTokens"):
        assert sum(line[name] for line in lines) == result["usage"]["task"][name]
    start = [line["score"] for line in lines if line["step"] == "profile"]
    assert sum(start) / len(start) == pytest.approx(result["heldOut"]["baseline"]["select"])
    trained = [line for line in lines if line["stage"] == "map" and line["iteration"] == 1]
    assert {line["split"] for line in trained} == {"train"}
    first = {line["example"]: line["score"] for line in reversed(trained)}
    assert sum(first.values()) / len(first) == pytest.approx(result["iterations"][0]["trainScore"])
    gate = result["heldOut"]["gate"]
    if gate is not None:
        best = [line for line in lines if line["stage"] == "gate best"]
        assert sum(line["score"] for line in best) / len(best) == pytest.approx(gate["best"])
        learned = hashlib.sha256((tmp_path / "out" / "prompt.md").read_bytes()).hexdigest()
        assert {line["promptHash"] for line in best} == {learned}
    assert {line["servingModel"] for line in lines} == {line["proposerModel"] for line in lines} == {MODEL}
    timed = {one["step"]: one for one in result["durations"]}
    called = sum(one["calls"]["n"] for one in timed.values() if one["calls"])
    assert called == sum(use["calls"] for use in result["usage"].values())
    assert timed["map"]["steps"]["n"] == timed["finish"]["steps"]["n"] == len(result["iterations"])
    assert {line["evaluatorModel"] for line in lines} == {line["gpuSeconds"] for line in lines} == {None}


def test_no_line_holds_what_looks_private(quick: Sim, manifest: Manifest, few: Path, tmp_path: Path) -> None:
    train = tmp_path / "train.jsonl"
    whole = (FORMULA / "train.jsonl").read_text().splitlines()[:10]
    with train.open("w") as file:
        for number, line in enumerate(whole):
            row = json.loads(line)
            planted = PRIVATE[number % len(PRIVATE)]
            row |= {"id": f"n{number}:{planted}", "context": f"{row['context']} For {planted}."}
            file.write(json.dumps(row) + "\n")
    path = manifest(train=train, held_out=few, batching={"mode": "Fixed", "size": 10, "reason": "test"})
    done = combee("run", "-f", path, "-o", tmp_path / "out", "--engine", f"main={quick.url}")
    assert done.returncode in ENDED, done.stderr
    text = (tmp_path / "out" / "rollouts.jsonl").read_text()
    assert [planted for planted in PRIVATE if planted in text] == []
    assert "Use formula" not in text
    ids = {line["example"] for line in lines_of(tmp_path / "out") if line["split"] == "train"}
    assert len([one for one in ids if "[" in one]) >= len(PRIVATE)
