"""What a comparison with a real model measured, by the clock: `make evidence-real` ends with it.

    python -m bench.real MANIFEST DIR HELDOUT --strategies Sequential,ParallelScan@14 --seeds 3

`combee compare` has made DIR. Its own page counts time by the latency law of one GPU; this one says what the
servers really took: seconds of the whole run but for its last look at gate, which is the comparison's own.
It prints four tables in Markdown. A model that gives one answer to every question is right about the rows
with that target, so right answers are counted by target, too."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean

from combee.algo.latency import H200
from combee.algo.stats import Paired, paired_difference
from combee.cli.compare import parse_seeds
from combee.compare.cells import make_cells, read_tasks
from combee.compare.collect import CellFacts, collect
from combee.compare.strategies import REFERENCE, parse_strategies
from combee.names import PROMPT_KEY
from combee.report.happened import stage_sums
from combee.report.parts import StageTime
from combee.report.result import Result
from combee.report.text import duration, score, signed
from combee.steps import EVALUATE


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page. Exit code 0; a comparison that is not whole raises."""
    asked = _parser().parse_args(arguments)
    tasks = read_tasks([asked.manifest])
    strategies = parse_strategies(asked.strategies, ())
    cells = make_cells(tasks, strategies, parse_seeds(asked.seeds), asked.dir, {})
    slots = tasks[0].run.spec.workers.concurrency
    facts: dict[str, list[CellFacts]] = defaultdict(list)
    for cell in cells:
        facts[cell.label].append(collect(cell, [slots], H200)[0])
    targets = {row["id"]: row["target"] for row in map(json.loads, asked.held_out.read_text().splitlines())}
    tables = (_strategies(facts, targets), _targets(facts, targets), _runs(facts), _replies(facts))
    print("\n\n".join(tables))
    return 0


def gain(facts: Iterable[CellFacts], unit: Callable[[str], str]) -> Paired:
    """Return best minus start on gate, paired by ``unit`` of an example's id once all scores of a unit are
    averaged, over seeds and examples: seeds share their rows, so three of them do not triple the evidence."""
    scores: dict[str, dict[str, list[float]]] = {"baseline": defaultdict(list), "best": defaultdict(list)}
    for one in facts:
        for version, kept in scores.items():
            for key, value in one.scores[version].items():
                kept[unit(key)].append(value)
    start, best = ({key: mean(values) for key, values in kept.items()} for kept in scores.values())
    return paired_difference(start, best, seed=0)


def wall_seconds(result: Result) -> float:
    """Return how long the run took, but for its look at gate."""
    return result.wall_seconds - (result.evaluation.wall_seconds if result.evaluation else 0.0)


def path_seconds(result: Result) -> float:
    """Return the critical path of the same: its recorded calls, list-scheduled on the run's slots."""
    return sum(one.scheduled_seconds for one in stage_sums(result) if one.step != EVALUATE.name)


def _strategies(facts: dict[str, list[CellFacts]], targets: Mapping[str, str]) -> str:
    """Return a row for each strategy, means over the seeds."""
    base = {one.cell.seed: wall_seconds(one.result) for one in facts.get(REFERENCE, ())}
    rows = []
    for name, cells in facts.items():
        by_example, by_target = gain(cells, str), gain(cells, targets.__getitem__)
        times = [base[one.cell.seed] / wall_seconds(one.result) for one in cells if one.cell.seed in base]
        spread = f" ({min(times):.1f} to {max(times):.1f})" if len(times) > 1 else ""
        faster = f"{mean(times):.1f}x{spread}" if times else ""
        rows.append(
            (
                name,
                f"{score(mean(one.baseline for one in cells))} → {score(mean(one.best for one in cells))}",
                f"{signed(by_example.mean)} ({signed(by_example.low)} to {signed(by_example.high)})",
                f"{signed(by_target.low)} to {signed(by_target.high)}",
                f"{mean(one.calls for one in cells):.0f}",
                f"{mean(one.tokens for one in cells):,.0f}",
                duration(mean(wall_seconds(one.result) for one in cells)),
                faster,
            )
        )
    heads = (
        "strategy",
        "held-out",
        "gain (95 %, by example)",
        "95 %, by target",
        "calls",
        "tokens",
        "wall time",
        "faster than Sequential",
    )
    return _table(heads, rows)


def _targets(facts: dict[str, list[CellFacts]], targets: Mapping[str, str]) -> str:
    """Return the right answers on gate by target, all seeds together, how many playbooks name the target (a
    model may learn more than it can follow), and what one answer to every question is worth."""
    rows, names = [], list(dict.fromkeys(targets.values()))
    asked: Counter[str] = Counter()
    for name, cells in facts.items():
        right: Counter[str] = Counter()
        asked = Counter()
        for one in cells:
            for key, value in one.scores["best"].items():
                right[targets[key]] += round(value)
                asked[targets[key]] += 1
        rows.append((f"{name}: right answers", *(f"{right[target]} of {asked[target]}" for target in names)))
        shown = [set(re.findall(r"\w+", (one.cell.folder / PROMPT_KEY).read_text().lower())) for one in cells]
        named = (sum(target in words for words in shown) for target in names)
        rows.append((f"{name}: playbooks that name it", *(f"{count} of {len(cells)}" for count in named)))
    constant = (score(asked[target] / max(1, asked.total())) for target in names)
    return _table(("", *names), [*rows, ("score of always giving that answer", *constant)])


def _runs(facts: dict[str, list[CellFacts]]) -> str:
    """Return a row for each run."""
    rows = []
    for name, cells in facts.items():
        for one in cells:
            result, gate = one.result, one.result.held_out and one.result.held_out.gate
            generated = sum(usage.completion_tokens for usage in result.usage.values())
            wall, path = wall_seconds(result), path_seconds(result)
            speed = generated / result.wall_seconds
            rows.append(
                (
                    name,
                    str(one.cell.seed),
                    result.outcome,
                    f"{score(one.baseline)} → {score(one.best)}",
                    f"{signed(gate.low)} to {signed(gate.high)}" if gate else "",
                    str(sum(entry.rendered for entry in result.entries)),
                    duration(wall),
                    duration(path),
                    f"{wall / path:.2f}",
                    "" if any(usage.hits for usage in result.usage.values()) else f"{speed:.0f}",
                )
            )
    heads = ("strategy", "seed", "outcome", "held-out", "95 %", "entries", "wall time")
    return _table((*heads, "critical path", "ratio", "tokens/s"), rows)


def _replies(facts: dict[str, list[CellFacts]]) -> str:
    """Return what became of the replies of each stage, all seeds together."""
    rows = []
    for name, cells in facts.items():
        stages: dict[tuple[str, str], list[StageTime]] = defaultdict(list)
        for one in cells:
            for stage in stage_sums(one.result):
                stages[stage.step, stage.stage].append(stage)
        for (step, stage_name), found in stages.items():
            counts = (
                sum(getattr(one, part) for one in found) for part in ("calls", "used", "cut", "unparsable")
            )
            rows.append((name, step, stage_name, *map(str, counts)))
    return _table(("strategy", "step", "stage", "replies", "used", "cut", "unreadable"), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.real", description=__doc__)
    parser.add_argument("manifest", type=Path, help="the manifest that was compared")
    parser.add_argument("dir", type=Path, help="the folder that combee compare made")
    parser.add_argument("held_out", type=Path, help="its heldOut rows, with id and target")
    parser.add_argument("--strategies", required=True, help="as of combee compare")
    parser.add_argument("--seeds", required=True, help="as of combee compare")
    return parser


if __name__ == "__main__":
    sys.exit(main())
