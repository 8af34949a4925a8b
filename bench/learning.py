"""Learning speed in modelled time: strategies compared on the paper's 250 Formula rows, one model a seed."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bench.harness import COMBEE, FORMULA, ROOT, Row, environment, formula_key, formula_rows, simulated

SEEDS = 10
"""Of fewer the interval over seeds is too wide to show anything of a loop."""
ROWS = 250
SLOTS = 256
ALL_SLOTS = (8, 64, SLOTS)
SEQUENTIAL, WHOLE = "Sequential", "ParallelScan@250"
"""``WHOLE`` is what the shipped manifest chooses on 64 and 256 slots (``ROWS=worlds-batches``). Beside
servers that answer at once it would choose by the client's own time, which is no row of this table."""
PLAIN = ("Naive@10", "Naive@25")
AT_100, BEST = "ParallelScan:Duplicate@100", "ParallelScan:Duplicate@250"
OURS = (WHOLE, "ParallelScan@100", AT_100, BEST)
STRATEGIES = (SEQUENTIAL, *PLAIN, *OURS)
Rows = dict[str, dict[str, Any]]
"""A row of compare.json by strategy, all on one number of slots."""


@contextmanager
def worlds(folder: Path) -> Iterator[list[str]]:
    """A simulated model for each seed: other rules are unknown to it. Their URLs, in order."""
    with ExitStack() as stack:
        key = formula_key(folder)
        flags = ("--key", key, "--time-scale", "0", "--seed")
        yield [stack.enter_context(simulated(folder, *flags, str(seed))) for seed in range(SEEDS)]


@cache
def comparison() -> tuple[dict[int, Rows], Path, tempfile.TemporaryDirectory[str]]:
    """(rows by slots, the comparison's folder, what keeps the folder): made once, every row reads it."""
    kept = tempfile.TemporaryDirectory(prefix="combee-bench-")
    folder = Path(kept.name)
    flags = ["-f", str(_manifest(folder)), "--strategies", ",".join(STRATEGIES), "--seeds", str(SEEDS)]
    flags += ["--slots", ",".join(map(str, ALL_SLOTS)), "--jobs", "2", "-o", str(folder / "out")]
    with worlds(folder) as urls:
        engines = [word for url in urls for word in ("--engine", f"main={url}")]
        words = [*COMBEE, "compare", *flags, *engines]
        done = subprocess.run(words, capture_output=True, text=True, env=environment(), check=False)
    if done.returncode:
        raise RuntimeError(f"combee compare: {done.stdout[-500:]}{done.stderr[-1500:]}")
    rows: dict[int, Rows] = {slots: {} for slots in ALL_SLOTS}
    for row in json.loads((folder / "out" / "compare.json").read_text())["rows"]:
        rows[row["slots"]][row["strategy"]] = row
    return rows, folder / "out", kept


def _manifest(folder: Path) -> Path:
    """examples/formula.yaml on the first rows and all slots, as `make evidence` has it."""
    made = yaml.safe_load((ROOT / "examples" / "formula.yaml").read_text())
    made["metadata"]["name"] = "formula"
    data = made["spec"]["task"]["data"]
    data["train"] = {"uri": str(formula_rows(folder, ROWS))}
    data["heldOut"] = {"uri": str(FORMULA / "heldout.jsonl")}
    made["spec"]["workers"]["concurrency"] = SLOTS
    path = folder / "formula.yaml"
    path.write_text(yaml.safe_dump(made))
    return path


def learning_speed(folder: Path) -> Row:
    """The fastest plain loop's modelled time over that of one batch of all rows, held-out beside it."""
    tables, _, _ = comparison()
    whole = tables[SLOTS][WHOLE]["overPlain"]
    ours = [tables[SLOTS][name] for name in OURS]
    return Row(
        name="learning speed, simulated model: the best plain loop's modelled time / one batch's",
        figure=round(whole["mean"], 2),
        target="> 1",
        unit="x",
        met=whole["mean"] > 1 and all(row["noWorse"] for row in ours),
        how=f"combee compare, {ROWS} Formula rows, {SEEDS} seeds each with a simulated model of its own, "
        f"{SLOTS} slots; plain loops: one at a time, 8 at once, batches of 10 and 25 in one call, of which "
        "those count that compare does not show to be worse; the recorded call graph through the latency "
        "law, no clock in it; profiling, verification and select charged; held-out on gate, rendered "
        "playbook",
        detail={"bestPlain": whole["strategy"]}
        | {
            f"{strategy}, {slots} slots": _shown(row, rows)
            for slots, rows in tables.items()
            for strategy, row in rows.items()
        },
    )


def _shown(row: dict[str, Any], beside: Rows) -> dict[str, Any]:
    difference = row["difference"]["overSeeds"] if row["difference"] else {}
    return {
        "heldOut": round(row["heldOut"]["mean"], 3),
        "verdict": row["verdict"],
        "difference": [round(difference[key], 3) for key in ("mean", "low", "high") if difference],
        "modelledSeconds": round(row["modelledSeconds"], 1),
        "overSequential": round(row["speedUp"]["mean"], 1) if row["speedUp"] else 1.0,
        "overPlain": round(row["overPlain"]["mean"], 2) if row["overPlain"] else None,
        f"over {PLAIN[-1]}": round(beside[PLAIN[-1]]["modelledSeconds"] / row["modelledSeconds"], 2),
        "calls": round(row["calls"]),
        "tokens": round(row["tokens"]),
        "lessonsCarried": round(row["lessons"]["carried"]),
        "lessonsDistinct": round(row["lessons"]["distinct"]),
    }
