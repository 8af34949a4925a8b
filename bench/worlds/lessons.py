"""Worlds in which lessons are wrong, or harm examples that they are not about: what does a run learn there?

Each world is a law of the simulated model, and each design learns one epoch of 250 Formula rows in it, whole
runs of the product in this process (``bench.inprocess``). What counts is all of heldOut with the playbook as
rendered, and beside it the gate half, which nothing in a run looks at before its end."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.harness import Row
from bench.inprocess import formula_run, formula_splits, learn, remember_texts, simulated
from combee.algo.membership import split_select_gate
from combee.algo.stats import MeanInterval, mean_interval
from combee.sim.params import Law

SEEDS = 10
ROWS = 250
OURS = "ParallelScan@100"
LAWS = {
    "default": Law(),
    "wrong lessons 20 %": Law(wrong_share=0.2),
    "wrong lessons 30 %": Law(wrong_share=0.3),
    "a third of the rules always stated wrongly": Law(misled_share=1 / 3),
    "half of the fillers harm other topics": Law(harm_share=0.5),
}
DESIGNS: dict[str, tuple[int, dict[str, Any]]] = {
    OURS: (100, {"strategy": "ParallelScan"}),
    "Support": (100, {"strategy": "ParallelScan", "verify": "Support"}),
    "Naive@10": (10, {"strategy": "Naive"}),
    "Sequential": (1, {"strategy": "Sequential"}),
}
"""Name -> (batch size, fields of spec.aggregation). All but Support verify by replay, the default."""


@dataclass(frozen=True)
class Found:
    """What one run left."""

    world: str
    design: str
    seed: int
    held_out: float
    gate: float
    rollouts: int
    """of learning, without the scoring of heldOut."""
    rendered: int


def lessons(folder: Path) -> Row:
    """Ours minus the best of the other designs, in the world in which it is least."""
    found = run(range(1, SEEDS + 1), tuple(DESIGNS))
    with (folder / "worlds-lessons.jsonl").open("w") as file:
        file.writelines(json.dumps(asdict(one)) + "\n" for one in found)
    return row(found)


def row(found: Sequence[Found]) -> Row:
    """The row of what was found."""
    detail: dict[str, Any] = {
        f"{world}, {design}": table(found, world, design) for world in LAWS for design in DESIGNS
    }
    leads = {world: lead(found, world) for world in LAWS}
    detail |= {
        f"{world}, ours minus the best other": [
            round(100 * one, 1) for one in (best.mean, best.low, best.high)
        ]
        for world, best in leads.items()
    }
    least = min(leads, key=lambda world: leads[world].mean)
    return Row(
        name="heldOut of the default against the best other design, worlds of wrong and harmful lessons",
        figure=round(100 * leads[least].mean, 1),
        target="no interval below 0",
        unit="points",
        met=all(best.high >= 0 for best in leads.values()),
        how=f"simulated model, {ROWS} Formula rows, one epoch, {SEEDS} seeds; least: {least}",
        detail=detail,
    )


def run(seeds: Sequence[int], designs: Sequence[str]) -> list[Found]:
    """Every design in every world, on every processor."""
    jobs = [(world, seed, tuple(designs)) for seed in seeds for world in LAWS]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        return [one for found in pool.starmap(run_job, jobs, chunksize=1) for one in found]


def run_job(world: str, seed: int, designs: Sequence[str]) -> list[Found]:
    """The designs in one world of one seed, which is the model's and the run's."""
    remember_texts()
    train, held_out = formula_splits()
    train = replace(train, examples=train.examples[:ROWS])
    _, gate = split_select_gate([example.id for example in held_out.examples], held_out.digest)
    model, known, found = simulated(seed, LAWS[world]), {}, []
    for design in designs:
        size, aggregation = DESIGNS[design]
        manifest = formula_run("lessons", size=size, seed=seed, aggregation=aggregation)
        learnt = asyncio.run(learn(manifest, (train, held_out), model, known))
        on_gate = sum(learnt.scores[row] for row in gate) / len(gate)
        found.append(Found(world, design, seed, learnt.mean, on_gate, learnt.rollouts, learnt.rendered))
    return found


def of(found: Sequence[Found], world: str, design: str) -> list[Found]:
    """One design in one world, by seed."""
    return sorted(
        (one for one in found if (one.world, one.design) == (world, design)), key=lambda one: one.seed
    )


def table(found: Sequence[Found], world: str, design: str) -> dict[str, float]:
    """Means over the seeds."""
    runs = of(found, world, design)
    means = {"heldOut": mean_interval([one.held_out for one in runs]).mean}
    means |= {"gate": mean_interval([one.gate for one in runs]).mean}
    counts = {name: sum(getattr(one, name) for one in runs) / len(runs) for name in ("rollouts", "rendered")}
    return {name: round(value, 3) for name, value in means.items()} | {
        name: round(value, 1) for name, value in counts.items()
    }


def lead(found: Sequence[Found], world: str) -> MeanInterval:
    """Ours minus the design of the others that is best there, over the seeds."""
    others = (design for design in DESIGNS if design != OURS)
    best = max(others, key=lambda design: table(found, world, design)["heldOut"])
    pairs = zip(of(found, world, OURS), of(found, world, best), strict=True)
    return mean_interval([ours.held_out - other.held_out for ours, other in pairs])
