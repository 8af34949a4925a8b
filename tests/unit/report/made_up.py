"""A realistic made-up result, with every part filled; shared by the tests of the report and of the screen."""

from __future__ import annotations

import json
from typing import Any

from combee.report.result import Result, read_result

TEXTS = [
    (
        "FORMULAS",
        "Gross margin = (revenue - cost of goods sold) / revenue; state it as a share with two decimals.",
    ),
    (
        "FORMULAS",
        "For CAGR take the number of periods, not of data points: n years of data are n - 1 periods.",
    ),
    ("FORMULAS", "Days sales outstanding uses 365 days unless the question says 360 (rule R-017)."),
    ("CALCULATION", "Round only the final result; carry at least 6 digits through the steps."),
    (
        "CALCULATION",
        "When a rate is given as 15%, compute with 0.15 and answer in the unit that was asked for.",
    ),
    ("PITFALLS", "If working capital is negative, keep the sign: the ratio is below zero."),
]


SHAPE = {
    "name": "Hybrid",
    "reason": "its calls keep 31 % of 64 slots busy",
    "advice": "run similar tasks beside it",
    "iterations": 5,
    "slots": 64,
    "utilisation": 0.3125,
    "speedUp": 20.0,
    "ceiling": 25.0,
    "beside": 3.2,
    "rejected": {"Candidate": "most slots are idle", "Task": "a batch fills the slots"},
    "invalidatedBy": ["another hardware class", "another split"],
}


def read_back(data: dict[str, Any]) -> Result:
    """A result.json with these contents, read."""
    return read_result(json.dumps(data).encode())


def stage(step: str, name: str, calls: int, seconds: float) -> dict[str, Any]:
    """One stage's time."""
    quantiles = {"p50": 0.5 * seconds, "p90": 0.8 * seconds, "p99": seconds, "max": 1.2 * seconds}
    tokens = {"promptTokens": 2_000 * calls, "cachedTokens": 1_500 * calls}
    return {
        "step": step,
        "stage": name,
        "calls": calls,
        "scheduledSeconds": 2 * seconds,
        **quantiles,
        **tokens,
    }


