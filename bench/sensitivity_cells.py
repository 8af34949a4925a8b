"""What the sweep varies (cells), what it compares in each (arms), and how one of them is run."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.inprocess import formula_run, formula_splits, learn, remember_texts, simulated
from combee.sim.params import INFINITE, Law

BATCH = 100
ROWS = 250
"""to learn from, as the paper has."""
SEQUENTIAL, MODEL = "Sequential", "Model"


@dataclass(frozen=True)
class Arm:
    """One design. ``aggregation``: the fields of spec.aggregation that it sets; all else is equal."""

    name: str
    size: int = BATCH
    aggregation: dict[str, Any] = field(default_factory=dict)


ARMS = {
    arm.name: arm
    for arm in (
        Arm("Replay", aggregation={"strategy": "ParallelScan", "verify": "Replay"}),
        Arm("Support", aggregation={"strategy": "ParallelScan", "verify": "Support"}),
        Arm("Off", aggregation={"strategy": "ParallelScan", "verify": "Off"}),
        Arm(MODEL, aggregation={"strategy": "ParallelScan", "merge": "Model", "subgroups": "Sqrt"}),
        Arm("Naive@10", size=10, aggregation={"strategy": "Naive"}),
        Arm("Naive@25", size=25, aggregation={"strategy": "Naive"}),
        Arm("Naive", aggregation={"strategy": "Naive"}),
        Arm(SEQUENTIAL, size=1, aggregation={"strategy": "Sequential"}),
    )
}
"""By name. ``Replay`` is the default: ParallelScan, merge Structured, verify Replay."""


@dataclass(frozen=True)
class Contrast:
    """``ours`` minus ``other`` on heldOut."""

    ours: str
    other: str
    title: str


CONTRASTS = (
    Contrast("Replay", SEQUENTIAL, "ParallelScan - Sequential"),
    Contrast("Replay", "Naive@10", "ParallelScan - Naive@10"),
    Contrast("Replay", "Naive@25", "ParallelScan - Naive@25"),
    Contrast("Replay", MODEL, "Structured - Model"),
    Contrast("Replay", "Support", "Replay - Support"),
    Contrast("Replay", "Off", "Replay - Off"),
    Contrast("Replay", "Naive", "ParallelScan - Naive"),
)


@dataclass(frozen=True)
class Axis:
    """One parameter of ``combee.sim``'s law."""

    field: str
    title: str
    values: tuple[float, ...]

    @property
    def flag(self) -> str:
        """What sets it on ``combee sim serve``."""
        return "--" + self.field.replace("_", "-")


AXES = (
    Axis("wrong_share", "share of wrong lessons", (0.0, 0.01, 0.05, 0.1, 0.2, 0.3)),
    Axis("misled_share", "share of rules always stated wrongly", (0.0, 0.1, 0.3)),
    Axis("harm_share", "share of fillers that harm elsewhere", (0.0, 0.25, 0.5)),
    Axis("wording_share", "share of lessons in words alone", (0.0, 0.5, 1.0)),
    Axis("capacity", "capacity of a call, raw reflections", (5, 11.5, 25, 100)),
    Axis("token_capacity", "capacity of a call, tokens", (4_800, 9_600, 19_200, INFINITE)),
    Axis("reading_length", "reading length, tokens", (2_000, 8_000, 20_000, 60_000)),
    Axis("root_capacity", "capacity of a call, short entries", (10, 50, INFINITE)),
)
ROOT = AXES[-1]


@dataclass(frozen=True)
class Cell:
    """One setting of the law."""

    name: str
    law: Law

    def at(self, axis: Axis) -> float:
        """Its value on an axis."""
        return float(getattr(self.law, axis.field))


def cells() -> list[Cell]:
    """The default, then each axis alone."""
    default = Law()
    return [
        Cell("default", default),
        *(
            Cell(cell_name(axis, value), replace(default, **{axis.field: value}))
            for axis in AXES
            for value in axis.values
            if value != getattr(default, axis.field)
        ),
    ]


def cell_name(axis: Axis, value: float) -> str:
    """The flag that makes a cell of the default."""
    return f"{axis.flag} {shown(value)}"


def shown(value: float) -> str:
    """As a flag takes it."""
    return "infinite" if math.isinf(value) else f"{value:g}"


def needs(cell: Cell, arm: str) -> bool:
    """Whether an arm has runs of its own in a cell. Only a model root is given short entries alone: the other
    arms' runs at another root capacity are those of the default cell."""
    return arm == MODEL or cell.at(ROOT) == cells()[0].at(ROOT)


@dataclass(frozen=True)
class Job:
    """The arms of one (cell, seed) that are still to be run, on one simulated model. ``seed`` is the model's
    and spec.seed, so that one seed is one world: which rules are unknown, all luck, order and shuffle."""

    cell: Cell
    seed: int
    arms: tuple[str, ...]
    rows: int | None = None
    """of each split, for a quick look only; None: ROWS to learn from, all of heldOut."""


def run_job(job: Job) -> list[dict[str, Any]]:
    """One line of results an arm."""
    remember_texts()
    train, held_out = formula_splits()
    train = replace(train, examples=train.examples[: job.rows or ROWS])
    held_out = replace(held_out, examples=held_out.examples[: job.rows])
    model, known, found = simulated(job.seed, job.cell.law), {}, []
    for name in job.arms:
        arm = ARMS[name]
        named = name.lower().replace("@", "-")
        run = formula_run(named, size=arm.size, seed=job.seed, aggregation=arm.aggregation)
        learnt = asyncio.run(learn(run, (train, held_out), model, known))
        bits = "".join(str(int(learnt.scores[example.id])) for example in held_out.examples)
        found.append({"cell": job.cell.name, "arm": name, "seed": job.seed, **asdict(learnt), "scores": bits})
    gc.collect()
    return found


def jobs(wanted: Sequence[Cell], seeds: dict[str, int], rows: int | None = None) -> Iterator[Job]:
    """Seed by seed, so that what is finished so far is whole seeds. ``seeds``: how many by arm."""
    for seed in range(1, max(seeds.values()) + 1):
        for cell in wanted:
            arms = tuple(name for name in seeds if seed <= seeds[name] and needs(cell, name))
            yield Job(cell, seed, arms, rows)


def run_all(
    todo: Sequence[Job], kept: Path, processes: int, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """All results; each is a line of ``kept`` as soon as it is there, and is not run again."""
    known = read_kept(kept)
    have = {(row["cell"], row["arm"], row["seed"]) for row in known}
    left = [
        replace(job, arms=arms)
        for job in todo
        if (arms := tuple(a for a in job.arms if (job.cell.name, a, job.seed) not in have))
    ]
    kept.parent.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(processes) as pool, kept.open("a") as file:
        for done, rows in enumerate(pool.imap_unordered(run_job, left), start=1):
            for row in rows:
                file.write(json.dumps(row) + "\n")
            file.flush()
            known += rows
            tell(f"{done}/{len(left)} {rows[0]['cell']}, seed {rows[0]['seed']}")
    wanted = {(job.cell.name, arm, job.seed) for job in todo for arm in job.arms}
    return [row for row in known if (row["cell"], row["arm"], row["seed"]) in wanted]


def read_kept(kept: Path) -> list[dict[str, Any]]:
    """The results that are there; a line cut off in the middle is none."""
    rows = []
    for line in kept.read_text().splitlines() if kept.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
