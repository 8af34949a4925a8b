"""Does a run learn more when its proposer is told what did not hold, and when its edits are of several kinds?

Each design learns two epochs of 125 Formula rows, whole runs of the product in this process
(``bench.inprocess``), with a simulated model of each seed. What counts is all of heldOut with what leads at
the end; beside it stand the rollouts and tokens that it took. The simulated model knows of no kinds of edits:
it states the rules that it is given, however it is asked. So it shows what a control costs, not what it is
worth."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.harness import Row
from bench.inprocess import Direct, executor_of, formula_run, formula_splits, remember_texts, simulated
from combee.algo.stats import MeanInterval, mean_interval
from combee.api.load import parse_run
from combee.api.run import PromptLearningRun
from combee.methods.registry import method_of
from combee.sim.params import Law
from combee.work.rollouts import evaluate

SEEDS = 6
ROWS, EPOCHS = 125, 2
PLAIN, DIVERSE = "GEPA@25", "GEPA@25, diversity"
DESIGNS: Mapping[str, tuple[int, dict[str, Any]]] = {
    "ACE@25": (25, {"type": "ACE"}),
    PLAIN: (25, {"type": "GEPA"}),
    DIVERSE: (25, {"type": "GEPA", "gepa": {"diversity": True}}),
}
"""Name -> (batch size, spec.method)."""
LAWS = {"default": Law(), "wrong lessons 20 %": Law(wrong_share=0.2)}


@dataclass(frozen=True)
class Found:
    """What one run left."""

    world: str
    design: str
    seed: int
    held_out: float
    rollouts: int
    tokens: int
    repeating: int
    """iterations in which nothing proposed was new."""


def diversity(folder: Path) -> Row:
    """What edits of several kinds add to GEPA, in the world in which it is least."""
    found = run(range(1, SEEDS + 1), tuple(DESIGNS))
    with (folder / "worlds-diversity.jsonl").open("w") as file:
        file.writelines(json.dumps(asdict(one)) + "\n" for one in found)
    leads = {world: lead(found, world) for world in LAWS}
    least = min(leads, key=lambda world: leads[world].mean)
    detail: dict[str, Any] = {
        f"{world}, {design}": table(of(found, world, design)) for world in LAWS for design in DESIGNS
    }
    detail |= {
        f"{world}, edits of several kinds minus none": [
            round(100 * one, 1) for one in (lift.mean, lift.low, lift.high)
        ]
        for world, lift in leads.items()
    }
    return Row(
        name="heldOut of GEPA with edits of several kinds against GEPA without",
        figure=round(100 * leads[least].mean, 1),
        target="no interval below 0",
        unit="points",
        met=all(lift.high >= 0 for lift in leads.values()),
        how=f"simulated model, {ROWS} Formula rows, {EPOCHS} epochs, {SEEDS} seeds; least: {least}",
        detail=detail,
    )


def of(found: Sequence[Found], world: str, design: str) -> list[Found]:
    """One design in one world, by seed."""
    return sorted(
        (one for one in found if (one.world, one.design) == (world, design)), key=lambda one: one.seed
    )


def lead(found: Sequence[Found], world: str) -> MeanInterval:
    """GEPA with edits of several kinds minus GEPA without, over the seeds."""
    pairs = zip(of(found, world, DIVERSE), of(found, world, PLAIN), strict=True)
    return mean_interval([one.held_out - other.held_out for one, other in pairs])


def table(runs: Sequence[Found]) -> dict[str, float]:
    """Means over the seeds."""
    return {
        "heldOut": round(sum(one.held_out for one in runs) / len(runs), 3),
        "rollouts": round(sum(one.rollouts for one in runs) / len(runs)),
        "thousand tokens": round(sum(one.tokens for one in runs) / len(runs) / 1000),
        "repeating iterations": sum(one.repeating for one in runs),
    }


def run_job(world: str, seed: int, design: str) -> Found:
    """One design in one world of one seed, which is the model's and the run's."""
    remember_texts()
    train, held_out = formula_splits()
    splits = replace(train, examples=train.examples[:ROWS]), held_out
    size, method = DESIGNS[design]
    run = manifest(size, method, seed)
    return asyncio.run(learnt(run, splits, world, design, seed))


def manifest(size: int, method: Mapping[str, Any], seed: int) -> PromptLearningRun:
    """A manifest of the sweep's terms with another method."""
    document = formula_run("diversity", size=size, seed=seed, aggregation={}).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    document["spec"]["method"] = {**method, "epochs": EPOCHS}
    document["spec"]["stopping"] = {"patience": 1000}
    return parse_run(document, "diversity")


async def learnt(run: PromptLearningRun, splits: Any, world: str, design: str, seed: int) -> Found:
    """One run to its end, then what leads in it on all of heldOut."""
    model, known = simulated(seed, LAWS[world]), {}
    executor = executor_of(run, splits, {role: Direct(model, role, known) for role in ("task", "proposer")})
    context = executor.context = replace(executor.context, method=method_of(run.spec))
    await executor.run()
    state = executor.state
    artifact = context.method.from_json(await context.store.aget_blob(state.best.artifact))
    budget = run.spec.method.render_token_budget
    shown = context.method.render(artifact, budget_tokens=budget, verify=run.spec.verify)
    seen = await evaluate(context, context.asker(), list(splits[1].examples), shown.shown, stage="heldOut")
    finished = [one for one in executor.summaries.values() if one.kind == "finish"]
    repeating = sum(0 < one.counts.get("proposed", 0) == one.counts.get("repeated", 0) for one in finished)
    return Found(
        world,
        design,
        seed,
        sum(seen.by_id.values()) / len(seen.by_id),
        int(state.spend.rollouts),
        int(state.spend.tokens),
        repeating,
    )


def run(seeds: Sequence[int], designs: Sequence[str]) -> list[Found]:
    """All of them, on all cores."""
    jobs = [(world, seed, design) for world in LAWS for seed in seeds for design in designs]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        return pool.starmap(run_job, jobs, chunksize=1)
