"""The whole playbook against a core and a tail chosen for each question, on tasks with few and many rules.

All with the simulated model: which rules it lacks depends on its seed, and its server counts the prompt
tokens and how many of them it had cached. A run learns with the budgets that it is scored with."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import FORMULA, ROOT, Measured, Row, combee, formula_key, manifest, planted, run, simulated

SEEDS = 4
BATCH = 250
FINER = ROOT / "examples" / "data" / "finer"
WHOLE = "whole"
RULES = 400
"""Planted rules, and rows to learn them from: a playbook of more than 10,000 tokens."""


@dataclass(frozen=True)
class Data:
    """A task's rows, what its simulated model is told of them, and (core, tail) tokens to compare."""

    type: str
    train: Path
    held_out: Path
    flags: tuple[str | Path, ...]
    budgets: tuple[tuple[int, int], ...]


def retrieval(folder: Path) -> Row:
    """Gate score, prompt tokens and cached prompt tokens of a rollout on gate, by task and budgets."""
    table: dict[str, Any] = {}
    for name, data in _tasks(folder).items():
        budgets = [None, *data.budgets]
        scored = {
            arm: [_scored(folder, f"{name}-{seed}", data, arm, url) for seed, url in _worlds(folder, data)]
            for arm in budgets
        }
        for arm in budgets:
            table[f"{name}, {_named(arm)}"] = _means(scored[arm], scored[None])
    few = table[f"formula, {_named((200, 200))}"]
    return Row(
        name="retrieval: prompt tokens of a rollout, whole playbook / core and tail of 200 tokens each",
        figure=round(table[f"formula, {WHOLE}"]["prompt tokens"] / few["prompt tokens"], 2),
        target="-",
        unit="x",
        how=f"combee run, ACE, batches of {BATCH}, {SEEDS} seeds each with a simulated model of its own; "
        f"Formula, FiNER, {RULES} planted rules; a run learns with the budgets that it is scored with; "
        "score on gate, tokens and cached tokens a rollout there as the simulated model's server counts them",
        detail=table,
    )


def _tasks(folder: Path) -> dict[str, Data]:
    key = folder / "finer-key.json"
    splits = FINER / "train.jsonl", FINER / "heldout.jsonl"
    combee("sim", "key", "--task", "finer", "--data", splits[0], "--data", splits[1], "-o", key)
    rules = planted(folder, RULES, RULES)
    small = ((100, 100), (200, 200))
    return {
        "formula": Data(
            "Formula",
            FORMULA / "train.jsonl",
            FORMULA / "heldout.jsonl",
            ("--key", formula_key(folder)),
            small,
        ),
        "finer": Data("FiNER", *splits, ("--key", key), small),
        "planted": Data("Formula", *rules, (), ((100, 100), (500, 500), (2000, 2000))),
    }


@contextmanager
def _world(folder: Path, data: Data, seed: int) -> Iterator[str]:
    with simulated(folder, *data.flags, "--time-scale", "0", "--seed", str(seed)) as url:
        yield url


def _worlds(folder: Path, data: Data) -> Iterator[tuple[int, str]]:
    for seed in range(SEEDS):
        with _world(folder, data, seed) as url:
            yield seed, url


def _named(arm: tuple[int, int] | None) -> str:
    return WHOLE if arm is None else f"{arm[0]} + {arm[1]}"


def _scored(folder: Path, name: str, data: Data, arm: tuple[int, int] | None, url: str) -> dict[str, float]:
    options: dict[str, Any] = {"renderTokenBudget": 80_000}
    if arm is not None:
        options["retrieval"] = {"coreTokens": arm[0], "tailTokens": arm[1]}
    sources = {"train": {"uri": str(data.train)}, "heldOut": {"uri": str(data.held_out)}}
    name = f"{name}-{_named(arm).replace(' + ', '-')}"
    spec = {
        "task": {"type": data.type, "data": sources},
        "method": {"type": "ACE", "ace": options},
        "aggregation": {"maxInputTokens": 100_000},
    }
    return _figures(run(folder, manifest(folder, name, data.train, data.held_out, BATCH, **spec), url))


def _figures(measured: Measured) -> dict[str, float]:
    gate = measured.result["heldOut"]["gate"]
    rows = map(json.loads, (measured.out / "rollouts.jsonl").read_text().splitlines())
    shown = [row for row in rows if row["stage"] == "gate best"]
    return {
        "playbook tokens": measured.result["playbook"]["tokens"],
        "gate before": gate["baseline"],
        "gate after": gate["best"],
        "prompt tokens": statistics.mean(row["promptTokens"] for row in shown),
        "cached tokens": statistics.mean(row["cachedTokens"] for row in shown),
    }


def _means(seeds: list[dict[str, float]], whole: list[dict[str, float]]) -> dict[str, Any]:
    means = {name: round(statistics.mean(one[name] for one in seeds), 3) for name in seeds[0]}
    over = [
        round(one["gate after"] - other["gate after"], 3) for one, other in zip(seeds, whole, strict=True)
    ]
    return {**means, "over whole, by seed": over}
