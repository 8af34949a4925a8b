"""`make ablations`: the paper's design with one choice changed at a time, on Formula and on FiNER.

The paper's design is ParallelScan with floor(sqrt n) leaves, each reflection in two of them, shuffled, and a
call at every node of the tree, in the batch that its rule derives from tau. What each change does to the
accuracy of the *final* playbook on heldOut is told in points, paired by seed, with its interval. One more
axis has leaf sizes of the group-by. The product's own steps run in this process (bench/inprocess.py); the
model is simulated."""

from __future__ import annotations

import argparse
import asyncio
import gc
import io
import json
import math
import multiprocessing
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.inprocess import formula_run, learn, remember_texts, simulated, splits_of
from bench.sensitivity import code_digest
from bench.sensitivity_cells import read_kept
from combee.algo import tree
from combee.algo.batch import PAPER_SHARE
from combee.algo.stats import MeanInterval, mean_interval
from combee.sim.params import Law

ROWS: Mapping[str, int] = {"formula": 250, "finer": 350}
"""By task, rows to learn from, as in `make evidence`."""
SEEDS = 10
PAPER: Mapping[str, Any] = {
    "strategy": "ParallelScan",
    "merge": "Model",
    "subgroups": "Sqrt",
    "redundancy": {"mode": "Duplicate", "copies": 2},
}
ONCE = {"mode": "Duplicate", "copies": 1}
FIRST_SIZES = (5, 10)
"""The two smallest sizes that are tried, between which the paper takes the slope."""
HEAD = """# The paper's choices, one at a time

`make ablations` makes this page: the paper's design, and what each change of it does to the accuracy of the
final playbook on heldOut, on Formula and on FiNER. **All numbers on this page were made with the
[simulated model](sim.md).** Differences are in points, paired by seed, with 95 % intervals over seeds: one is
shown where its interval leaves out 0. In a batch of 56 the paper's seven leaves hold 16 reflections each,
copies included. What it means: [sensitivity.md](sensitivity.md#the-papers-choices).

![Differences by task and change, simulated model](ablations.svg)
"""
HERE = "paper"
"""The name of the paper's own design."""


def size_at(tau: float) -> int:
    """The batch size of the paper's rule with another tau, where each iteration takes a fixed time more
    (``algo.batch.paper_batch_size``).

    >>> [size_at(tau) for tau in (0.004, 0.016, 0.064)]
    [112, 56, 28]
    """
    first, second = FIRST_SIZES
    return round(math.sqrt(first * second / tau))


@dataclass(frozen=True)
class Arm:
    """One change. ``against``: the arm that it is compared with."""

    axis: str
    value: str
    aggregation: Mapping[str, Any]
    size: int = size_at(PAPER_SHARE)
    shuffled: bool = True
    against: str = HERE


def _plain(**changed: Any) -> dict[str, Any]:
    """The paper's design with as many leaves as their size asks for."""
    return {name: value for name, value in PAPER.items() if name != "subgroups"} | changed


def _grouped(leaf_size: int) -> dict[str, Any]:
    return _plain(merge="Structured", redundancy=ONCE, leafSize=leaf_size)


def arms() -> dict[str, Arm]:
    """All arms by name."""
    sizes = (2, 4, 8, 16, 32)
    of_k = {f"f{f}": Arm("k: leaves of", f"{f}", _plain(leafSize=f)) for f in sizes}
    of_p = {f"p{p}": Arm("p: copies", f"{p}", {**PAPER, "redundancy": {**ONCE, "copies": p}}) for p in (1, 4)}
    of_tau = {
        f"tau{tau}": Arm("tau", f"{tau:.1%} (b = {size_at(tau)})", PAPER, size_at(tau))
        for tau in (0.004, 0.008, 0.032, 0.064)
    }
    of_leaves = {
        f"group-by f{f}": Arm("group-by: leaves of", f"{f}", _grouped(f), against="group-by f8")
        for f in (1, *sizes)
    }
    unshuffled = Arm("shuffle", "none, p = 1", {**PAPER, "redundancy": ONCE}, shuffled=False, against="p1")
    return {
        HERE: Arm("paper", "sqrt leaves, p = 2, tau = 1.6%, tree", PAPER),
        **of_k,
        **of_p,
        "unshuffled": unshuffled,
        **of_tau,
        "group-by": Arm("merge", "group-by", {**PAPER, "merge": "Structured"}),
        "default": Arm("product", "its defaults", {}),
        **of_leaves,
    }


