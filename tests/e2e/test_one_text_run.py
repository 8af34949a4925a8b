"""TextGrad and MIPRO in the local executor with a simulated model. Of the pool of each one text leads. They
learn, resume to the same bytes after any cut, learn the same at any parallelism and propose by each
strategy."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from e2e_support import Manifest, Sim, Sims
from killing import files_of

from combee.local.flags import StandInFlags
from combee.local.meter import Silent
from combee.local.session import prepare, run_session
from combee.local.sources import parse_stand_ins
from combee.methods.components.pool import Pool, from_json
from combee.methods.components.standing import best, ranked
from combee.methods.mipro.demonstrations import DEMONSTRATIONS
from combee.methods.mipro.search import space_of
from combee.report import bundle, figures
from combee.report.result import Result
from waiting import until
from warm import build_here

pytestmark = pytest.mark.e2e

TEXTGRAD = {"type": "TextGrad", "textgrad": {"momentum": 1, "constraints": ["At most 200 rules."]}}
MIPRO = {"type": "MIPRO", "mipro": {"demonstrations": 2, "minibatch": 20}}
METHODS = pytest.mark.parametrize("method", [TEXTGRAD, MIPRO], ids=["TextGrad", "MIPRO"])


@pytest.fixture(autouse=True)
def reports_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw each report in this process, without its figures: it costs no start of Python."""
    monkeypatch.setattr(bundle, "build_apart", build_here)
    monkeypatch.setattr(figures, "figures", lambda result: {})


async def learn(url: str, path: Path, out: Path) -> Result:
    stand_ins = parse_stand_ins(StandInFlags(engines=[f"main={url}"]))
    return await run_session(prepare(path, stand_ins), out, Silent())


def pool_of(out: Path, result: Result) -> Pool:
    assert result.playbook is not None
    return from_json(next((out / "store").rglob(f"*{result.playbook.digest}*")).read_bytes())


async def learned(method: dict[str, Any], url: str, manifest: Manifest, rows: Any, out: Path) -> Result:
    """The result of a run of two iterations, whose text holds on gate."""
    batching = {"mode": "Fixed", "size": 100, "reason": "test"}
    result = await learn(url, manifest(method=method, train=rows(200), batching=batching), out)
    assert result.outcome == "Learned", result.reason
    assert result.held_out is not None and result.held_out.gate is not None
    assert result.held_out.gate.gain >= 0.08
    assert (out / "prompt.md").read_text() == best(pool_of(out, result)).text
    return result


async def test_textgrad_learns_one_text(quick: Sim, manifest: Manifest, rows: Any, tmp_path: Path) -> None:
    result = await learned(TEXTGRAD, quick.url, manifest, rows, tmp_path / "out")
    pool = pool_of(tmp_path / "out", result)
    # One text an iteration, each from the one that led: a line without branches.
    kept = [pool.origin_of(digest) for digest in reversed(ranked(pool))]
    assert [origin.parents for origin in kept[1:]] == [(before.variant,) for before in kept[:-1]]
    assert {fact.iteration for fact in pool.gradients} == {1}
    # Half of the rows or fewer went wrong, and only these are criticised.
    assert 0 < result.iterations[0].retention.distinct < 60


async def test_mipro_learns_one_text_of_many(
    quick: Sim, manifest: Manifest, rows: Any, tmp_path: Path
) -> None:
    result = await learned(MIPRO, quick.url, manifest, rows, tmp_path / "out")
    pool = pool_of(tmp_path / "out", result)
    # What it chose among: proposals of both iterations, sets of demonstrations, and every probe of them.
    space, probes = space_of(pool), sorted(pool.probes)
    assert len(space["instructions"]) > 3 and len(space[DEMONSTRATIONS]) > 3
    assert len({probe.combination for probe in probes}) > 5
    assert {probe.examples for probe in probes} == {20, 150}
    # What both iterations observed is known, for the next one to be told again.
    assert {fact.iteration for fact in pool.observed} == {0, 1}
    quoted = [line for text in space[DEMONSTRATIONS].values() for line in text.splitlines()[1:]]
    asked = [json.loads(line)["context"] for line in rows(200).read_text().splitlines()]
    assert quoted and all(any(_question(line) in row for row in asked) for line in quoted)


