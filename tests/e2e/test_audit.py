"""``combee audit``: a run's claims are put to the test, and what was finished is never asked again."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from e2e_support import Manifest, Sim, Sims, combee, result_of
from jsonschema import Draft202012Validator

from combee.algo.latency import H200, LatencyLaw
from combee.audit import run as auditing
from combee.audit.timed import speed_up
from combee.generate.schemas import audit_schema
from combee.local.record import read_record
from combee.local.session import prepare
from combee.local.sources import StandIns

pytestmark = pytest.mark.e2e
FIXED = {"mode": "Fixed", "size": 20, "reason": "test"}
QUIET = {"concurrency": 8, "hedgeBudget": 0}
LAW = "0.0047,0.00013,0.000027"


def digest_of(folder: Path) -> str:
    """Return one digest of a run's files, without its audit and the reports that show it."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "audit" not in path.parts]
    kept = [path for path in files if not path.name.startswith(("report.", "strategist."))]
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in kept)).hexdigest()


Learn = Callable[..., tuple[Path, Path]]


@pytest.fixture
def learn(manifest: Manifest, rows: Callable[[int], Path], tmp_path: Path) -> Learn:
    """Learn from some rows, scored on all of heldOut; returns the manifest and the folder."""

    def made(sim: Sim, train: int = 40, **spec: Any) -> tuple[Path, Path]:
        path = manifest(train=rows(train), **{"batching": FIXED, "workers": QUIET} | spec)
        done = combee("run", "-f", path, "-o", tmp_path / "run", "--engine", f"main={sim.url}")
        assert done.returncode == 0, done.stderr + done.stdout
        return path, tmp_path / "run"

    return made


def stamps(out: Path) -> dict[str, str]:
    audit = json.loads((out / "audit" / "audit.json").read_text())
    Draft202012Validator(audit_schema()).validate(audit)
    return {one["claim"]: one["stamp"] for one in audit["stamps"]}


def test_a_run_that_holds_survives_and_is_only_read(
    sims: Sims, key: Path, learn: Learn, tmp_path: Path
) -> None:
    sim = sims.start("--key", key, "--time-scale", "0")
    path, out = learn(sim, budget={"rollouts": 5000})
    before, said = digest_of(out), sim.said()

    cost = combee("audit", out, "-f", path)
    assert cost.returncode == 0, cost.stderr
    assert "seed 10" in cost.stdout and "--yes" in cost.stdout
    assert sim.said() == said and not (out / "audit").exists()

    asked = sim.answered()
    words = ["audit", out, "-f", path, "--engine", f"main={sim.url}", "--latency-law", LAW, "--yes"]
    done = combee(*words)
    assert done.returncode == 6, done.stderr
    assert digest_of(out) == before
    assert stamps(out) == {
        "gain shown on gate": "survived",
        "better than the untouched prompt": "survived",
        "faster than the serial baseline": "not shown",
        "budget kept": "survived",
        "replay equal": "survived",
    }
    assert "simulated model" in done.stdout and "seed 8" in done.stderr
    audit = json.loads((out / "audit" / "audit.json").read_text())
    assert [one["seed"] for one in audit["seeds"]] == [8, 9, 10]
    assert audit["rescored"]["n"] == result_of(out)["heldOut"]["gate"]["n"]
    # Fresh answers are new requests; what is equal to a request of the run is in the memo that seeds share.
    again = {request for request, times in sim.answered().items() if times > asked[request] > 0}
    assert not again

    said = sim.said()
    once_more = combee(*words)
    assert once_more.returncode == 6 and once_more.stdout == done.stdout
    assert sim.said() == said, "a finished audit asks nothing"

    shown = combee("report", out)
    assert shown.returncode == 0 and "replay equal" in shown.stdout
    assert "replay equal" in (out / "report.html").read_text()
    strategist = combee("report", out, "--strategist")
    assert "| replay equal | survived |" in strategist.stdout


def test_an_audit_that_was_stopped_goes_on_and_asks_nothing_twice(
    sims: Sims, key: Path, learn: Learn, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = sims.start("--key", key, "--time-scale", "0")
    path, out = learn(sim)
    words = ["audit", out, "-f", path, "--engine", f"main={sim.url}", "--yes", "--json"]
    whole_run = auditing.whole_run

    async def stopped(prepared: Any, folder: Path, *more: Any, **named: Any) -> Any:
        if folder.name == "s9":
            raise asyncio.CancelledError
        return await whole_run(prepared, folder, *more, **named)

    monkeypatch.setattr(auditing, "whole_run", stopped)
    assert combee(*words).returncode == 130
    assert not (out / "audit" / "audit.json").exists()
    monkeypatch.undo()
    done = combee(*words)
    assert done.returncode == 6, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["event"] == "finished"
    assert set(sim.answered().values()) == {1}


def test_a_second_engine_answers_for_itself_and_may_refute_the_claim(
    sims: Sims, key: Path, learn: Learn, tmp_path: Path
) -> None:
    """One that cannot read a playbook learns nothing: the claim is of the first class alone. The record is
    one that was fetched from a cluster, with its store elsewhere."""
    sim, deaf = (
        sims.start("--key", key, "--time-scale", "0", *more) for more in ((), ("--malform-rate", "1"))
    )
    path, out = learn(sim)
    fetched = tmp_path / "fetched"
    shutil.copytree(out, fetched, ignore=shutil.ignore_patterns("store", "run.json", "clock.json", "lock"))
    flags = ["-f", path, "--store", out / "store", "--engine", f"main={sim.url}"]
    done = combee("audit", fetched, *flags, "--second-engine", f"main={deaf.url}", "--yes")
    assert done.returncode == 5, done.stderr
    made = stamps(fetched)
    assert made["better than the untouched prompt"] == "failed"
    assert made["gain shown on gate"] == made["replay equal"] == "survived"
    assert deaf.answered()


def test_the_recorded_calls_are_timed_by_another_law(quick: Sim, learn: Learn) -> None:
    """A law twice as slow in every part changes no ratio; one that makes calls beside each other dear
    does."""
    measured = {"serialBaseline": {"method": "ACE", "measure": True}, "budget": {"rollouts": 20_000}}
    path, out = learn(quick, 100, batching={}, workers={}, **measured)
    prepared = prepare(path, StandIns(), recorded=True)

    def ratio(law: LatencyLaw) -> float:
        record = read_record(out, "", prepared)
        prefix = f"runs/{record.who.name}-{record.who.uid}"
        made = asyncio.run(speed_up(record, prefix, 64, law))
        record.store.close()
        assert made is not None
        return made

    first = ratio(H200)
    slow = LatencyLaw(*(2 * part for part in (0.0163, 0.000094, 31e-6)))
    assert first > 1 and ratio(slow) == pytest.approx(first)
    assert ratio(LatencyLaw(0.001, 0.1, 0.0)) < first


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--latency-law", "1,2"], "--latency-law"),
        (["--second-engine", "other=http://127.0.0.1:1/v1"], "main"),
        ([], "--engine"),
    ],
)
def test_a_mistake_is_found_before_any_work(quick: Sim, learn: Learn, flags: list[str], words: str) -> None:
    path, out = learn(quick)
    given = ["--engine", f"main={quick.url}"] if flags else []
    done = combee("audit", out, "-f", path, *given, *flags, "--yes")
    assert done.returncode == 2 and words in done.stderr
    assert not (out / "audit").exists()