def iteration(number: int, select: float | None, batch: int, **changes: Any) -> dict[str, Any]:
    """One iteration record; later ones keep a little more."""
    lessons = int(batch * 1.15)
    carried = lessons - max(0, 5 - number)
    return {
        "iteration": number,
        "epoch": 1,
        "examples": sum((10, 50, 84, 84, 84)[:number]),
        "batchSize": batch,
        "batchReason": "further growth would save less than 45 % of an iteration's time (b½ = 69)",
        "wallSeconds": 9.1 + 0.13 * batch,
        "modelledSeconds": 8.9 + 0.12 * batch,
        "criticalPathSeconds": 8.8 + 0.12 * batch,
        "calls": 5 * batch,
        "tokens": 4200 * batch,
        "rollouts": 3 * batch,
        "trainScore": 0.7,
        "select": select,
        "best": number == 4,
        "retention": {
            "levels": [
                {
                    "level": "leaf round 1",
                    "calls": batch // 8 + 1,
                    "inputs": batch,
                    "lessons": lessons,
                    "carried": carried - 3,
                },
                {
                    "level": "leaf round 2",
                    "calls": 1,
                    "inputs": 6,
                    "lessons": lessons - carried + 3,
                    "carried": 3,
                },
                {"level": "group-by", "calls": 2, "inputs": carried, "lessons": carried, "carried": carried},
            ],
            "distinct": lessons,
            "carried": carried,
            "rendered": carried - 4,
            "byRarity": [
                {"copies": "1", "distinct": lessons - 6, "carried": carried - 6},
                {"copies": "2-3", "distinct": 4, "carried": 4},
                {"copies": "4+", "distinct": 2, "carried": 2},
            ],
        },
        "verification": {
            "candidates": 9,
            "replayed": 8,
            "verified": 6,
            "refused": 3,
            "leaks": 1,
            "injections": 0,
        },
        "delayFit": {"c0": 9.05, "c1": 0.131, "bHalf": 69.1, "n": number + 1, "rmse": 0.4}
        if number > 1
        else None,
        "observations": [
            [b, 9.05 + 0.131 * b + (-1) ** k * 0.5] for k, b in enumerate((10, 50, 84, 84, 84)[:number])
        ],
        "stepSeconds": {"map": 4.4, "reduce": 3.9, "finish": 1.1},
        "stages": [
            stage("map", "map", 2 * batch, 2.0),
            stage("reduce", "leaf round 1", batch // 8 + 1, 1.0),
            stage("reduce", "merge", 2, 0.5),
            stage("finish", "replay round 1", 9, 0.3),
            stage("finish", "select", 125, 0.2),
        ],
        "faults": {"askedAgain": {"429": 8, "500": 3}, "repaired": 2, "hedges": 1, "lost": 0},
        **changes,
    }


def result(**changes: Any) -> Result:
    """A run that learned; ``changes`` replace whole top-level parts (camelCase)."""
    scores = (0.648, 0.744, 0.824, 0.856, 0.848)
    entries = [
        {
            "id": f"{section[:4].lower()}-{k:06x}",
            "section": section,
            "text": text,
            "sources": [f"{17 + 3 * k + j}@1" for j in range(1 + 4 * k)],
            "helpful": 3 + k,
            "harmful": k // 3,
            "verified": "support" if k else "replay",
            "contested": k == 2,
            "rendered": True,
            "parents": ["form-0a0a0a", "form-ffffff"] if k == 1 else [],
            "replays": [] if k else [{"example": "17", "fixed": True, "controls": ["5", "9"], "harmed": 0}],
        }
        for k, (section, text) in enumerate(TEXTS)
    ]
    entries.append(
        {
            **entries[0],
            "id": "form-ffffff",
            "text": "Divide by two.",
            "verified": "no",
            "rendered": False,
            "leftOut": "superseded",
            "replacedBy": ["form-000001"],
            "replays": [{"example": "20", "fixed": False}],
        }
    )
    simulated = {
        "endpointHost": "127.0.0.1:8011",
        "simulated": True,
        "servedBy": "simulated model (combee sim)",
    }
    data: dict[str, Any] = {
        "version": 1,
        "run": "formula-ace",
        "manifestDigest": "5f2a" * 16,
        "outcome": "Learned",
        "exitCode": 0,
        "reason": "no better playbook in 1 iteration after the best one and the data is used up",
        "setup": {
            "task": "Formula",
            "method": "ACE",
            "strategy": "ParallelScan",
            "merge": "Structured",
            "seed": 7,
        },
        "models": {role: {"model": "sim-120b", **simulated} for role in ("task", "proposer")},
        "data": {
            "train": {"rows": 312, "digest": "ab" * 32},
            "heldOut": {"rows": 250, "digest": "cd" * 32, "select": 125, "gate": 125},
            "test": None,
            "warnings": ["train: rows 17 and 204 are identical and were merged"],
        },
        "heldOut": {
            "baseline": {"select": 0.632},
            "best": {"select": 0.856, "iteration": 4},
            "gate": {
                "baseline": 0.64,
                "best": 0.848,
                "gain": 0.208,
                "low": 0.136,
                "high": 0.28,
                "n": 125,
                "discordant": 30,
            },
            "smallestDetectableGain": 0.079,
        },
        "test": None,
        "iterations": [iteration(k + 1, s, (10, 40, 84, 84, 84)[k]) for k, s in enumerate(scores)],
        "usage": {
            "task": {
                "calls": 2104,
                "hits": 12,
                "promptTokens": 912_000,
                "completionTokens": 188_000,
                "cachedTokens": 640_000,
            },
            "proposer": {
                "calls": 341,
                "hits": 0,
                "promptTokens": 201_000,
                "completionTokens": 97_000,
                "cachedTokens": 90_000,
            },
        },
        "rollouts": 2104,
        "wallSeconds": 97.4,
        "faults": {"askedAgain": {"429": 32, "500": 20}, "repaired": 12, "hedges": 4, "lost": 0},
        "profile": {
            "wallSeconds": 9.0,
            "scheduledSeconds": 8.7,
            "stages": [stage("profile", "wave 0", 125, 4.0)],
        },
        "evaluation": {
            "wallSeconds": 5.0,
            "scheduledSeconds": 4.7,
            "stages": [stage("evaluate", "gate best", 125, 2.0)],
        },
        "shape": SHAPE,
        "budget": [
            {"name": "rollouts", "spent": 2104, "limit": 4000},
            {"name": "tokens", "spent": 1_398_000, "limit": None},
        ],
        "costPerPoint": {"tokens": 67_211.5, "rollouts": 101.2},
        "playbook": {"digest": "ef" * 32, "tokens": 3912, "entries": 6, "leftOut": 1, "path": "prompt.md"},
        "entries": entries,
        "refusals": [
            {"kind": "replay", "reason": "its own example 41 stays wrong with it", "textDigest": "0a" * 32},
            {
                "kind": "leak",
                "reason": "8 words in a row are those of one row of the data",
                "textDigest": "0b" * 32,
            },
            {
                "kind": "injection",
                "reason": "it gives the model orders unrelated to the task",
                "textDigest": "0c" * 32,
            },
        ],
    }
    return read_back({**data, **changes})


def bare(outcome: str = "Failed", code: int = 5, **changes: Any) -> Result:
    """A run that ended before it had anything to show."""
    return read_back(
        {
            "run": "formula-ace",
            "manifestDigest": "5f2a" * 16,
            "outcome": outcome,
            "exitCode": code,
            "reason": "http://127.0.0.1:8011 gave no answer",
            **changes,
        }
    )
