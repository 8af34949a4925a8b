"""A world whose rules drift: does a Playbook that learns on and on from its own ledger know as much as one
that is learned anew?

A run follows another, each on rows of its own. Before each some rules are replaced, and what held before is
then the typical mistake. Each run starts from the ledger that the one before handed on. Beside it the same
rows are learned from nothing. What counts is all of a run's heldOut, with the best playbook as rendered.

One lifetime of 50 runs leaves a point and a half of doubt, so several are lived, each with rows and models of
its own. Runs that follow one another share their mistakes, so the interval is that of blocks of runs.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.harness import Row
from bench.inprocess import Direct, executor_of, formula_run, remember_texts
from combee.algo.stats import mean_interval
from combee.sim import draws, planted
from combee.sim.model import Model
from combee.sim.params import Law
from combee.tasks.dataset import Dataset
from combee.tasks.registry import task_for
from combee.work.rollouts import evaluate

RUNS, RULES, DRIFTING = 50, 30, 2
TRAIN, HELD_OUT, BATCH = 90, 60, 45
MOST_POINTS = 1.0
LIFETIMES, BLOCK = 4, 10
SEEDS_OF_A_LIFETIME = 1000
NAMES = [planted.topic(index) for index in range(RULES)]


@dataclass(frozen=True)
class Learned:
    """What one run left, and what it handed on."""

    score: float
    tokens: int
    stale: int
    handed_on: str


@dataclass(frozen=True)
class Lived:
    """One run of a lifetime beside one that starts from nothing."""

    lifetime: int
    number: int
    score: float
    fresh: float
    tokens: int
    """of the playbook."""
    stale: int
    """rules of which the playbook says what held before."""
    ledger_bytes: int


def drift(folder: Path) -> Row:
    """The mean score of lifetimes minus that of fresh runs on the same rows, in points."""
    with multiprocessing.get_context("spawn").Pool(min(LIFETIMES, os.cpu_count() or 1)) as pool:
        lived = [one for ones in pool.map(one_lifetime, range(LIFETIMES)) for one in ones]
    with (folder / "worlds-drift.jsonl").open("w") as file:
        file.writelines(json.dumps(asdict(one)) + "\n" for one in lived)
    gap = mean_interval(gaps(lived))
    return Row(
        name="heldOut of lifetimes that start from their ledgers, minus that of fresh runs",
        figure=round(gap.mean, 1),
        target=f"interval above -{MOST_POINTS:.0f}",
        unit="points",
        met=gap.low > -MOST_POINTS,
        how=f"simulated model, {RULES} planted rules, {DRIFTING} replaced before each of {RUNS} runs, "
        f"{LIFETIMES} lifetimes",
        detail={
            "interval": [round(gap.low, 1), round(gap.high, 1)],
            "byLifetime": [
                round(mean_interval(gaps([one for one in lived if one.lifetime == number])).mean, 1)
                for number in range(LIFETIMES)
            ],
            "meanStaleRules": round(sum(one.stale for one in lived) / len(lived), 2),
            "mostPlaybookTokens": max(one.tokens for one in lived),
            "mostLedgerBytes": max(one.ledger_bytes for one in lived),
        },
    )


def gaps(lived: list[Lived]) -> list[float]:
    """The points by which each block of a lifetime's runs is above the fresh ones."""
    blocks = (lived[start : start + BLOCK] for start in range(0, len(lived), BLOCK))
    return [100 * sum(one.score - one.fresh for one in block) / len(block) for block in blocks]


def one_lifetime(number: int) -> list[Lived]:
    """One lifetime of RUNS runs; for a process of its own."""
    remember_texts()
    return asyncio.run(life(RUNS, number))


async def life(runs: int, lifetime: int = 0) -> list[Lived]:
    """The runs of a lifetime, in order."""
    lived, start, versions = [], "", Counter[str]()
    with drifting(versions):
        for number in range(runs):
            if number:
                versions.update(NAMES[(number * DRIFTING + k) % RULES] for k in range(DRIFTING))
            seed = SEEDS_OF_A_LIFETIME * lifetime + number
            one, fresh = await learned(seed, start), await learned(seed, "")
            start = one.handed_on
            lived.append(Lived(lifetime, number, one.score, fresh.score, one.tokens, one.stale, len(start)))
    return lived


@contextmanager
def drifting(versions: Counter[str]) -> Iterator[None]:
    """Have each rule say what its version does; the one before is the typical mistake."""
    first = planted.line

    def line(name: str, side: str) -> planted.Line:
        version = versions[name] - (side == "wrong")
        if version < 1:
            return first(name, side if versions[name] == 0 else "right")
        return planted.Line(
            *(least + draws.number("drift", name, part, version) % most for part, least, most in PARTS)
        )

    planted.line = line
    try:
        yield
    finally:
        planted.line = first


PARTS = (("slope", 2, 90), ("offset", 100, 880))


async def learned(number: int, start: str) -> Learned:
    """One run on the rows of its number, which starts from a ledger, or from nothing."""
    run = formula_run("drift", size=BATCH, seed=number, aggregation={"strategy": "ParallelScan"})
    model, known = Model([], seed=number, law=Law()), {}
    train, held_out = _rows(number, "train", TRAIN), _rows(number, "heldOut", HELD_OUT)
    roles = {role: Direct(model, role, known) for role in ("task", "proposer")}
    executor = executor_of(run, (train, held_out), roles)
    context = executor.context = replace(executor.context, initial_playbook=start)
    await executor.run()
    artifact = context.method.from_json(await context.store.aget_blob(executor.state.best.artifact))
    rendered = context.rendered(artifact)
    seen = await evaluate(
        context, context.asker(), list(held_out.examples), rendered.shown, stage="all of heldOut"
    )
    handed_on = context.method.handed_on(artifact, rendered, by=f"run-{number}", train=train.digest).decode()
    score = sum(seen.by_id.values()) / len(seen.by_id)
    return Learned(score, rendered.tokens, stale(rendered.text), handed_on)


def stale(playbook: str) -> int:
    """How many rules a playbook states as they were before they were last replaced."""
    before = {name: planted.line(name, "wrong").phrase for name in NAMES}
    lines = playbook.splitlines()
    return sum(any(name in line and phrase in line for line in lines) for name, phrase in before.items())


def _rows(number: int, split: str, count: int) -> Dataset:
    lines = ((json.dumps(row) + "\n").encode() for row in planted.rows(count, NAMES, number, split))
    return task_for("Formula").read_rows(lines, split)
