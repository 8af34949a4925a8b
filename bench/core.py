"""The rows of the Core: one function a row, each returns a ``Row``. Figures are measured, never asserted."""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.batcher import batcher, patient, pieces
from bench.cluster import cluster
from bench.content import content
from bench.controller import controller
from bench.faults import faults, straggler
from bench.gateway import gateway_row
from bench.gatewaycrowd import crowded_row
from bench.gatewaysteady import steady_row
from bench.harness import (
    COMBEE,
    FORMULA,
    Measured,
    Row,
    calls_of,
    environment,
    formula_key,
    formula_rows,
    manifest,
    planted,
    run,
    simulated,
)
from bench.killed import killed
from bench.learning import learning_speed
from bench.prefix import prefix
from bench.retrieval import retrieval
from bench.worlds import WORLDS
from combee.algo.schedule import list_schedule
from combee.algo.tree import Caps, plan_leaves, plan_levels

WALL_TARGET = 1.10
MEMORY_TARGET_MIB = 120.0
SLOTS = 64


def wall_over_critical_path(folder: Path) -> Row:
    """Wall time of an iteration / its recorded calls list-scheduled on the run's slots."""
    path = manifest(folder, "wall", formula_rows(folder, 100), FORMULA / "heldout.jsonl", 100)
    with simulated(folder, "--key", formula_key(folder), "--time-scale", "1") as url:
        measured = run(folder, path, url)
    first = measured.result["iterations"][0]
    scheduled = first["criticalPathSeconds"]
    stages = _stages(measured, 0)
    marks = {(kind, name): at for at, _, _, kind, name, _ in measured.figures["marks"]}
    strict = (marks["finished", "0"] - marks["planned", "0"]) / scheduled
    ratio = first["wallSeconds"] / scheduled
    return Row(
        name="wall / critical path of an iteration",
        figure=round(ratio, 4),
        target=f"<= {WALL_TARGET:.2f}",
        unit="x",
        met=max(ratio, strict) <= WALL_TARGET,
        how="Formula, n = 100, 64 slots, time scale 1, simulated model; result.json: wallSeconds / "
        "criticalPathSeconds",
        detail={
            "wallSeconds": first["wallSeconds"],
            "criticalPathSeconds": scheduled,
            "fromPlanToNextDecision": round(strict, 4),
            "calls": first["calls"],
            "clientCpuSecondsOfTheRun": measured.figures["cpu_seconds"],
            "stages": stages,
        },
    )


def _stages(measured: Measured, iteration: int) -> dict[str, dict[str, float]]:
    """Per stage: wall seconds until the next one began, and the seconds its calls need on the slots."""
    chains: dict[str, dict[int, list[float]]] = {}
    for _, stage, chain, seconds, *_ in calls_of(measured.out, iteration):
        chains.setdefault(stage, {}).setdefault(chain, []).append(seconds)
    marks: list[list[Any]] = measured.figures["marks"]
    start = next(i for i, m in enumerate(marks) if m[3:5] == ["planned", str(iteration)])
    end = next(i for i, m in enumerate(marks) if m[3:5] == ["finished", str(iteration)])
    found: dict[str, dict[str, float]] = {}
    for mark, after in zip(marks[start:end], marks[start + 1 : end + 1], strict=True):
        name = mark[4] if mark[3] == "stage" else "before map"
        scheduled = list_schedule([list(chains.get(name, {}).values())], SLOTS).seconds
        found[name] = {"wall": round(after[0] - mark[0], 3), "scheduled": round(scheduled, 3)}
        found[name]["excess"] = round(found[name]["wall"] - found[name]["scheduled"], 3)
    return found


def memory_in_batches(folder: Path) -> Row:
    """Memory of 10,000 examples in batches of 1,000."""
    return _memory(folder, 1_000)


def memory_in_one_batch(folder: Path) -> Row:
    """Memory of 10,000 examples in one batch."""
    return _memory(folder, 10_000)


