"""Does the batch size tell the truth? Three worlds in which it did not.

*Tails*: calls whose times follow Pareto's law with exponent 1.3, so that one in a thousand takes 200 times
the shortest. An iteration waits for its longest call. What does the law say an example costs, and what does
it cost?

*Noise*: a server that answers at once, so that a call's time is the client's own work, one message at a time.
No size is faster than another. How many iterations does an epoch take?

*Shipped*: ``examples/formula.yaml`` as it is, on 250 rows and a simulated model, beside a server whose calls
take what the latency law says (``bench.virtual``: modelled time, whatever machine this is). How much faster
than ``Sequential`` is it, and than stated sizes? Profiling, verification and select are charged. Beside it
stands how far that is from what could be: from all calls at the pace of full slots, with none ever empty, and
from the *bound*, which is that or the longest way of one example to a rendered entry, whichever is more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import yaml

from bench import virtual
from bench.harness import ROOT, Row
from bench.inprocess import executor_of, formula_splits, remember_texts, simulated
from combee.algo.delay import Observation
from combee.algo.drift import today
from combee.algo.latency import H200
from combee.algo.laws import levelled
from combee.algo.schedule import list_schedule
from combee.algo.stats import mean_interval
from combee.api.load import parse_run
from combee.api.run import Batching
from combee.local.executor import LocalExecutor
from combee.sim.params import Law
from combee.steps import FINISH, LEADING, MAP, PROFILE, REDUCE
from combee.work.aggregation.calls import ONE_CALL
from combee.work.asker import CallRow, decode_rows
from combee.work.callgraph import graph_of
from combee.work.context import read_receipt
from combee.work.finish import ON_SELECT
from combee.work.reduction import leaf_stage

SEEDS = 10
NOISY_SEEDS = 3
ROWS = 250
SLOTS = (8, 64, 256)
AT_100, PLAIN = "ParallelScan@100", "Naive@25"
STRATEGIES: dict[str, tuple[dict[str, Any], int | None]] = {
    "Sequential": ({"strategy": "Sequential"}, 1),
    "Naive@10": ({"strategy": "Naive"}, 10),
    PLAIN: ({"strategy": "Naive"}, 25),
    AT_100: ({}, 100),
    f"ParallelScan@{ROWS}": ({}, ROWS),
    f"Duplicate@{ROWS}": ({"redundancy": {"mode": "Duplicate"}}, ROWS),
    "shipped": ({}, None),
}
"""What is set in the manifest's aggregation, and the size; None for its own batching."""
CLIENT_SECONDS, CLIENT_SCATTER = 0.003, 0.3
"""What the client needs a call, and its standard deviation in ln."""
TAIL, TAIL_RUNS, EACH, CUT = 1.3, 40, 9, 4.0
LONGEST = 600.0
"""Seconds after which a call is given up."""


def batches(folder: Path) -> Row:
    """The shipped manifest's modelled time against b = 100, at the slots where it is worst."""
    remember_texts()
    found = {slots: {name: epochs(name, slots) for name in STRATEGIES} for slots in SLOTS}
    worst = min(seconds(here[AT_100]) / seconds(here["shipped"]) for here in found.values())
    detail: dict[str, Any] = {f"tails (Pareto {TAIL}), b = 100, s an example": tails()}
    noisy = [epoch("shipped", 64, seed, noise=True) for seed in range(NOISY_SEEDS)]
    detail["noise: sizes by seed"] = {
        f"seed {seed}": " ".join(map(str, one.sizes)) for seed, one in enumerate(noisy)
    }
    for slots, here in found.items():
        detail[f"{slots} slots"] = {name: shown(here["Sequential"], here[PLAIN], here[name]) for name in here}
    return Row(
        name="shipped manifest, simulated model: modelled time at b = 100 / its own, worst slots",
        figure=round(worst, 2),
        target=">= 1",
        unit="x",
        met=worst >= 1,
        how=f"examples/formula.yaml, {ROWS} rows, {SEEDS} seeds, {', '.join(map(str, SLOTS))} slots; "
        "recorded calls list-scheduled on the slots; profile, verification and select charged; held-out on "
        "gate",
        detail=detail,
    )