@contextmanager
def dealt_in_order() -> Iterator[None]:
    """Give each leaf neighbours of the batch for a while, each once."""
    shuffle = tree.augmented_shuffle

    def neighbours(n: int, *, copies: int, leaves: int, rng: object) -> tree.Level:
        return tuple(tuple(range(n * leaf // leaves, n * (leaf + 1) // leaves)) for leaf in range(leaves))

    tree.augmented_shuffle = neighbours
    try:
        yield
    finally:
        tree.augmented_shuffle = shuffle


@dataclass(frozen=True)
class Job:
    """What is left of a seed of a task. ``rows``: of each split, for a quick look; None: all that count."""

    task: str
    seed: int
    names: tuple[str, ...]
    rows: int | None = None


def run_job(job: Job) -> list[dict[str, Any]]:
    """One line of results an arm."""
    remember_texts()
    train, held_out = splits_of(job.task)
    train = replace(train, examples=train.examples[: job.rows or ROWS[job.task]])
    held_out = replace(held_out, examples=held_out.examples[: job.rows])
    model, known, found = simulated(job.seed, Law(), job.task), {}, []
    for name in job.names:
        arm = arms()[name]
        run = formula_run("arm", size=arm.size, seed=job.seed, aggregation=arm.aggregation, task=job.task)
        if arm.shuffled:
            learnt = asyncio.run(learn(run, (train, held_out), model, known))
        else:
            with dealt_in_order():
                learnt = asyncio.run(learn(run, (train, held_out), model, known))
        figures = {**asdict(learnt), "scores": learnt.mean}
        found.append({"task": job.task, "arm": name, "seed": job.seed, **figures})
    gc.collect()
    return found


@dataclass(frozen=True)
class Finding:
    """What a change does on a task: held-out accuracy, and the difference from what it changes."""

    task: str
    name: str
    accuracy: MeanInterval
    difference: MeanInterval | None
    """None for an arm that nothing is changed in."""
    calls: float
    """aggregator calls of an epoch."""


def findings(rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """By task and arm, over the seeds that both have."""
    by = {(row["task"], row["arm"], row["seed"]): row for row in rows}
    found = []
    for task in ROWS:
        for name, arm in arms().items():
            mine = {seed: row for (t, n, seed), row in by.items() if (t, n) == (task, name)}
            if not mine:
                continue
            pairs = [
                row["scores"] - by[task, arm.against, seed]["scores"]
                for seed, row in mine.items()
                if name != arm.against and (task, arm.against, seed) in by
            ]
            accuracy = mean_interval([row["scores"] for row in mine.values()])
            calls = sum(row["aggregator_calls"] for row in mine.values()) / len(mine)
            found.append(Finding(task, name, accuracy, mean_interval(pairs) if pairs else None, calls))
    return found


def table(found: Sequence[Finding]) -> str:
    """Markdown, one line an arm and task."""
    lines = [
        "Simulated model: accuracy on heldOut, and the difference in points, with its interval over seeds.",
        "",
        "| task | change | accuracy | difference | aggregator calls | seeds |",
        "|---|---|---|---|---|---|",
    ]
    for one in found:
        arm = arms()[one.name]
        lines.append(
            f"| {one.task} | {arm.axis} {arm.value} | {one.accuracy.mean:.3f} | {_points(one.difference)} | "
            f"{one.calls:.0f} | {one.accuracy.n} |"
        )
    return "\n".join(lines) + "\n"


def _points(found: MeanInterval | None) -> str:
    if found is None:
        return ""
    interval = "" if math.isinf(found.low) else f" ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
    return f"{100 * found.mean:+.1f}{interval}"


def plot(found: Sequence[Finding]) -> str:
    """The differences as SVG, a panel a task. Equal results give equal bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    settings: Any = {"svg.hashsalt": "combee", "svg.fonttype": "path", "font.size": 8.5}
    tasks = list(dict.fromkeys(one.task for one in found))
    with mpl.rc_context(settings), warnings.catch_warnings():
        figure = Figure(figsize=(6.5 * len(tasks), 6.5), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        for axes, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
            shown = [one for one in found if one.task == task and one.difference is not None][::-1]
            for place, one in enumerate(shown):
                _paint(axes, place, one.difference)
            named = [arms()[one.name] for one in shown]
            axes.set_yticks(range(len(shown)), [f"{arm.axis} {arm.value}" for arm in named])
            axes.axvline(0, color="#33373d", linewidth=0.9)
            axes.set_xlabel("points of held-out accuracy, 95 % intervals over seeds")
            axes.set_title(f"{task}, simulated model")
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return svg.getvalue()


def _paint(axes: Any, place: int, found: MeanInterval | None) -> None:
    """Draw a mean and, of more seeds than one, its interval."""
    if found is not None:
        axes.plot([100 * found.mean], [place], "o", color="#1f6fd0")
        if math.isfinite(found.low):
            axes.plot([100 * found.low, 100 * found.high], [place, place], color="#1f6fd0")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; an arm that fails raises."""
    parser = argparse.ArgumentParser(prog="python -m bench.ablations", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="ablations.md, ablations.svg, and every run"
    )
    parser.add_argument("--docs", type=Path, help="write the page and the plot there, too")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--task", action="append", choices=list(ROWS), help="only this one (may be repeated)")
    parser.add_argument(
        "--arm", action="append", choices=list(arms()), help="only this one (may be repeated)"
    )
    parser.add_argument("--rows", type=int, help="rows of each split, for a quick look (default: all)")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    kept = asked.out / f"ablations-{code_digest(asked.rows)}.runs.jsonl"
    known = [row for row in read_kept(kept) if row["seed"] <= asked.seeds]
    have = {(row["task"], row["arm"], row["seed"]) for row in known}
    todo = [
        Job(task, seed, left, asked.rows)
        for seed in range(1, asked.seeds + 1)
        for task in asked.task or ROWS
        if (left := tuple(name for name in asked.arm or arms() if (task, name, seed) not in have))
    ]
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool, kept.open("a") as file:
        for rows in pool.imap_unordered(run_job, todo):
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            known += rows
            print(f"{rows[0]['task']}, seed {rows[0]['seed']}", file=sys.stderr, flush=True)
    found = findings(sorted(known, key=lambda row: row["seed"]))
    for folder in filter(None, (asked.out, asked.docs)):
        (folder / "ablations.md").write_text(f"{HEAD}\n{table(found)}")
        (folder / "ablations.svg").write_text(plot(found))
    print(table(found), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
