"""Methods as a dimension of a comparison: cells, manifests, differences within a method."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from combee.api.load import parse_run
from combee.cli.compare import parse_methods
from combee.compare.cells import Cell, derived, make_cells, read_tasks
from combee.compare.facts import CellFacts, Part
from combee.compare.page import Terms, cells_of, markdown_page, remarks
from combee.compare.plot import OURS, plot
from combee.compare.strategies import parse_strategies
from combee.compare.table import make_rows, verdict
from combee.errors import ManifestError, UserError
from combee.local.sources import StandIns

MODEL = {"engineRef": {"name": "main"}}
MANIFEST: dict[str, Any] = {
    "apiVersion": "combee.dev/v1alpha1",
    "kind": "PromptLearningRun",
    "metadata": {"name": "formula"},
    "spec": {
        "task": {"type": "Formula", "data": {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}}},
        "method": {"type": "ACE", "epochs": 2, "ace": {"reflectionRounds": 2}},
        "engines": [{"name": "main", "vllm": {"model": "m"}}],
        "models": {"task": MODEL, "proposer": MODEL},
    },
}


def cells(folder: Path, strategies: str, *, seeds: int = 3) -> list[Cell]:
    path = folder / "formula.yaml"
    path.write_text(yaml.safe_dump(MANIFEST))
    listed = parse_strategies(strategies, [])
    return make_cells(
        read_tasks([path]), listed, range(seeds), folder, {"main": ["u"]}, parse_methods("ACE,GEPA,ACE")
    )


def test_every_strategy_is_run_by_each_method_with_the_options_that_are_its_own(tmp_path: Path) -> None:
    found = cells(tmp_path, "Sequential,ParallelScan@20", seeds=1)
    assert [(one.label, one.name) for one in found] == [
        ("ACE Sequential", "formula-ace-sequential-s0"),
        ("ACE ParallelScan@20", "formula-ace-parallelscan-b20-s0"),
        ("GEPA Sequential", "formula-gepa-sequential-s0"),
        ("GEPA ParallelScan@20", "formula-gepa-parallelscan-b20-s0"),
    ]
    specs = [derived(one, StandIns({}, {}, {}), 20)["spec"] for one in found]
    assert specs[1]["method"] == MANIFEST["spec"]["method"]
    assert specs[3]["method"] == {"type": "GEPA", "epochs": 2}


def test_what_a_method_refuses_is_said_before_any_work(tmp_path: Path) -> None:
    gepa = cells(tmp_path, "ParallelScan:Support@20", seeds=1)[1]
    with pytest.raises(ManifestError, match="tries out every proposal"):
        parse_run(derived(gepa, StandIns({}, {}, {}), 20), f"--strategies {gepa.label}")


def test_a_method_that_is_none_is_named() -> None:
    with pytest.raises(UserError, match=r"unknown method .SIMBA.*ACE, GEPA, TextGrad, MIPRO"):
        parse_methods("ACE,SIMBA")


def facts(cell: Cell, score: float, seconds: float) -> CellFacts:
    result: Any = SimpleNamespace(
        iterations=[],
        entries=[],
        playbook=None,
        outcome="Learned",
        simulated=True,
        exit_code=0,
        usage={},
        held_out=None,
    )
    scores = {
        "baseline": dict.fromkeys("1234", 0.0),
        "best": {str(n): score + n / 100 + cell.seed * score / 1000 for n in range(4)},
    }
    return CellFacts(cell, result, scores, (Part("map", "map", 0, 3, 900, seconds),), 64)


def test_a_difference_is_one_to_sequential_of_the_same_method(tmp_path: Path) -> None:
    wanted = {
        "ACE Sequential": (0.5, 100.0),
        "ACE ParallelScan@20": (0.6, 10.0),
        "GEPA Sequential": (0.7, 100.0),
        "GEPA ParallelScan@20": (0.6, 20.0),
    }
    rows = make_rows(
        [facts(one, *wanted[one.label]) for one in cells(tmp_path, "Sequential,ParallelScan@20")]
    )
    assert [(row.strategy, verdict(row)) for row in rows] == [
        ("ACE Sequential", "the reference"),
        ("ACE ParallelScan@20", "better"),
        ("GEPA Sequential", "the reference"),
        ("GEPA ParallelScan@20", "worse"),
    ]
    assert [row.speed_up and round(row.speed_up.mean) for row in rows] == [None, 10, None, 5]
    assert cells_of(rows[2])[-3:-1] == ("1x", "")
    said = remarks(rows)
    assert said[0].startswith("ACE. Fastest") and said[-1].startswith("GEPA. No strategy")
    page = markdown_page(rows, Terms({"formula": "Formula"}, {"formula": [64]}, 20))
    assert page.count("| GEPA ParallelScan@20 |") == 1


def test_each_method_has_a_color_and_a_start_of_its_own_in_the_plot(tmp_path: Path) -> None:
    rows = make_rows([facts(one, 0.5, 10.0) for one in cells(tmp_path, "Sequential,ParallelScan@20")])
    both, _ = plot([(rows, "Formula")])
    alone, _ = plot([([row for row in rows if row.method == "GEPA"], "Formula")])
    assert [color in both for color in OURS] == [True, True, False, False]
    assert [color in alone for color in OURS] == [True, False, False, False]
    assert "our start, untouched (ACE)" in both and "our start, untouched (GEPA)" in both
    assert "our start, untouched (" not in alone