def tails() -> dict[str, float]:
    """What an example costs at b = 100, by the iterations themselves and by two laws fitted to them."""
    costs, cut_laws, laws = list[float](), list[float](), list[float]()
    for seed in range(TAIL_RUNS):
        draw = np.random.default_rng([13, seed])
        calls = [(b, iteration(draw, b)) for b in Batching().sizes * EACH]
        took = [Observation(b, list_schedule(stages, 256).seconds) for b, stages in calls]
        cut = [Observation(b, list_schedule(shortened(stages), 256).seconds) for b, stages in calls]
        costs += [one.seconds / 100 for one in took if one.batch_size == 100]
        for seen, kept, level in ((took, laws, True), (cut, cut_laws, False)):
            law = today(seen).law
            if law is not None:
                kept.append((levelled(law, seen) if level else law).predict(100) / 100)
    return {
        "the iterations": round(mean(costs), 2),
        "law of calls cut at 4 medians (before)": round(mean(cut_laws), 2),
        "law of what iterations took (now)": round(mean(laws), 2),
    }


def iteration(draw: np.random.Generator, b: int) -> list[list[list[float]]]:
    """An iteration's calls: roll out and reflect, leaves, merges; a call takes a second or more."""

    def times(chains: int, length: int) -> list[list[float]]:
        seconds: list[list[float]] = np.minimum(1.0 + draw.pareto(TAIL, (chains, length)), LONGEST).tolist()
        return seconds

    return [times(b, 2), times(math.ceil(b / 4), 1), times(math.ceil(b / 10), 1)]


def shortened(stages: Sequence[list[list[float]]]) -> list[list[list[float]]]:
    """The calls with each counted at most four times its stage's median, as the law used to be shown them."""
    cut = []
    for chains in stages:
        longest = CUT * float(np.median([seconds for chain in chains for seconds in chain]))
        cut.append([[min(seconds, longest) for seconds in chain] for chain in chains])
    return cut


@dataclass(frozen=True)
class Epoch:
    """One run. ``seconds``: modelled, all that is charged; ``score``: on gate."""

    seconds: float
    full: float
    """seconds of all calls at the pace of full slots, none ever empty."""
    bound: float
    """``full``, or the longest way of one example, if that is more."""
    sizes: tuple[int, ...]
    score: float


def epochs(name: str, slots: int) -> list[Epoch]:
    """A run of each seed."""
    return [epoch(name, slots, seed) for seed in range(SEEDS)]


def epoch(name: str, slots: int, seed: int, *, noise: bool = False) -> Epoch:
    """The shipped manifest as one of ``STRATEGIES``, without budget or early stop, as ``combee compare``."""
    aggregation, size = STRATEGIES[name]
    document = yaml.safe_load((ROOT / "examples" / "formula.yaml").read_text())
    spec = document["spec"]
    spec.pop("budget")
    spec |= {"seed": seed, "stopping": {"patience": 1000, "evaluateEvery": 100}}
    spec["workers"] |= {"concurrency": slots}
    spec["aggregation"] |= aggregation
    if size is not None:
        spec["batching"] = {"mode": "Fixed", "size": size, "reason": "a stated size to compare with"}
    manifest = parse_run(document, "formula.yaml")
    train, held_out = formula_splits()

    async def learned() -> Epoch:
        executor = executor_of(
            manifest,
            (replace(train, examples=train.examples[:ROWS]), held_out),
            virtual.clients(simulated(seed, Law()), slots, client(seed) if noise else virtual.Server()),
        )
        outcome = await executor.run()
        done = list(executor.summaries.values())
        charged = [one.seconds["modelled"] for one in done if one.kind in (PROFILE.name, FINISH.name)]
        sizes = [one.observations[0][0] for one in done if one.kind == FINISH.name]
        scores = [one.scores["gateBest"] for one in done if "gateBest" in one.scores]
        if not scores:
            raise RuntimeError(f"{name}, seed {seed}: {outcome.name}, {outcome.reason}")
        found = await calls(executor)
        full = full_slots([row for _, _, row in found], slots)
        return Epoch(sum(charged), full, max(full, longest_way(found)), tuple(sizes), scores[0])

    return virtual.run(learned())


