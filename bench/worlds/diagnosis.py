"""Does the diagnosis of serial learning stop what would pay, and does it stop what cannot? Formula learns
some 22 points in the end; each planted world learns nothing: proposers that recover no rule or state all of
them wrongly, aggregators that carry nothing, a model that gains nothing by reading, and one that knows all.

The figure is the share of Formula runs that are stopped. Each run ends with its diagnosis."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import virtual
from bench.harness import Row
from bench.inprocess import executor_of, formula_run, formula_splits, remember_texts, simulated, task_law
from combee.algo.stats import wilson
from combee.api.baseline import SerialBaseline
from combee.api.run import Budget, PromptLearningRun, Stopping
from combee.local.executor import LocalExecutor
from combee.plan.decide import Plan
from combee.plan.diagnosis import NO_GO_SHARE, Diagnosis
from combee.plan.types import Outcome
from combee.sim import params
from combee.sim.params import Law, TaskLaw
from combee.steps import DIAGNOSE

SEEDS = 40
MOST_STOPPED = 0.05
ROLLOUTS = 4000
"""The budget of a planted world."""
FORMULA = params.TASK_LAWS["formula"]


@dataclass(frozen=True)
class World:
    """A law of the model, and of the task."""

    law: Law = field(default_factory=Law)
    task: TaskLaw = FORMULA


LEARNS = "Formula"
NEVER: Mapping[str, World] = {
    "no rule is recovered": World(Law(recovery=0.0)),
    "every rule is stated wrongly": World(Law(misled_share=1.0)),
    "calls carry nothing": World(Law(capacity=0.001, root_capacity=0.001)),
    "reading gains nothing": World(task=replace(FORMULA, top=FORMULA.guess)),
    "all is known": World(task=replace(FORMULA, unknown=0.0, top=0.98)),
}


@dataclass(frozen=True)
class Ended:
    """What a diagnosis came to, and what it took."""

    found: Diagnosis
    rollouts: int
    """of the run when it was over, profile's among them."""
    share: float
    """of the run's rollouts."""
    modelled_seconds: float
    """of the diagnosis, by the H200's latency law."""
    seconds: float
    """in which it was simulated here."""


def diagnosis(folder: Path) -> Row:
    """How often a diagnosis stops what would pay; beside it, what cannot."""
    remember_texts()
    pays = [virtual.run(diagnosed(World(), seed, None)) for seed in range(SEEDS)]
    never = {
        name: [virtual.run(diagnosed(world, seed, ROLLOUTS)) for seed in range(SEEDS)]
        for name, world in NEVER.items()
    }
    stopped = sum(not one.found.go for one in pays) / SEEDS
    low, high = wilson(stopped, SEEDS, 1.96)
    return Row(
        name="serial learning that pays, stopped by its diagnosis",
        figure=round(stopped, 3),
        target=f"<= {MOST_STOPPED:g}",
        unit="",
        met=stopped <= MOST_STOPPED,
        how=f"simulated model, Formula, {SEEDS} seeds; planted worlds of {ROLLOUTS:,} rollouts",
        detail={
            "interval": f"{low:.3f} to {high:.3f}",
            LEARNS: in_words(pays),
            **{name: in_words(ended) for name, ended in never.items()},
        },
    )


def in_words(ended: list[Ended]) -> dict[str, Any]:
    """What the table shows of the runs of a world."""
    return {
        "verdicts": dict(Counter(one.found.verdict for one in ended)),
        "stopped": sum(not one.found.go for one in ended),
        f"stopped before {NO_GO_SHARE:.0%} of the rollouts": sum(
            not one.found.go and one.share < NO_GO_SHARE for one in ended
        ),
        "rollouts of the run by then, median": int(np.median([one.rollouts for one in ended])),
        "share of its rollouts, median and most": [
            round(float(value), 3) for value in np.quantile([one.share for one in ended], (0.5, 1))
        ],
        "modelled seconds of the diagnosis, median and most": [
            round(float(value)) for value in np.quantile([one.modelled_seconds for one in ended], (0.5, 1))
        ],
        "seconds here, median": round(float(np.median([one.seconds for one in ended])), 2),
    }


async def diagnosed(world: World, seed: int, rollouts: int | None) -> Ended:
    """One run up to the end of its diagnosis."""
    with task_law(world.task):
        run = run_of(seed, rollouts)
        model, slots = simulated(seed, world.law), run.spec.workers.concurrency
        runs = executor_of(run, formula_splits(), virtual.clients(model, slots, virtual.Server()))
        ending = Ending(**{name: getattr(runs, name) for name in runs.__slots__})
        began = time.monotonic()
        await ending.run()
    found, spent = ending.state.diagnosis, ending.state.spend.rollouts
    assert found is not None
    (step,) = (one for one in ending.summaries.values() if one.kind == DIAGNOSE.name)
    share = spent / (rollouts or whole_run())
    return Ended(found, spent, share, step.seconds["modelled"], time.monotonic() - began)


def whole_run() -> int:
    """About the rollouts of a Formula run without a stated budget, as the diagnosis reckons its shares."""
    train, held_out = formula_splits()
    select = len(held_out.examples) // 2
    return 4 * len(train.examples) + 21 * select + 2 * (len(held_out.examples) - select)


class Ending(LocalExecutor):
    """An executor that ends a run with its diagnosis."""

    def _decide(self, elapsed_seconds: float) -> Plan:
        plan = LocalExecutor._decide(self, elapsed_seconds)
        if plan.state.diagnosis is None or plan.outcome is not None:
            return plan
        return Plan(plan.state, outcome=Outcome("Stopped", "it was diagnosed"))


def run_of(seed: int, rollouts: int | None) -> PromptLearningRun:
    """A run that measures its serial baseline."""
    run = formula_run("diagnosed", size=50, seed=seed, aggregation={"strategy": "ParallelScan"})
    asked = {
        "serial_baseline": SerialBaseline(method="ACE", measure=True),
        "budget": Budget(rollouts=rollouts),
        "stopping": Stopping(),
    }
    return run.model_copy(update={"spec": run.spec.model_copy(update=asked)})
