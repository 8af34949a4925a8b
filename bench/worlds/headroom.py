"""Can any playbook help this model? The headroom test, in worlds where the answer is known.

Each world is a law of the simulated model. What its playbooks can do is measured on all of heldOut, with all
unknown rules in the prompt that the proposer of that world states rightly; the test sees train rows. A world
has headroom where that gains TRUE_GAIN or more. The figure is the area under the curve of the test's
estimate: the chance that it ranks a world with headroom above one without."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness import Row
from bench.inprocess import (
    Direct,
    executor_of,
    formula_key,
    formula_run,
    formula_splits,
    remember_texts,
    simulated,
    task_law,
)
from combee.algo.convergence import Headroom
from combee.plan.diagnosis import WORTH
from combee.records import Shown
from combee.sim import draws, params
from combee.sim.model import Model
from combee.sim.params import Law, TaskLaw
from combee.work.context import WorkContext
from combee.work.headroom import headroom_of
from combee.work.rollouts import evaluate

WORLDS = 100
TRUE_GAIN = 0.02
LEAST_AUC = 0.85
FORMULA = params.TASK_LAWS["formula"]


@dataclass(frozen=True)
class World:
    """A law of the model, and of the task."""

    kind: str
    law: Law
    task: TaskLaw


@dataclass(frozen=True)
class Tried:
    """A world, what playbooks can do there, and what the test found."""

    kind: str
    true_gain: float
    found: Headroom


def headroom(folder: Path) -> Row:
    """The area under the curve of the headroom test over seeded worlds."""
    remember_texts()
    tried = [asyncio.run(look(seed)) for seed in range(WORLDS)]
    able = [one for one in tried if one.true_gain >= TRUE_GAIN]
    unable = [one for one in tried if one.true_gain < TRUE_GAIN]
    worthy = [one for one in tried if one.true_gain >= WORTH]
    area = auc([one.found.gain for one in able], [one.found.gain for one in unable])
    kinds = dict.fromkeys(one.kind for one in tried)
    return Row(
        name="headroom test: area under the curve",
        figure=round(area, 3),
        target=f">= {LEAST_AUC:g}",
        unit="",
        met=area >= LEAST_AUC,
        how=f"simulated model, Formula rows, {WORLDS} seeded worlds, {len(able)} with headroom",
        detail={
            f"that gain {WORTH:g} or more, called none": f"{called_none(worthy)} of {len(worthy)}",
            "with headroom, called none": f"{called_none(able)} of {len(able)}",
            "without headroom, called none": f"{called_none(unable)} of {len(unable)}",
            **{kind: of_kind([one for one in tried if one.kind == kind]) for kind in kinds},
        },
    )


def of_kind(tried: list[Tried]) -> dict[str, Any]:
    """What the table shows of the worlds of a kind."""
    return {
        "worlds": len(tried),
        "with headroom": sum(one.true_gain >= TRUE_GAIN for one in tried),
        "true gain": round(float(np.mean([one.true_gain for one in tried])), 3),
        "estimated": round(float(np.mean([one.found.gain for one in tried])), 3),
        "called none": called_none(tried),
    }


def called_none(tried: list[Tried]) -> int:
    """How many of them are a no-go."""
    return sum(one.found.none(WORTH) for one in tried)


def auc(able: list[float], unable: list[float]) -> float:
    """The chance that one of ``able`` is above one of ``unable``; a tie counts half."""
    pairs = [(a > b) + 0.5 * (a == b) for a in able for b in unable]
    return float(np.mean(pairs)) if pairs else 1.0


def world(seed: int) -> World:
    """The world of a seed, of one of four kinds in turn."""
    draw = np.random.default_rng([seed, 17])
    kind = ("capacity", "wrong lessons", "already perfect", "impossible")[seed % 4]
    task, law = replace(FORMULA, unknown=float(draw.uniform(0.1, 0.4))), Law()
    if kind == "capacity":
        law = replace(law, capacity=float(draw.uniform(0.1, 12)), root_capacity=float(draw.uniform(0.1, 50)))
    elif kind == "wrong lessons":
        law = replace(law, wrong_share=float(draw.uniform(0.1, 0.6)), misled_share=float(draw.uniform(0, 1)))
    elif kind == "already perfect":
        task = replace(task, unknown=0.0, top=float(draw.uniform(0.9, 1)))
    elif draw.random() < 0.5:
        law = replace(law, reading_length=1.0)
    else:
        task = replace(task, top=task.guess)
    return World(kind, law, task)


async def look(seed: int) -> Tried:
    """What playbooks can do in a world, and what the test says of it."""
    one = world(seed)
    with task_law(one.task):
        model, known = simulated(seed, one.law), {}
        clients = {role: Direct(model, role, known) for role in ("task", "proposer")}
        run = formula_run("headroom", size=1, seed=seed, aggregation={"strategy": "Sequential"})
        context = executor_of(run, formula_splits(), clients).context
        found = await headroom_of(context, context.asker(), context.method.empty(), WORTH)
        return Tried(one.kind, await gain_of_all(context, model, seed, one.law), found)


async def gain_of_all(context: WorkContext, model: Model, seed: int, law: Law) -> float:
    """What all that the proposer states rightly of unknown rules adds on all of heldOut."""
    rows = list((await context.data.held_out()).examples)
    lines = [
        f"- {model.book.rule_entry(rule, 'right', seed)}"
        for topic in sorted(formula_key()["topics"])
        if not (rule := model.book.rule(topic)).known
        and draws.unit(seed, "misled", topic) >= law.misled_share
    ]
    scores = [
        sum((await evaluate(context, context.asker(), rows, Shown(text), stage=stage)).by_id.values())
        for stage, text in (("start", ""), ("all", "\n".join(lines)))
    ]
    return (scores[1] - scores[0]) / len(rows)
