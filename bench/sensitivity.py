"""`make sensitivity`: sweep the simulated model's law and say where this project's choices lose.

Each cell changes one setting of `combee.sim`'s law; in each, eight designs learn from 250 Formula rows (in
batches of 100, or of the number in the name; Sequential one by one) and their final playbooks answer 300
held-out rows, over several seeds, paired.
The product's own steps, prompts and parsers run in this process; only the wire is replaced
(bench/inprocess.py)."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.inprocess import FORMULA, ROOT
from bench.sensitivity_cells import ARMS, SEQUENTIAL, Cell, cells, jobs, run_all
from bench.sensitivity_plot import plot
from bench.sensitivity_table import Difference, differences, losing, points, tables, to_json, with_tables

SEEDS = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; a cell that fails raises."""
    asked = _parser().parse_args(arguments)
    started = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {text}", file=sys.stderr, flush=True)

    wanted = [cell for cell in cells() if asked.cell is None or cell.name in asked.cell]
    seeds = {arm: _seeds(asked, arm) for arm in ARMS}
    kept = asked.out / f"sensitivity-{code_digest(asked.rows)}.runs.jsonl"
    rows = run_all(list(jobs(wanted, seeds, asked.rows)), kept, asked.processes, tell)
    rows.sort(key=lambda row: (row["cell"], list(ARMS).index(row["arm"]), row["seed"]))
    found = differences(rows, wanted)
    (asked.out / "sensitivity.json").write_text(json.dumps(to_json(rows, wanted, found), indent=1) + "\n")
    print(table(found))
    if asked.docs is not None:
        write_docs(asked.docs, rows, wanted, found)
    return 0


def _seeds(asked: argparse.Namespace, arm: str) -> int:
    fewer = asked.sequential_seeds if arm == SEQUENTIAL else None
    return asked.seeds if fewer is None else min(asked.seeds, fewer)


def code_digest(rows: int | None) -> str:
    """Of everything a result follows from: runs of other code or data are not taken for ours."""
    found = hashlib.sha256(str(rows).encode())
    files = [
        *ROOT.glob("operator/combee/**/*.py"),
        *ROOT.glob("bench/*.py"),
        *FORMULA.parent.glob("*/*.jsonl"),
    ]
    for path in sorted(files):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.sensitivity", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="sensitivity.json, and every run as it ends"
    )
    parser.add_argument("--docs", type=Path, help="write sensitivity.md's tables and plot there")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="worlds in each cell")
    parser.add_argument("--sequential-seeds", type=int, help="of these, with Sequential (default: all)")
    parser.add_argument("--cell", action="append", metavar="NAME", help="only this one (may be repeated)")
    parser.add_argument("--rows", type=int, help="rows of each split, for a quick look (default: all)")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 8))
    return parser


def table(found: Sequence[Difference]) -> str:
    """Every cell's paired difference with its interval, the losing ones marked."""
    lines = ["simulated model: differences in points of held-out accuracy, 95 % interval over seeds"]
    for one in found:
        seeds = one.over_seeds
        span = f"[{points(seeds.low)}, {points(seeds.high)}]" if seeds.n > 1 else "(one seed)"
        lines.append(
            f"{one.cell.name:<36} {one.contrast.title:<26} {points(seeds.mean):>6} {span:<16} "
            f"n={seeds.n}  {one.verdict}"
        )
    lines.append(f"{sum(1 for _ in losing(found))} of {len(found)} comparisons lose or are behind")
    return "\n".join(lines)


def write_docs(
    folder: Path, rows: Sequence[dict], wanted: Sequence[Cell], found: Sequence[Difference]
) -> None:
    """The made part of sensitivity.md, and sensitivity.svg."""
    page = folder / "sensitivity.md"
    page.write_text(with_tables(page.read_text(), tables(rows, wanted, found)))
    (folder / "sensitivity.svg").write_text(plot(found))


if __name__ == "__main__":
    sys.exit(main())
