"""`combee-worker report` as a process in the layout of its pod: what a laptop writes from the same plans."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from e2e_support import ENDED, FORMULA, MODEL, Manifest, Sims, combee, environment
from pods import UID, Cluster
from test_worker import WORKERS, claims

from combee.algo.latency import LatencyLaw
from combee.cli.cluster.compare import _compared, _facts, _member
from combee.cli.cluster.place import found_in
from combee.cli.cluster.report import written
from combee.compare.cells import Cell, derived_for_cluster, read_tasks
from combee.compare.collect import collect
from combee.compare.strategies import Strategy
from combee.objects.results import CALLS, STORE
from combee.plan.cluster.memory import Memory
from combee.plan.state import RunState
from combee.plan.types import Outcome, Step, StepSummary
from combee.report.bundle import GATE_FILE, unpacked
from warm import run_program

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="pods are Linux processes")]


def report(cluster: Cluster, memory: Memory, number: int, **params: bool) -> subprocess.CompletedProcess[str]:
    """What the pod printed."""
    root = cluster.folder / f"report{number}"
    asked = {"state": memory.to_status(), **params}
    step = Step("pods-report", "report", len(cluster.plans), 7, params=asked)
    cluster._lay_out(root, step)
    (root / "etc/combee/plans").mkdir()
    for iteration, plan in cluster.plans.items():
        (root / f"etc/combee/plans/i{iteration:03d}.json").write_bytes(plan.to_json())
    variables = {
        "COMBEE_ROOT": str(root),
        "COMBEE_STEP": json.dumps(asdict(step)),
        "COMBEE_STORE": cluster.store,
        "COMBEE_ENGINES": json.dumps({"main": cluster.engine}),
        "HOME": str(root / "tmp"),
    }
    return run_program(["combee-worker", "report"], environment(**variables), seconds=240)


def compares(files: dict[str, bytes], manifest: Path, laptop: Path, out: Path) -> None:
    """What a comparison reads of a run on a cluster is what it reads of the laptop's from the same plans."""
    (task,) = read_tasks([manifest])
    strategy = Strategy(task.run.spec.aggregation.strategy)
    (here,) = collect(Cell(task, strategy, 7, laptop, {}), [16], LatencyLaw())
    made = derived_for_cluster(Cell(task, strategy, 7, out / "pods", {}), "methods", 36)
    member = _member(found_in({**made, "metadata": {**made["metadata"], "uid": UID, "namespace": "n"}}), out)
    written(files, member.cell.folder)
    (there,) = _facts(member.cell, [16], LatencyLaw(), {})
    assert (there.calls, there.tokens, there.scores) == (here.calls, here.tokens, here.scores)
    assert [(part.name, part.iteration, part.calls, part.tokens) for part in there.parts] == [
        (part.name, part.iteration, part.calls, part.tokens) for part in here.parts
    ]
    assert "| ParallelScan |" in _compared([member], out, [])
    assert (out / "compare.html").exists() and (out / "plot-pods.svg").exists()