def _memory(folder: Path, size: int) -> Row:
    train, held_out = planted(folder, 10_000, 1_000)
    path = manifest(folder, f"memory-{size}", train, held_out, size)
    with simulated(folder, "--time-scale", "0") as url:
        measured = run(folder, path, url)
    figures = measured.figures
    above = round(figures["peak_mib"] - figures["imported_mib"], 1)
    marks = [(name, rss) for _, _, rss, _, name, _ in figures["marks"]]
    return Row(
        name=f"memory of 10,000 examples, batches of {size:,}",
        figure=above,
        target=f"<= {MEMORY_TARGET_MIB:.0f}",
        unit="MiB",
        met=above <= MEMORY_TARGET_MIB,
        how="VmHWM at the end of `combee run`, report included, minus VmRSS after importing cli.run, "
        "local.session and scipy.special, in one process; 1,000 planted rules, time scale 0, simulated model",
        detail={
            "importedMiB": figures["imported_mib"],
            "peakMiB": figures["peak_mib"],
            "highestStage": max(marks, key=lambda mark: mark[1]),
            "seconds": figures["seconds"],
            "clientCpuSeconds": figures["cpu_seconds"],
            "iterations": len(measured.result["iterations"]),
        },
    )


def help_time(folder: Path) -> Row:
    """Wall time of ``combee --help``: median of 10 after one to warm the file cache."""
    seconds = []
    for _ in range(11):
        started = time.perf_counter()
        subprocess.run([*COMBEE, "--help"], capture_output=True, env=environment(), check=True, cwd=folder)
        seconds.append(time.perf_counter() - started)
    median = statistics.median(seconds[1:])
    return Row(
        name="combee --help",
        figure=round(median, 3),
        target="< 0.3",
        unit="s",
        met=median < 0.3,
        how="median of 10 processes, file cache warm",
        detail={"slowest": round(max(seconds[1:]), 3), "first": round(seconds[0], 3)},
    )


def planning(folder: Path) -> Row:
    """The tree of 100,000 reflections, planned."""
    counts = [150 + (index * 7919) % 300 for index in range(100_000)]
    caps, seconds = Caps(32, 24_000, 8_000), []
    for attempt in range(3):
        started = time.perf_counter()
        leaves = plan_leaves(counts, caps, seed=7, iteration=attempt, copies=2)
        levels = plan_levels([4_096] * len(leaves), caps, node_output_tokens=4_096)
        seconds.append(time.perf_counter() - started)
    median = statistics.median(seconds)
    return Row(
        name="planning a tree of 100,000 reflections",
        figure=round(median, 3),
        target="< 1",
        unit="s",
        met=median < 1.0,
        how="plan_leaves and plan_levels, 2 copies, leaves of 8, merge: Model up to one root; median of 3",
        detail={
            "calls": sum(map(len, [leaves, *levels])),
            "levels": len(levels) + 1,
            "slowest": round(max(seconds), 3),
        },
    )


def throughput(folder: Path) -> Row:
    """Model calls a second of client and memo, the model answering at once."""
    train, held_out = planted(folder, 1_000, 1_000)
    path = manifest(folder, "throughput", train, held_out, 1_000)
    with simulated(folder, "--time-scale", "0") as url:
        measured = run(folder, path, url)
    calls = sum(len(calls_of(measured.out, number)) for number in range(len(measured.result["iterations"])))
    marks: list[list[Any]] = measured.figures["marks"]
    begin = next(i for i, m in enumerate(marks) if m[4] == "map")
    wall, cpu = (marks[begin + 1][k] - marks[begin][k] for k in (0, 1))
    mapped = sum(row[1] == "map" for row in calls_of(measured.out, 0))
    return Row(
        name="calls a second, client and memo",
        figure=round(mapped / wall, 1),
        target="-",
        unit="calls/s",
        how="the map of 1,000 planted examples: roll out, score, reflect, memo synced to disk; time scale 0, "
        "the simulated model on the same machine",
        detail={
            "clientCpuMsPerCall": round(1000 * cpu / mapped, 2),
            "wallMsPerCall": round(1000 * wall / mapped, 2),
            "mapCalls": mapped,
            "callsOfTheIteration": calls,
            "clientCpuSecondsOfTheRun": measured.figures["cpu_seconds"],
        },
    )


