"""The sweep's cells: each is one flag of `combee sim serve`, and no arm is run where its runs are the
default's."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.sensitivity_cells import (
    ARMS,
    AXES,
    CONTRASTS,
    MODEL,
    SEQUENTIAL,
    Cell,
    Job,
    cells,
    jobs,
    read_kept,
    run_all,
)
from bench.sensitivity_plot import COLUMNS, PANELS, plot
from bench.sensitivity_table import BEHIND, LOSES, differences, losing, tables, with_tables

from combee.sim.main import _law_and_faults, _parsed_words


@pytest.mark.parametrize("cell", cells()[1:], ids=lambda cell: cell.name)
def test_a_cell_is_the_flag_that_it_is_named_by(cell: Cell) -> None:
    _, settings, ignored = _parsed_words(["model", *cell.name.split()])
    assert _law_and_faults(settings)[0] == cell.law and ignored == []


def test_every_axis_has_the_default_and_every_value_one_cell() -> None:
    default, *others = cells()
    assert len({cell.name for cell in others}) == len(others)
    for axis in AXES:
        assert default.at(axis) in axis.values
        assert {cell.at(axis) for cell in [default, *others]} == set(axis.values)
    assert len(AXES) % COLUMNS == 0
    assert {one for panel in PANELS for one in panel} == set(CONTRASTS[:-1])


def test_only_the_model_root_is_run_where_nothing_but_its_capacity_differs() -> None:
    made = {job.cell.name: job.arms for job in jobs(cells(), dict.fromkeys(ARMS, 1))}
    assert made["default"] == made["--wrong-share 0.3"] == tuple(ARMS)
    assert made["--root-capacity 10"] == (MODEL,)


def test_sequential_may_have_fewer_seeds() -> None:
    seeds = dict.fromkeys(ARMS, 3) | {SEQUENTIAL: 1}
    made = [(job.seed, SEQUENTIAL in job.arms) for job in jobs(cells()[:1], seeds)]
    assert made == [(1, True), (2, False), (3, False)]


def rows(scores: dict[str, str]) -> list[dict[str, object]]:
    return [
        {"cell": "default", "arm": arm, "seed": seed, "scores": bits[seed:] + bits[:seed]}
        | dict.fromkeys(("rollouts", "aggregator_calls", "entries", "rendered", "playbook_tokens"), 1)
        for arm, bits in scores.items()
        for seed in (1, 2, 3)
    ]


def test_a_loss_is_told_once_and_what_the_default_stands_for_is_not_told_again() -> None:
    wanted = [cell for cell in cells() if cell.name in ("default", "--root-capacity 10")]
    made = rows(dict.fromkeys(ARMS, "1010") | {"Naive@10": "1110", "Support": "1011"})
    found = differences(made, wanted)
    assert len(found) == len(CONTRASTS)  # the model root was not run at 10
    assert [(one.cell.name, one.contrast.other, one.verdict) for one in losing(found)] == [
        ("default", "Naive@10", LOSES),
        ("default", "Support", LOSES),
    ]
    made += [{**row, "cell": "--root-capacity 10", "scores": "1111"} for row in rows({MODEL: ""})]
    lost = {(one.cell.name, one.contrast.other) for one in losing(differences(made, wanted))}
    assert ("--root-capacity 10", MODEL) in lost and BEHIND not in {one.verdict for one in losing(found)}
    text = tables(made, wanted, found)
    assert "| `default` | ParallelScan - Naive@10 | -25.0 |" in text
    page = "a <!-- made by make sensitivity: begin -->x<!-- made by make sensitivity: end --> b"
    assert text in with_tables(page, text) and with_tables(page, text).endswith(" b")
    assert plot(found).startswith("<?xml")


def test_what_was_run_is_not_run_again_and_a_line_cut_off_is_none(tmp_path: Path) -> None:
    kept = tmp_path / "runs.jsonl"
    kept.write_text('{"cell": "default", "arm": "Off", "seed": 1, "scores": "1"}\n{"cell": "defau')
    assert [row["arm"] for row in read_kept(kept)] == ["Off"]
    found = run_all([Job(cells()[0], 1, ("Off",))], kept, 1, lambda text: pytest.fail(text))
    assert found == read_kept(kept)
