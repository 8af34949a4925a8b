"""The sensitivity sweep in small: its command, its files, and that its shortcut changes no answer."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e_support import ENDED, FORMULA, ROOT, Manifest, Sims, environment, process, result_of

pytestmark = pytest.mark.e2e
CELLS = ["default", "--reading-length 2000"]


def sweep(*arguments: str | Path, module: str = "sensitivity") -> subprocess.CompletedProcess[str]:
    path = f"{ROOT / 'operator'}:{ROOT}"
    return subprocess.run(
        [sys.executable, "-m", f"bench.{module}", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(PYTHONPATH=path),
        timeout=300,
    )


def test_two_cells_of_the_sweep(tmp_path: Path) -> None:
    page = (
        "# Words\n\n<!-- made by make sensitivity: begin -->\nold\n"
        "<!-- made by make sensitivity: end -->\nmore\n"
    )
    (tmp_path / "sensitivity.md").write_text(page)
    wanted = [f"--cell={cell}" for cell in CELLS]
    flags = (
        "--out",
        tmp_path,
        "--docs",
        tmp_path,
        "--seeds",
        "1",
        "--rows",
        "40",
        "--processes",
        "2",
        *wanted,
    )
    done = sweep(*flags)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    found = json.loads((tmp_path / "sensitivity.json").read_text())
    assert found["simulated"] is True
    assert list(found["cells"]) == CELLS
    assert len(found["arms"]) == 16 and len(found["differences"]) == 14
    assert {arm["arm"] for arm in found["arms"]} == {
        "Replay",
        "Support",
        "Off",
        "Model",
        "Naive@10",
        "Naive@25",
        "Naive",
        "Sequential",
    }
    assert "simulated model" in done.stdout
    text, svg = (tmp_path / "sensitivity.md").read_text(), (tmp_path / "sensitivity.svg").read_bytes()
    assert text.startswith("# Words") and text.endswith("more\n") and "old" not in text
    again = sweep(*flags)
    assert again.returncode == 0 and again.stdout == done.stdout
    assert again.stderr == ""  # nothing was run twice
    assert (tmp_path / "sensitivity.svg").read_bytes() == svg


def test_the_papers_choices_are_changed_one_at_a_time(tmp_path: Path) -> None:
    names = ("paper", "p1", "unshuffled", "group-by")
    flags = ("--out", tmp_path, "--rows", "24", "--seeds", "2", *(f"--arm={name}" for name in names))
    done = sweep(*flags, module="ablations")
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    assert (tmp_path / "ablations.md").read_text().endswith(done.stdout) and "Simulated model" in done.stdout
    rows = [
        line.split(" | ") for line in done.stdout.splitlines() if line.startswith(("| formula", "| finer"))
    ]
    assert [row[0] for row in rows] == ["| formula"] * 4 + ["| finer"] * 4
    assert [bool(row[3]) for row in rows] == [False, True, True, True] * 2
    assert {row[5] for row in rows} == {"2 |"}
    (runs,) = tmp_path.glob("ablations-*.runs.jsonl")
    kept = [json.loads(line) for line in runs.read_text().splitlines()]
    by = {(row["task"], row["arm"], row["seed"]): row for row in kept}
    assert len(by) == len(kept) == 16
    # Each change changes something: it reaches the product.
    assert all(
        by[t, "unshuffled", 1] != {**by[t, "p1", 1], "arm": "unshuffled"} for t in ("formula", "finer")
    )
    svg = (tmp_path / "ablations.svg").read_bytes()
    again = sweep(*flags, module="ablations")
    assert (again.stdout, again.stderr) == (done.stdout, "")  # nothing was run twice
    assert (tmp_path / "ablations.svg").read_bytes() == svg


def test_without_the_wire_the_product_learns_the_same(
    sims: Sims,
    key: Path,
    manifest: Manifest,
    rows: Callable[[int], Path],
    tmp_path: Path,
) -> None:
    from bench import inprocess

    from combee.algo.membership import split_select_gate
    from combee.sim.params import Law

    batching = {"mode": "Fixed", "size": 25, "reason": "two iterations"}
    stopping = {"patience": 1000, "evaluateEvery": 100_000}
    held_out_file = tmp_path / "heldout60.jsonl"
    held_out_file.write_bytes(
        b"".join((FORMULA / "heldout.jsonl").read_bytes().splitlines(keepends=True)[:60])
    )
    path = manifest(
        name="wire", train=rows(50), held_out=held_out_file, batching=batching, stopping=stopping, seed=3
    )
    sim = sims.start("--key", key, "--time-scale", "0", "--seed", "3")
    done = process("run", "-f", path, "-o", tmp_path / "out", "--engine", f"main={sim.url}")
    assert done.returncode in ENDED, done.stderr
    iterations = result_of(tmp_path / "out")["iterations"]

    task = inprocess.task_for("Formula")
    train = task.read_rows(rows(50).read_bytes().splitlines(keepends=True), "train")
    held_out = task.read_rows(held_out_file.read_bytes().splitlines(keepends=True), "heldOut")
    run = inprocess.formula_run("direct", size=25, seed=3, aggregation={})
    learnt = asyncio.run(inprocess.learn(run, (train, held_out), inprocess.simulated(3, Law()), {}))
    select, _ = split_select_gate(list(learnt.scores), held_out.digest)
    scored = len(select)  # by the last iteration: the only one that is scored
    assert learnt.calls == sum(one["calls"] for one in iterations) - scored
    assert learnt.rollouts == sum(one["rollouts"] for one in iterations) - scored
    mean = sum(learnt.scores[id_] for id_ in select) / scored
    assert mean == pytest.approx(iterations[-1]["select"], abs=1e-6)