def kept(folder: Path) -> Row:
    """Distinct planted lessons kept at n = 1,000, and held-out on the rendered playbook beside it."""
    train, held_out = planted(folder, 1_000, 1_000)
    variants: dict[str, dict[str, str]] = {
        "ParallelScan, Structured": {},
        "Naive": {"strategy": "Naive"},
        "ParallelScan, Model, Sqrt": {"merge": "Model", "subgroups": "Sqrt"},
    }
    table: dict[str, Any] = {}
    with simulated(folder, "--time-scale", "0") as url:
        for number, (name, aggregation) in enumerate(variants.items()):
            # On few slots leaves are as large as they may be: calls are what is scarce there.
            spec = {"aggregation": aggregation, "workers": {"concurrency": 16}}
            path = manifest(folder, f"kept-{number}", train, held_out, 1_000, **spec)
            table[name] = _kept(run(folder, path, url))
    ours = table["ParallelScan, Structured"]
    share = ours["carried"] / ours["distinct"]
    return Row(
        name="distinct planted lessons kept, n = 1,000",
        figure=round(100 * share, 1),
        target=">= 95 with <= 250 calls",
        unit="%",
        met=share >= 0.95 and ours["leafCalls"] <= 250,
        how="one iteration on 1,000 planted rules, 16 slots; carried / distinct of result.json; calls of the "
        "leaves; held-out is on the rendered playbook, simulated model",
        detail=table,
    )


def _kept(measured: Measured) -> dict[str, Any]:
    """What one run kept, and what it was worth."""
    first, held_out = measured.result["iterations"][0], measured.result["heldOut"]
    stages = [row[1] for row in calls_of(measured.out, 0)]
    leaf = sum(stage.startswith("leaf") for stage in stages)
    merge = sum(stage.startswith("merge") for stage in stages)
    gate = held_out["gate"] if held_out else None
    return {
        "distinct": first["retention"]["distinct"],
        "carried": first["retention"]["carried"],
        "rendered": first["retention"]["rendered"],
        "leafCalls": leaf,
        "mergeCalls": merge,
        "playbookTokens": (measured.result["playbook"] or {}).get("tokens"),
        "selectBefore": held_out["baseline"]["select"] if held_out else None,
        "selectAfter": first["select"],
        "gateBefore": gate["baseline"] if gate else None,
        "gateAfter": gate["best"] if gate else None,
    }


ROWS = {
    "learning": learning_speed,
    "wall": wall_over_critical_path,
    "kept": kept,
    "controller": controller,
    "batcher": batcher,
    "batcher-patient": patient,
    "batcher-pieces": pieces,
    "prefix": prefix,
    "retrieval": retrieval,
    "killed": killed,
    "plan": planning,
    "faults": faults,
    "straggler": straggler,
    "throughput": throughput,
    "gateway": gateway_row,
    "gateway-crowded": crowded_row,
    "gateway-steady": steady_row,
    "content": content,
    "help": help_time,
    "memory-batches": memory_in_batches,
    "memory-one": memory_in_one_batch,
    "cluster": cluster,
    **WORLDS,
}
"""Name on the command line -> row."""
GROUPS = {"worlds": tuple(WORLDS), "gateway": ("gateway", "gateway-crowded")}
"""Name on the command line -> the rows that it stands for."""
BY_NAME_ONLY = frozenset(
    {
        "batcher-patient",
        "batcher-pieces",
        "gateway-steady",
        "memory-batches",
        "memory-one",
        "retrieval",
        *WORLDS,
    }
)
"""Minutes of both cores each: only when named."""
NO_CLOCK = frozenset(
    {
        "learning",
        "kept",
        "controller",
        "batcher",
        "batcher-patient",
        "batcher-pieces",
        "retrieval",
        "killed",
        *WORLDS,
    }
)
"""Their figures are counts, scores or modelled seconds: how busy the machine is changes none of them."""
