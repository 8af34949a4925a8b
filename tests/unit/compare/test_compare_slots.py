"""Several numbers of slots: what is run for each, what is only timed again, and where each time stands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from combee.algo.latency import LatencyLaw
from combee.api.load import parse_run
from combee.cli.cluster.compare import _member, _own_slots
from combee.cli.cluster.place import found_in
from combee.cli.compare import parse_law, parse_slots
from combee.compare.cells import Cell, derived, derived_for_cluster, make_cells, read_tasks
from combee.compare.collect import timed
from combee.compare.facts import CellFacts
from combee.compare.page import Terms, html_page, markdown_page, terms_text
from combee.compare.strategies import parse_strategies
from combee.compare.table import make_rows, to_json
from combee.errors import UserError
from combee.local.sources import StandIns
from combee.names import CELL_ANNOTATION
from combee.plan.types import StepSummary
from combee.work.asker import CallRow

ROOT = Path(__file__).parents[3]
SLOTS = (8, 64)
NAMES = "Sequential,Naive@25,ParallelScan"


def cells(folder: Path, slots: tuple[int, ...] = SLOTS, batching: dict[str, Any] | None = None) -> list[Cell]:
    manifest = yaml.safe_load((ROOT / "examples" / "formula.yaml").read_text())
    manifest["metadata"]["name"] = "formula"
    if batching:
        manifest["spec"]["batching"] = batching
    path = folder / "formula.yaml"
    path.write_text(yaml.safe_dump(manifest))
    tasks = read_tasks([path])
    return make_cells(tasks, parse_strategies(NAMES, []), range(3), folder / "out", {}, (), slots)


def concurrency(cell: Cell) -> int:
    made = derived(cell, StandIns({}, {}, {}), 100)
    return parse_run(made, "here").spec.workers.concurrency


def test_only_what_chooses_its_sizes_by_its_slots_is_run_for_each(tmp_path: Path) -> None:
    made = [one for one in cells(tmp_path) if one.seed == 0]
    assert [one.label for one in made] == [
        "Sequential",
        "Naive@25",
        "ParallelScan, 8 slots",
        "ParallelScan, 64 slots",
    ]
    assert [one.name for one in made][2:] == [
        "formula-parallelscan-8-slots-s0",
        "formula-parallelscan-64-slots-s0",
    ]
    given = concurrency(made[0])
    assert [concurrency(one) for one in made] == [given, given, 8, 64]
    for slots in ((), (8,)):
        assert {one.label for one in cells(tmp_path, slots)} == {"Sequential", "Naive@25", "ParallelScan"}
    fixed = cells(tmp_path, SLOTS, {"mode": "Fixed", "size": 50, "reason": "a test"})
    assert {one.label for one in fixed} == {"Sequential", "Naive@25", "ParallelScan"}


def test_on_a_cluster_the_annotation_says_for_which_slots(tmp_path: Path) -> None:
    noted = [
        json.loads(derived_for_cluster(one, "c", 100)["metadata"]["annotations"][CELL_ANNOTATION])
        for one in cells(tmp_path)[:3]
    ]
    assert [(one["strategy"], one.get("slots")) for one in noted] == [
        ("Sequential", None),
        ("Naive@25", None),
        ("ParallelScan", 8),
    ]


def test_runs_of_a_cluster_say_which_numbers_they_are_timed_on(tmp_path: Path) -> None:
    made = [derived_for_cluster(one, "c", 100) for one in cells(tmp_path)[:4]]
    members = [
        _member(found_in({**one, "metadata": {**one["metadata"], "uid": "u", "namespace": "n"}}), tmp_path)
        for one in made
    ]
    assert [one.cell.strategy.slots for one in members] == [None, None, 8, 64]
    assert members[2].cell.label == "ParallelScan, 8 slots"
    assert _own_slots(members, "formula") == (8, 64) and _own_slots(members[:2], "formula") == ()


def facts(cell: Cell) -> list[CellFacts]:
    """A cell of sixteen calls at once, a batch of a hundred that learns the same."""
    result: Any = SimpleNamespace(
        iterations=[], entries=[], playbook=None, outcome="Learned", simulated=True, exit_code=0, usage={},
        held_out=None,
    )  # fmt: skip
    step = StepSummary("i000-map", "map", {}, {"iteration": 0})
    calls = [CallRow("task", "map", chain, 1.0, 100, 100, 0, False, 1) for chain in range(16)]
    scores = {"baseline": dict.fromkeys("12", 0.0), "best": {"1": 1.0, "2": cell.seed / 1000}}
    return timed(cell, result, [step], {step.step: calls}, scores, SLOTS, LatencyLaw())


def test_each_run_is_timed_on_each_number_but_its_own_where_it_chose_by_it(tmp_path: Path) -> None:
    made = [one for cell in cells(tmp_path) for one in facts(cell)]
    rows = make_rows(made)
    assert [(row.strategy, row.slots) for row in rows] == [
        ("Sequential", 8),
        ("Sequential", 64),
        ("Naive@25", 8),
        ("Naive@25", 64),
        ("ParallelScan, 8 slots", 8),
        ("ParallelScan, 64 slots", 64),
    ]
    by = {(row.strategy, row.slots): row for row in rows}
    assert by["Sequential", 8].seconds > 1.5 * by["Sequential", 64].seconds
    for row in rows[2:]:  # each beside the reference on its own slots, whose calls are the same here
        assert row.speed_up is not None and row.speed_up.mean == pytest.approx(1)
    assert all(one.over_plain and one.over_plain.strategy == "Sequential" for one in rows[4:])
    told = to_json(rows, law=LatencyLaw(), slots={"formula": 64}, evaluate_every=100)
    assert [row["slots"] for row in told["rows"]] == [8, 64] * 3
    assert {row["noWorse"] for row in told["rows"] if row["strategy"] == "Sequential"} == {True}


def test_pages_have_a_column_for_each_number_and_one_line_for_each_strategy(tmp_path: Path) -> None:
    rows = make_rows([one for cell in cells(tmp_path) for one in facts(cell)])
    terms = Terms({"formula": "Formula"}, {"formula": SLOTS}, 100)
    page = markdown_page(rows, terms)
    main, by_slots = page.split("By slots: ")
    assert main.count("| Naive@25 |") == 1 and main.count("| ParallelScan, 8 slots |") == 1
    (head,) = [line for line in by_slots.splitlines() if line.startswith("| strategy")]
    assert [cell.strip() for cell in head.split("|")[2:-1]] == [
        f"{number} slots{what}" for number in SLOTS for what in ("", ": speed-up", ": over Sequential")
    ]
    (line,) = [line for line in by_slots.splitlines() if line.startswith("| ParallelScan, 8 slots |")]
    assert [bool(cell.strip()) for cell in line.split("|")[2:-1]] == [True] * 3 + [False] * 3
    assert "By slots" in html_page(rows, terms, {"formula": "<svg/>"})
    one = replace(terms, slots={"formula": [64]})
    assert "By slots" not in markdown_page([row for row in rows if row.slots == 64], one)


def test_slots_are_numbers_with_commas() -> None:
    assert parse_slots("256,8,64,8") == [8, 64, 256]
    for wrong in ("0", "8,0", "10001", "many"):
        with pytest.raises(UserError, match="--slots"):
            parse_slots(wrong)


def test_a_latency_law_is_three_numbers_of_seconds() -> None:
    assert parse_law("0.0047, 0.00013,2.7e-5") == LatencyLaw(0.0047, 0.00013, 2.7e-5)
    for wrong in ("", "1,2", "1,2,3,4", "0,1,1", "1,-1,1", "nan,1,1", "1,inf,1", "a,b,c"):
        with pytest.raises(UserError, match="--latency-law"):
            parse_law(wrong)


def test_the_pages_say_which_law_the_time_is_by() -> None:
    def said(law: LatencyLaw) -> str:
        return " ".join(terms_text(Terms({}, {}, 1, law), [0]))

    assert "one H200 with vLLM, without CUDA graphs" in said(LatencyLaw())
    mine = said(LatencyLaw(0.00469, 0.000128, 0.0000273))
    assert "4.69 ms a token, 128 µs more for each call beside, and 27.3 µs to read a token" in mine
    assert "H200" not in mine