async def calls(executor: LocalExecutor) -> list[tuple[str, int, CallRow]]:
    """Every call that is charged, with its kind of step and its iteration, -1 for profile's."""
    context, found = executor.context, list[tuple[str, int, CallRow]]()
    for one in executor.summaries.values():
        if one.kind not in (PROFILE.name, *LEADING, FINISH.name):
            continue
        iteration = one.counts.get("iteration", -1)
        plan = executor.plans.get(iteration)
        for shard in range(plan.shards if plan is not None and one.kind == MAP.name else 1):
            receipt = await read_receipt(context, one.step, shard)
            if receipt is None:
                raise RuntimeError(f"{one.step}: no receipt of shard {shard}")
            rows = decode_rows(await context.store.aget_blob(receipt.outputs["calls"]))
            found += [(one.kind, iteration, row) for row in rows]
    return found


def full_slots(rows: Sequence[CallRow], slots: int) -> float:
    """The seconds of these calls at the pace of full slots, none of which is ever empty."""
    return sum(
        row.completion_tokens * H200.step(slots) / slots
        + row.uncached_tokens * H200.prefill_seconds_per_token
        for row in rows
    )


def longest_way(found: Sequence[tuple[str, int, CallRow]]) -> float:
    """The seconds of the longest way of one example to a rendered entry, as its calls took them.

    An estimate: the longest way from a rollout through its reflection to the end of its group's leaf; where
    the reduce made the leaves, the longest of its first round, which may be another example's; the longest
    merge; and a verification whose calls are of mean length."""
    iterations = {number for _, number, _ in found if number >= 0}
    return max(_way([(kind, row) for kind, at, row in found if at == number]) for number in iterations)


def _way(found: Sequence[tuple[str, CallRow]]) -> float:
    mapped = [row for kind, row in found if kind == MAP.name]
    verified = dict[str, list[float]]()
    for kind, row in found:
        if kind == FINISH.name and not row.stage.startswith(ON_SELECT):
            verified.setdefault(row.stage, []).append(row.seconds)
    reduced = [row for kind, row in found if kind == REDUCE.name]
    merges = [row.seconds for row in reduced if row.stage.startswith("merge")]
    leaves = [row.seconds for row in reduced if row.stage in (ONE_CALL, leaf_stage(1))]
    return sum(
        (_longest_path(mapped), max(leaves, default=0), max(merges, default=0), *map(mean, verified.values()))
    )


def _longest_path(rows: Sequence[CallRow]) -> float:
    """The seconds of the longest chain of calls, with what it waited for before it."""
    graph = graph_of(rows)
    longest, before = 0.0, list[float]()
    for number, chains in enumerate(graph.stages):
        waits = graph.beside.get(number, [()] * len(chains))
        before = [
            max((before[name] for name in names), default=0.0) + sum(row.seconds for row in chain)
            for names, chain in zip(waits, chains, strict=True)
        ]
        longest = max(longest, *before)
    return longest


def client(seed: int) -> virtual.Client:
    """A client that is all there is to wait for."""
    draw = np.random.default_rng([3, seed])
    return virtual.Client(lambda: CLIENT_SECONDS * math.exp(CLIENT_SCATTER * draw.standard_normal()))


def seconds(runs: Sequence[Epoch]) -> float:
    """Mean over seeds."""
    return mean(one.seconds for one in runs)


def shown(reference: Sequence[Epoch], plain: Sequence[Epoch], runs: Sequence[Epoch]) -> dict[str, Any]:
    """As the table shows it; sizes are those of the first seed."""
    differences = [one.score - other.score for one, other in zip(runs, reference, strict=True)]
    low, high = mean_interval(differences).low, mean_interval(differences).high
    return {
        "seconds": round(seconds(runs), 1),
        "speedUp": round(mean(a.seconds / b.seconds for a, b in zip(reference, runs, strict=True)), 1),
        f"over{PLAIN}": round(mean(a.seconds / b.seconds for a, b in zip(plain, runs, strict=True)), 2),
        "overFullSlots": round(mean(one.seconds / one.full for one in runs), 2),
        "overBound": round(mean(one.seconds / one.bound for one in runs), 2),
        "heldOut": round(mean(one.score for one in runs), 3),
        "minusSequential": [round(low, 3), round(high, 3)],
        "iterations": len(runs[0].sizes),
        "sizes": " ".join(map(str, runs[0].sizes[:12])),
    }
