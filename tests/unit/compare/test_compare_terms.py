"""What is compared, on which terms, and what is said of it; no model is asked here."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from combee.algo.latency import LatencyLaw
from combee.api.load import parse_runs
from combee.cli import compare as compare_command
from combee.cli.compare import parse_engines, parse_seeds, run_compare
from combee.cli.options import CompareFlags
from combee.compare.cells import CompareTask, common_grid, derived, make_cells, read_tasks
from combee.compare.facts import CellFacts, Part, part_name
from combee.compare.launch import CellError, command, is_finished
from combee.compare.page import ALL, Terms, html_page, markdown_page, remarks
from combee.compare.plot import plot
from combee.compare.run import Request, prepare_cells, shared_server
from combee.compare.strategies import parse_strategies
from combee.compare.table import make_rows, no_worse, to_json, verdict
from combee.errors import UserError
from combee.local.flags import StandInFlags
from combee.local.sources import StandIns

ROOT = Path(__file__).parents[3]
MODEL = {"engineRef": {"name": "main"}}
MANIFEST: dict[str, Any] = {
    "apiVersion": "combee.dev/v1alpha1",
    "kind": "PromptLearningRun",
    "metadata": {"name": "formula"},
    "spec": {
        "playbookRef": {"name": "formula"},
        "task": {
            "type": "Formula",
            "data": {"train": {"uri": "rows/train.jsonl"}, "heldOut": {"uri": "s3://b/held.jsonl"}},
        },
        "method": {"type": "ACE"},
        "engines": [{"name": "main", "vllm": {"model": "m"}}],
        "models": {"task": MODEL, "proposer": MODEL},
        "aggregation": {"leafSize": 6},
        "budget": {"rollouts": 100},
        "stopping": {"targetScore": 0.6},
        "seed": 7,
    },
}


@pytest.fixture
def task(tmp_path: Path) -> CompareTask:
    path = tmp_path / "formula.yaml"
    path.write_text(yaml.safe_dump(MANIFEST))
    return read_tasks([path])[0]


@pytest.mark.parametrize(
    ("text", "sizes", "labels"),
    [
        ("Sequential", [50, 100], ["Sequential"]),
        ("Naive,ParallelScan", [50, 100], ["Naive@50", "Naive@100", "ParallelScan@50", "ParallelScan@100"]),
        ("ParallelScan:Model:Sqrt@84,Naive", [100], ["ParallelScan:Model:Sqrt@84", "Naive@100"]),
        ("ParallelScan:Duplicate:leaf4@9", [], ["ParallelScan:Duplicate:leaf4@9"]),
        ("Naive,Naive", [], ["Naive"]),
        ("Sequential@1,Sequential", [50], ["Sequential"]),
        ("TopK:fan16,Summarize", [100], ["TopK:fan16@100", "Summarize@100"]),
    ],
)
def test_strategies_are_read_as_written(text: str, sizes: list[int], labels: list[str]) -> None:
    assert [one.label for one in parse_strategies(text, sizes)] == labels


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Greedy",
        "Naive:Best",
        "Naive@0",
        "Naive@x",
        "Naive@",
        "Sequential@5",
        "Naive:leaf0",
        "TopK:fan1",
        "TopK:fan",
        "Naive,",
    ],
)
def test_a_wrong_strategy_names_the_flag(text: str) -> None:
    with pytest.raises(UserError, match="--strategies"):
        parse_strategies(text, [100])


def test_seeds_and_engines_are_read_as_written() -> None:
    assert parse_seeds("3") == [0, 1, 2]
    assert parse_seeds("5,9") == [5, 9]
    assert parse_seeds("4,") == [4]
    assert parse_engines(["a=u1", "a=u2", "b=u3"]) == {"a": ["u1", "u2"], "b": ["u3"]}
    for text in ("0", "x", ""):
        with pytest.raises(UserError, match="--seeds"):
            parse_seeds(text)
    with pytest.raises(UserError, match="--engine"):
        parse_engines(["main"])


def test_a_derived_manifest_differs_only_in_strategy_seed_and_terms(
    task: CompareTask, tmp_path: Path
) -> None:
    strategies = parse_strategies("Sequential,ParallelScan:Model:Sqrt@100", [])
    cells = make_cells([task], strategies, [3], tmp_path / "out", {"main": ["u"]})
    made = derived(cells[1], StandIns(), common_grid([task], strategies))
    spec = made["spec"]
    assert spec["aggregation"] == {
        "leafSize": 6,
        "strategy": "ParallelScan",
        "merge": "Model",
        "subgroups": "Sqrt",
    }
    assert spec["batching"]["size"] == 100 and spec["batching"]["mode"] == "Fixed"
    assert spec["stopping"] == {"patience": 1000, "evaluateEvery": 100}
    assert spec["seed"] == 3
    assert "budget" not in spec and "playbookRef" not in spec
    assert spec["task"]["data"]["train"]["uri"] == str(tmp_path / "rows/train.jsonl")
    assert spec["task"]["data"]["heldOut"]["uri"] == "s3://b/held.jsonl"
    (run,) = parse_runs(yaml.safe_dump(made), "cell")
    assert run.name == "formula-parallelscan-model-sqrt-b100-s3"
    assert not is_finished(cells[1])


def test_servers_are_dealt_over_seeds_and_sharing_is_said(task: CompareTask, tmp_path: Path) -> None:
    strategies = parse_strategies("Naive", [])
    cells = make_cells([task], strategies, [0, 1, 2], tmp_path, {"main": ["u0", "u1"]})
    assert [cell.engines["main"] for cell in cells] == ["u0", "u1", "u0"]
    one = Request([task.path], strategies, [0, 1], tmp_path, {"main": ["u0"]})
    own = Request([task.path], strategies, [0, 1], tmp_path, {"main": ["u0", "u1"]})
    assert "2 seeds share 1 server:" in shared_server(one)
    assert shared_server(own) == ""
    given = StandInFlags(
        engine_keys=["main=env:K"], engine_models=["main=m"], secrets=["a/b=env:C"], data=["train=t"]
    )
    keyed = ["--engine-key", "main=env:K", "--secret", "a/b=env:C"]
    assert command(cells[0], given)[-6:] == ["--engine", "main=u0", *keyed]


def test_two_manifests_of_one_name_are_refused(task: CompareTask) -> None:
    with pytest.raises(UserError, match="two manifests are named formula"):
        read_tasks([task.path, task.path])


@pytest.mark.parametrize(
    ("text", "sizes", "says"),
    [
        ("Sequential,Naive", [0], "--strategies Naive@0: spec.batching.size: 0 is out of bounds"),
        ("TopK", [9], "--strategies TopK@9: spec: strategy TopK without models.embedder"),
    ],
)
def test_a_cell_that_no_run_would_take_is_refused_before_any_work(
    tmp_path: Path, text: str, sizes: list[int], says: str
) -> None:
    rows = ROOT / "examples" / "data" / "formula"
    manifest = json.loads(json.dumps(MANIFEST))
    manifest["spec"]["task"]["data"] = {
        "train": {"uri": str(rows / "train.jsonl")},
        "heldOut": {"uri": str(rows / "heldout.jsonl")},
    }
    path = tmp_path / "formula.yaml"
    path.write_text(yaml.safe_dump(manifest))
    out = tmp_path / "out"
    engines = {"main": ["http://127.0.0.1:1/v1"]}
    with pytest.raises(UserError, match=re.escape(says)):
        prepare_cells(Request([path], parse_strategies(text, sizes), [0, 1], out, engines))
    assert not out.exists()


def _facts(
    task: CompareTask, strategies: str, scores: dict[str, list[list[float]]], seconds: dict[str, float]
) -> list:
    listed = parse_strategies(strategies, [])
    cells = make_cells([task], listed, range(len(next(iter(scores.values())))), Path("out"), {"main": ["u"]})
    result = SimpleNamespace(
        iterations=[],
        entries=[],
        playbook=None,
        outcome="Learned",
        simulated=True,
        exit_code=0,
        usage={},
        held_out=None,
    )
    return [
        CellFacts(
            cell,
            result,  # type: ignore[arg-type]
            {
                "baseline": {str(n): 0.0 for n in range(4)},
                "best": {str(n): v for n, v in enumerate(scores[cell.strategy.name][cell.seed])},
            },
            (
                Part("map", "map", 0, 3, 900, seconds[cell.strategy.name]),
                Part("gate", "evaluate", 0, 9, 9000, 1e6),
            ),
            64,
        )
        for cell in cells
    ]


def test_rows_pair_by_example_and_over_seeds_and_charge_all_but_the_look(task: CompareTask) -> None:
    good, bad = [[1.0, 1, 1, 0]] * 3, [[0.0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]
    scores = {"Sequential": good, "Naive": bad, "ParallelScan": [*good[:2], [1.0, 1, 1, 0.1]]}
    facts = _facts(
        task, "Sequential,Naive,ParallelScan", scores,
        {"Sequential": 100.0, "Naive": 4.0, "ParallelScan": 5.0},
    )  # fmt: skip
    sequential, naive, scan = make_rows(facts)
    assert (sequential.calls, sequential.tokens, sequential.seconds) == (3, 900, 100.0)
    assert naive.difference is not None and naive.difference.by_example.n == 12
    assert naive.difference.over_seeds.mean == pytest.approx(-2 / 3)
    assert naive.difference.by_example.high < 0
    assert verdict(naive) == "worse" and verdict(sequential) == "the reference"
    assert verdict(scan) == "no worse by more than 2.8 points"
    assert scan.speed_up is not None and scan.speed_up.mean == 20.0
    assert scan.tokens_per_point == pytest.approx(900 / (100 * (0.75 + 0.75 + 0.775) / 3))
    assert not no_worse(scan) and "No strategy is shown to be" in " ".join(remarks([sequential, naive, scan]))


def test_equal_differences_of_all_seeds_show_nothing(task: CompareTask) -> None:
    """Seeds that are one run, such as batches of all rows on one server, are no three draws."""
    facts = _facts(
        task, "Sequential,Naive", {"Sequential": [[0.0, 0]] * 3, "Naive": [[1.0, 0]] * 3},
        {"Sequential": 100.0, "Naive": 4.0},
    )  # fmt: skip
    _, naive = make_rows(facts)
    assert verdict(naive) == "all seeds are equal: too few to say" and not no_worse(naive)


def test_a_plain_loop_that_is_worse_in_one_seed_is_still_an_opponent(task: CompareTask) -> None:
    """One that loses for sure is none, as the next test has it."""
    good = [[1.0, 1]] * 3
    scores = {"Sequential": good, "Naive": [[0.0, 1], *good[1:]], "ParallelScan": good}
    seconds = {"Sequential": 100.0, "Naive": 10.0, "ParallelScan": 5.0}
    _, naive, ours = make_rows(_facts(task, "Sequential,Naive,ParallelScan", scores, seconds))
    assert not no_worse(naive)
    assert ours.over_plain is not None
    assert (ours.over_plain.strategy, ours.over_plain.ratio.mean) == ("Naive", pytest.approx(2.0))


def test_ours_stands_beside_the_fastest_plain_loop_that_is_not_worse(task: CompareTask) -> None:
    """A fast loop that loses, and one that is not plain, are nothing to beat."""
    good, better = [[1.0, 1, 1, 0]] * 3, [[1.0, 1, 1, 0.5], [1.0, 1, 1, 0.6], [1.0, 1, 1, 0.5]]
    bad = [[0.0, 0, 0, 0], [0.0, 0.5, 0, 0], [0.0, 0, 0, 0]]
    scores = {"Sequential": good, "Naive": bad, "TopK": better, "ParallelScan": better}
    seconds = {"Sequential": 100.0, "Naive": 1.0, "TopK": 2.0, "ParallelScan": 5.0}
    facts = _facts(task, "Sequential,Naive,TopK,ParallelScan", scores, seconds)
    ahead = [
        replace(
            one,
            cell=replace(one.cell, strategy=replace(one.cell.strategy, ahead=8)),
            parts=(Part("8 at once", "map", 0, 9, 2700, 20.0 + one.cell.seed),),
        )
        for one in facts
        if one.cell.strategy.label == "Sequential"
    ]
    rows = {row.strategy: row for row in make_rows([*facts, *ahead])}
    plain = rows["Sequential, 8 at once"]
    assert verdict(plain) == "learns what the reference learns"
    assert plain.speed_up is not None and plain.difference is None
    assert [name for name, row in rows.items() if row.over_plain] == ["TopK", "ParallelScan"]
    ours = rows["ParallelScan"].over_plain
    assert ours is not None and ours.strategy == "Sequential, 8 at once"
    assert ours.ratio.mean == pytest.approx((20 + 21 + 22) / 3 / 5)
    said = " ".join(remarks(list(rows.values())))
    assert "TopK, 50.0 times Sequential (better), and 10.5x (" in said
    assert "the speed of Sequential, 8 at once." in said
    written = to_json(list(rows.values()), law=LatencyLaw(), slots={}, evaluate_every=100)
    assert written["rows"][3]["overPlain"]["strategy"] == "Sequential, 8 at once"


def test_partial_credit_stands_beside_a_cell_without_a_look_has_its_starts(task: CompareTask) -> None:
    scores = {"Sequential": [[1.0, 1]] * 2, "Naive": [[1.0, 0]] * 2, "Summarize": [[0.0, 0]] * 2}
    facts = _facts(task, "Sequential,Naive,Summarize", scores, dict.fromkeys(scores, 9.0))

    def looked(one: CellFacts, start: float, best: float) -> CellFacts:
        gate = SimpleNamespace(partial_baseline=start, partial_best=best)
        return replace(
            one, result=SimpleNamespace(**{**vars(one.result), "held_out": SimpleNamespace(gate=gate)})
        )  # type: ignore[arg-type]

    # Naive's second seed and both of Summarize found nothing better.
    starts, best = {0: 0.5, 1: 0.6}, {("Sequential", 0): 0.8, ("Sequential", 1): 0.8, ("Naive", 0): 0.7}
    keys = [(one.cell.strategy.name, one.cell.seed) for one in facts]
    found = [
        looked(one, starts[key[1]], best[key]) if key in best else one
        for key, one in zip(keys, facts, strict=True)
    ]
    rows = make_rows(found)
    assert [row.partial for row in rows] == pytest.approx([0.8, (0.7 + 0.6) / 2, 0.55])
    (said,) = [
        line
        for line in markdown_page(rows, Terms({"formula": "Formula"}, {}, 1)).splitlines()
        if "Partial" in line
    ]
    assert said.endswith("Sequential 0.800, Naive 0.650, Summarize 0.550.")
    written = to_json(rows, law=LatencyLaw(), slots={}, evaluate_every=100)
    assert [row["partialCredit"] for row in written["rows"]] == [row.partial for row in rows]
    # Where nobody looked, a start is not known; and most tasks have no partial credit.
    assert [row.partial for row in make_rows(facts)] == [None] * 3
    assert "Partial" not in markdown_page(make_rows(facts), Terms({"formula": "Formula"}, {}, 1))


def test_pages_say_that_the_model_is_simulated_and_whose_points_are_whose(task: CompareTask) -> None:
    facts = _facts(task, "Sequential,Naive", {"Sequential": [[1.0, 1]] * 2, "Naive": [[1.0, 0]] * 2},
                   {"Sequential": 100.0, "Naive": 4.0})  # fmt: skip
    rows = make_rows(facts)
    terms = Terms({"formula": "Formula"}, {"formula": [64]}, 100, note="seeds share <a> server")
    svg, png = plot([(rows, "Formula")])
    assert svg == plot([(rows, "Formula")])[0] and png.startswith(b"\x89PNG")
    assert "paper" in svg and "simulated model" in svg
    assert "Summarize (0.660)" in svg and "TopK (0.720)" in svg
    text, page = markdown_page(rows, terms), html_page(rows, terms, {"formula": svg})
    for made in (text, page):
        assert "simulated model" in made and "Naive" in made and "Critical path" in made
        assert "Summarize 0.660; TopK 0.720" in made and "b = 100 0.723 in" in made
    assert "<script" not in page and "http://" not in page.replace("http://www.w3.org", "")
    assert "&lt;a&gt;" in page
    written = to_json(rows, law=LatencyLaw(), slots={"formula": 64},
                      evaluate_every=100)  # fmt: skip
    assert written["simulated"] is True and len(written["cells"]) == 4


def test_two_tasks_are_in_one_table_and_one_plot_with_the_order_of_the_paper_beside(tmp_path: Path) -> None:
    facts = []
    for name, kind in (("formula", "Formula"), ("finer", "FiNER")):
        manifest = json.loads(json.dumps(MANIFEST))
        manifest["metadata"]["name"] = name
        manifest["spec"]["task"]["type"] = kind
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(manifest))
        naive = [[1.0, 0]] * 2 if kind == "Formula" else [[1.0, 1]] * 2
        facts += _facts(
            read_tasks([path])[0], "Sequential,Naive@100,Summarize@50",
            {"Sequential": [[1.0, 1]] * 2, "Naive": naive, "Summarize": [[0.0, 0]] * 2},
            {"Sequential": 100.0, "Naive": 4.0, "Summarize": 5.0},
        )  # fmt: skip
    rows = make_rows(facts)
    terms = Terms({"formula": "Formula", "finer": "FiNER"}, {"formula": [64], "finer": [64]}, 100)
    svg, png = plot([([row for row in rows if row.task == name], kind) for name, kind in terms.types.items()])
    assert png.startswith(b"\x89PNG")
    assert all(f"{kind}: accuracy against time" in svg for kind in ("Formula", "FiNER"))
    assert svg.count("Naive@100: ") == 2
    text = markdown_page(rows, terms)
    page = html_page(rows, terms, {ALL: svg, "formula": svg, "finer": svg})
    (line,) = [
        line for line in text.splitlines() if line.startswith("| Naive@100 | 0.500 (0.500 to 0.500) |")
    ]
    first = text.partition("## formula")[0]
    assert line in first and "(plot.png)" in first
    assert "4.0 s | 0.723 | 1.000 (1.000 to 1.000) |" in line and line.endswith("| 4.0 s | 0.680 |")
    for made in (text, page):
        assert "Order by held-out, ACE: Sequential 1.000, Naive@100 0.500, Summarize@50 0.000." in made
        assert "with DeepSeek-V3.1: b = 5 0.855, b = 100 0.723, Summarize 0.660." in made
        assert "with DeepSeek-V3.1: b = 5 0.731, b = 100 0.680, Summarize 0.675." in made
    assert page.count("<figure>") == 3


@pytest.mark.parametrize(
    ("kind", "stage", "name"),
    [
        ("profile", "wave 0", "profile"),
        ("map", "leaf round 2", "leaf round 2"),
        ("finish", "select", "select"),
        ("evaluate", "gate best", "gate"),
    ],
)
def test_stages_have_words(kind: str, stage: str, name: str) -> None:
    assert part_name(kind, stage) == name


@pytest.mark.parametrize(("cell", "ours"), [(2, 2), (5, 5), (130, 130), (4, 5), (1, 5), (-9, 5)])
def test_a_cell_that_failed_or_was_killed_ends_the_comparison_with_a_code_of_the_page(
    task: CompareTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: int, ours: int
) -> None:
    async def compare(*_: object) -> None:
        (one,) = make_cells([task], parse_strategies("Naive@9", []), [0], tmp_path, {"main": ["u"]})
        raise CellError(one, cell, "")

    monkeypatch.setattr(compare_command, "compare", compare)
    flags = CompareFlags(tmp_path, filename=[task.path], strategies="Naive@9", seeds="1")
    assert run_compare(flags, StandInFlags(["main=u"])) == ours
