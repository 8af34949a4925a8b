"""GEPA in the local executor with a simulated model: it learns, and resumes to the same bytes after any
cut."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from e2e_support import Manifest, Sim, Sims
from killing import files_of

from combee.local.flags import StandInFlags
from combee.local.meter import Silent
from combee.local.session import prepare, run_session
from combee.local.sources import parse_stand_ins
from combee.methods.components import standing
from combee.methods.components.pool import Pool
from combee.methods.components.standing import members, scores
from combee.methods.gepa import GepaMethod
from combee.report import bundle, figures
from combee.report.result import Result
from waiting import until
from warm import build_here

pytestmark = pytest.mark.e2e


GEPA = {"type": "GEPA"}


@pytest.fixture(autouse=True)
def reports_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw each report in this process: it costs no start of Python."""
    monkeypatch.setattr(bundle, "build_apart", build_here)


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figures out, half of what a small run costs, where others have the same."""
    monkeypatch.setattr(figures, "figures", lambda result: {})


async def learn(url: str, path: Path, out: Path) -> Result:
    return await run_session(
        prepare(path, parse_stand_ins(StandInFlags(engines=[f"main={url}"]))), out, Silent()
    )


async def learn_and_stop(url: str, path: Path, out: Path, files: int) -> None:
    """Stop it once its store has so many files: the same part of the work on every machine."""
    working = asyncio.create_task(learn(url, path, out))
    await until(lambda: working.done() or files_of(out) >= files)
    working.cancel()
    assert (await working).outcome == "Stopped"


def pool_of(out: Path, result: Result) -> Pool:
    assert result.playbook is not None
    found = next((out / "store").rglob(f"*{result.playbook.digest}*"))
    return GepaMethod().from_json(found.read_bytes())


async def test_it_learns_variants_and_the_best_of_them_holds_on_gate(
    quick: Sim, manifest: Manifest, rows, tmp_path: Path
) -> None:
    path = manifest(method=GEPA, train=rows(200), batching={"mode": "Fixed", "size": 100, "reason": "test"})
    result = await learn(quick.url, path, tmp_path / "out")
    assert result.outcome == "Learned", result.reason
    assert result.held_out is not None and result.held_out.gate is not None
    assert result.held_out.gate.gain >= 0.08
    pool = pool_of(tmp_path / "out", result)
    assert result.held_out.best is not None
    assert len(members(pool)) >= 2 and pool.drawn >= result.held_out.best.iteration
    assert all(len(found) == result.data.held_out.select for found in scores(pool).values())
    record = json.dumps([one.retention.model_dump() for one in result.iterations])
    assert '"lessons"' in record
    leader = standing.best(pool)
    assert (tmp_path / "out" / "prompt.md").read_text() == leader.text
    assert [one.id for one in result.variants] == [digest[:12] for digest in standing.ranked(pool)]
    assert result.variants[0].leads and result.variants[-1].kind == "start"


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize(
    "options", [{}, {"variantsInFlight": 2, "diversity": True}], ids=["plain", "diverse"]
)
async def test_stopped_at_any_time_it_goes_on_to_the_same_bytes(
    options: dict, common: Sims, key: Path, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    sim = common.shared("--key", key, "--time-scale", "0.002")
    path = manifest(
        method={**GEPA, "gepa": options},
        train=rows(40),
        held_out=few,
        batching={"mode": "Fixed", "size": 20, "reason": "test"},
    )
    whole = await learn(sim.url, path, tmp_path / "whole")
    files = files_of(tmp_path / "whole")
    for share in (0.02, 0.25, 0.5, 0.85):
        await learn_and_stop(sim.url, path, tmp_path / "cut", int(share * files))
    cut = await learn(sim.url, path, tmp_path / "cut")
    assert cut.playbook is not None and whole.playbook is not None
    assert cut.playbook.digest == whole.playbook.digest
    assert (tmp_path / "cut" / "lessons.md").read_bytes() == (tmp_path / "whole" / "lessons.md").read_bytes()
    assert pool_of(tmp_path / "cut", cut).to_json() == pool_of(tmp_path / "whole", whole).to_json()
    assert bool(pool_of(tmp_path / "whole", whole).edits) == bool(options)


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("in_flight", [1, 3])
async def test_equal_seeds_give_equal_variants_at_any_parallelism(
    in_flight: int, quick: Sim, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    start = tmp_path / "start.json"
    start.write_text(json.dumps({"work": "Work step by step.", "check": "Check the result."}))
    task = {
        "type": "Formula",
        "data": {"train": {"uri": str(rows(20 * in_flight))}, "heldOut": {"uri": str(few)}},
        "initialPlaybook": {"uri": str(start)},
    }
    pools = set()
    for name, workers in (
        ("one", {"parallelism": 1, "concurrency": 1}),
        ("many", {"parallelism": 4, "concurrency": 64}),
    ):
        path = manifest(
            name="run",
            method={**GEPA, "gepa": {"variantsInFlight": in_flight}},
            task=task,
            batching={"mode": "Fixed", "size": 10, "reason": "test"},
            workers=workers,
        )
        result = await learn(quick.url, path, tmp_path / name)
        pool = pool_of(tmp_path / name, result)
        pools.add(pool.to_json())
        # Each component is reduced by itself: three leaf calls for two copies of ten records, twice.
        assert {name for one in pool.variants for name, _ in one.components} == {"work", "check"}
        assert result.iterations[0].retention.levels[0].calls == 6
        assert any(len(one.built_on) > 1 for one in result.iterations) == (in_flight > 1)
    assert len(pools) == 1


@pytest.mark.parametrize(
    ("options", "aggregation", "size"),
    [
        ({}, {"strategy": "Sequential"}, 1),
        ({}, {"strategy": "Naive"}, 10),
        ({}, {"strategy": "TopK"}, 10),
        ({}, {"strategy": "Summarize", "maxFanIn": 4}, 10),
        ({}, {"merge": "Model", "maxFanIn": 2, "leafSize": 2}, 10),
        ({"paperCompat": True}, {}, 10),
    ],
    ids=lambda value: json.dumps(value),
)
async def test_every_strategy_ends_in_a_new_text(
    options: dict,
    aggregation: dict,
    size: int,
    quick: Sim,
    manifest: Manifest,
    rows,
    few: Path,
    tmp_path: Path,
) -> None:
    path = manifest(
        method={**GEPA, "gepa": options},
        train=rows(10 if size > 1 else 4),
        held_out=few,
        models={role: {"engineRef": {"name": "main"}} for role in ("task", "proposer", "embedder")},
        aggregation=aggregation,
        batching={"mode": "Fixed", "size": size, "reason": "test"},
    )
    result = await learn(quick.url, path, tmp_path / "out")
    assert result.outcome in ("Learned", "Unsure", "NothingBetter"), result.reason
    tried = [one.verification for one in result.iterations if one.verification is not None]
    assert sum(one.replayed for one in tried) >= 1
    assert all(one.retention.levels for one in result.iterations)