def _question(line: str) -> str:
    """Return what a demonstration was asked; what all questions begin with alike is left out of it."""
    return line.removeprefix("- Given: ").removeprefix("... ").rpartition(" | Answer: ")[0][:200]


@METHODS
async def test_stopped_at_any_time_it_goes_on_to_the_same_bytes(
    method: dict[str, Any], common: Sims, key: Path, manifest: Manifest, rows: Any, few: Path, tmp_path: Path
) -> None:
    sim = common.shared("--key", key, "--time-scale", "0.002")
    batching = {"mode": "Fixed", "size": 20, "reason": "test"}
    path = manifest(method=method, train=rows(40), held_out=few, batching=batching)
    whole = await learn(sim.url, path, tmp_path / "whole")
    for share in (0.02, 0.25, 0.5, 0.85):
        working = asyncio.create_task(learn(sim.url, path, tmp_path / "cut"))
        files = int(share * files_of(tmp_path / "whole"))
        await until(lambda work=working, wanted=files: work.done() or files_of(tmp_path / "cut") >= wanted)
        working.cancel()
        assert (await working).outcome == "Stopped"
    cut = await learn(sim.url, path, tmp_path / "cut")
    assert (tmp_path / "cut" / "lessons.md").read_bytes() == (tmp_path / "whole" / "lessons.md").read_bytes()
    assert pool_of(tmp_path / "cut", cut).to_json() == pool_of(tmp_path / "whole", whole).to_json()


@METHODS
async def test_equal_seeds_give_equal_texts_at_any_parallelism(
    method: dict[str, Any], quick: Sim, manifest: Manifest, rows: Any, few: Path, tmp_path: Path
) -> None:
    start = tmp_path / "start.json"
    start.write_text(json.dumps({"work": "Work step by step.", "check": "Check the result."}))
    task = {
        "type": "Formula",
        "data": {"train": {"uri": str(rows(20))}, "heldOut": {"uri": str(few)}},
        "initialPlaybook": {"uri": str(start)},
    }
    pools = set()
    for parallelism in (1, 4):
        path = manifest(
            name="run",
            method=method,
            task=task,
            batching={"mode": "Fixed", "size": 10, "reason": "test"},
            workers={"parallelism": parallelism, "concurrency": 8},
        )
        out = tmp_path / str(parallelism)
        pool = pool_of(out, await learn(quick.url, path, out))
        names = {name for one in pool.variants for name, _ in one.components}
        assert names - ({DEMONSTRATIONS} if method is MIPRO else set()) == {"work", "check"}
        pools.add(pool.to_json())
    assert len(pools) == 1


@METHODS
@pytest.mark.parametrize(
    ("aggregation", "size"),
    [
        ({"strategy": "Sequential"}, 1),
        ({"strategy": "Naive"}, 10),
        ({"strategy": "TopK"}, 10),
        ({"strategy": "Summarize", "maxFanIn": 4}, 10),
        ({"merge": "Model", "maxFanIn": 2, "leafSize": 2}, 10),
        ({"redundancy": {"mode": "Retransmit"}, "leafSize": 2}, 10),
    ],
    ids=lambda value: json.dumps(value),
)
async def test_every_strategy_ends_in_proposals(
    method: dict[str, Any],
    aggregation: dict[str, Any],
    size: int,
    quick: Sim,
    manifest: Manifest,
    rows: Any,
    few: Path,
    tmp_path: Path,
) -> None:
    path = manifest(
        method=method,
        train=rows(10),
        held_out=few,
        models={role: {"engineRef": {"name": "main"}} for role in ("task", "proposer", "embedder")},
        aggregation=aggregation,
        stopping={"patience": 10},
        batching={"mode": "Fixed", "size": size, "reason": "test"},
    )
    result = await learn(quick.url, path, tmp_path / "out")
    assert result.outcome in ("Learned", "Unsure", "NothingBetter"), result.reason
    tried = [one.verification for one in result.iterations if one.verification is not None]
    assert sum(one.replayed for one in tried) >= 1