def test_a_pod_prints_what_a_laptop_writes(
    sims: Sims, key: Path, manifest: Manifest, tmp_path: Path, clusters: list[Cluster]
) -> None:
    for name, source, count in (("train", "train", 36), ("heldOut", "heldout", 40)):
        lines = (FORMULA / f"{source}.jsonl").read_bytes().splitlines(keepends=True)
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(lines[:count]))
    sim = sims.start("--key", key, "--time-scale", "0")
    local = manifest(
        name="pods",
        train=tmp_path / "train.jsonl",
        held_out=tmp_path / "heldOut.jsonl",
        batching={"mode": "Fixed", "size": 18, "reason": "test"},
        workers=WORKERS,
    )
    cluster = Cluster(tmp_path / "cluster", claims(local), sim.url.replace("127.0.0.1", "localhost"))
    clusters.append(cluster)
    state = cluster.to_the_end()
    assert state.outcome is not None
    done = report(cluster, Memory(run=state, started=1.0, ended=2.0, active_seconds=61.5), 0)
    assert done.returncode == 0, done.stderr
    files = unpacked(done.stdout.splitlines())
    result = json.loads(files["result.json"])
    assert (result["outcome"], result["reason"]) == (state.outcome.name, state.outcome.reason)
    assert result["wallSeconds"] == 61.5 and result["models"]["proposer"]["simulated"]
    # One pod of each step tells what all servers behind the engine's name were seen to do.
    assert {s["step"] for it in result["iterations"] for s in it["stages"] if s["servers"]} >= {
        "map",
        "reduce",
    }
    kept = {
        summary.kind: summary
        for name, data in files.items()
        if name.startswith("steps/")
        for summary in [StepSummary.decode(data)]
        if summary
    }
    assert set(kept) == {"profile", "map", "reduce", "finish", "evaluate"}
    assert kept["map"].step.startswith(f"pods-{UID[:8]}-") and kept["map"].counts["iteration"] in (0, 1)

    written(files, tmp_path / "fetched")
    assert {json.loads(line)["servingModel"] for line in files["rollouts.jsonl"].splitlines()} == {MODEL}
    rows = [f"--data={split}={tmp_path / split}.jsonl" for split in ("train", "heldOut")]
    given = ["-f", claims(local), "--store", cluster.folder / "store", *rows]
    replayed = combee("replay", tmp_path / "fetched", *given)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert f"2 plans made again, {len(cluster.plans) * 3 + 2} steps done again" in replayed.stdout

    assert not [name for name in files if name.startswith("store/")]
    stored = report(
        cluster, Memory(run=state, started=1.0, ended=2.0, active_seconds=61.5), 5, **{STORE: True}
    )
    whole = unpacked(stored.stdout.splitlines())
    assert {name: whole[name] for name in files} == files
    # The rest of the store is of other runs: none of it is told, but for answers, which bear no name.
    (cluster.folder / "store" / "runs" / "other-11111111").mkdir()
    (cluster.folder / "store" / "runs" / "other-11111111" / "mine").write_bytes(b"{}")
    again = report(
        cluster, Memory(run=state, started=1.0, ended=2.0, active_seconds=61.5), 6, **{STORE: True}
    )
    assert unpacked(again.stdout.splitlines()) == whole
    written(whole, tmp_path / "pods")
    replayed = combee("replay", "pods", "-f", claims(local), *rows, cwd=tmp_path)
    assert replayed.returncode == 0 and "identical" in replayed.stdout, replayed.stdout + replayed.stderr
    words = ["audit", "pods", "-f", claims(local), *rows, "--engine", f"main={sim.url}", "--yes"]
    audited = combee(*words, cwd=tmp_path)
    assert audited.returncode == 6, audited.stdout + audited.stderr
    assert re.search(r"replay equal +survived", audited.stdout), audited.stdout

    plans, out = tmp_path / "plans", tmp_path / "laptop"
    plans.mkdir()
    for name, data in files.items():
        if name.startswith("plans/"):
            (tmp_path / name).write_bytes(data)
    again = combee("run", "-f", local, "-o", out, "--engine", f"main={sim.url}", "--plans", plans)
    assert again.returncode in ENDED, again.stderr
    assert (out / "lessons.md").read_bytes() == files["lessons.md"]
    ours = json.loads((out / "result.json").read_text())
    for part in ("heldOut", "entries", "playbook", "refusals", "data"):
        assert ours[part] == result[part], part
    assert [it["select"] for it in ours["iterations"]] == [it["select"] for it in result["iterations"]]

    assert not [name for name in files if name.startswith("calls/") or name == GATE_FILE]
    more = report(cluster, Memory(run=state, started=1.0, ended=2.0, active_seconds=61.5), 4, **{CALLS: True})
    assert more.returncode == 0, more.stderr
    compares(unpacked(more.stdout.splitlines()), local, out, tmp_path / "compared")

    early = replace(state, outcome=None, stop=None, phase="Learning", iteration=1)
    partly = report(cluster, Memory(run=early, started=1.0), 1)
    assert partly.returncode == 0, partly.stderr
    half = json.loads(unpacked(partly.stdout.splitlines())["result.json"])
    assert half["outcome"] == "Stopped" and len(half["iterations"]) == 1 and half["evaluation"] is None

    (cluster.folder / "store").rename(cluster.folder / "elsewhere")
    (cluster.folder / "store").mkdir()
    lost = report(cluster, Memory(run=state, started=1.0, ended=2.0), 2)
    assert lost.returncode == 1 and lost.stdout == ""
    assert "Restore it from a copy of the store" in json.loads(lost.stderr.splitlines()[-1])["message"]

    cluster.plans = {}
    dead = RunState(phase="Complete", outcome=Outcome("Failed", "the endpoint refused the key"))
    failed = report(cluster, Memory(run=dead, started=1.0, ended=2.0), 3)
    assert failed.returncode == 0, failed.stderr
    nothing = json.loads(unpacked(failed.stdout.splitlines())["result.json"])
    assert (nothing["outcome"], nothing["reason"]) == ("Failed", "the endpoint refused the key")
    assert nothing["heldOut"] is None and nothing["iterations"] == []
    assert "whether it is a real model is not known" in nothing["data"]["warnings"][0]
