"""``combee replay``: a run's record gives the same decisions and bytes again, and nobody is asked."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from e2e_support import ENDED, ROOT, Manifest, Sim, Sims, combee, process, result_of
from killing import Killed

from combee.clients.model.chat import ChatClient
from combee.clients.model.memo import _encoded
from combee.clients.model.wire import Completion
from combee.errors import TransientError
from combee.local.executor import LocalExecutor
from combee.plan import decide as deciding
from combee.plan.types import Clocks, StepSummary

pytestmark = pytest.mark.e2e
EXAMPLES = ROOT / "examples"
FIXED = {"mode": "Fixed", "size": 10, "reason": "test"}
QUIET = {"concurrency": 8, "hedgeBudget": 0}


def digest_of(folder: Path) -> str:
    """Return one digest of every file of a folder and its bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in files)).hexdigest()


def replayed(out: Path, *flags: str | Path) -> dict[str, Any]:
    """Replay a record without a server, and check that it was only read."""
    before = digest_of(out)
    done = combee("replay", out, *flags, "--json")
    assert done.returncode in (0, 5), done.stderr
    assert digest_of(out) == before
    told = json.loads(done.stdout)
    assert told["identical"] == (done.returncode == 0) == (not told["differences"])
    return told


def same(out: Path, *flags: str | Path) -> dict[str, Any]:
    """Replay a record that must come out the same, with all of its plans, and steps but one that failed."""
    told = replayed(out, *flags)
    assert told["differences"] == []
    assert told["plans"] == len(list(out.glob("plans/i*.json")))
    steps = [StepSummary.decode(path.read_bytes()) for path in out.glob("steps/*.json")]
    assert told["steps"] == sum(step is not None and not step.error for step in steps) > 0 < told["answers"]
    return told


Learn = Callable[..., tuple[Path, Path]]


@pytest.fixture
def learn(manifest: Manifest, rows, few: Path, quick: Sim, tmp_path: Path) -> Learn:
    """Learn from some rows; returns the manifest and the folder."""

    def made(sim: Sim = quick, train: int = 20, name: str = "run", **spec: Any) -> tuple[Path, Path]:
        path = manifest(
            name=name, train=rows(train), held_out=few, **{"batching": FIXED, "workers": QUIET} | spec
        )
        done = combee("run", "-f", path, "-o", tmp_path / name, "--engine", f"main={sim.url}")
        assert done.returncode in (*ENDED, 4), done.stderr
        return path, tmp_path / name

    return made


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="ACE"),
        pytest.param({"batching": {"sizes": [4, 8, 12]}, "workers": {"concurrency": 8}}, id="measured sizes"),
        pytest.param({"method": {"type": "GEPA"}}, id="GEPA"),
        pytest.param({"method": {"type": "TextGrad", "textgrad": {"momentum": 1}}}, id="TextGrad"),
        pytest.param(
            {"method": {"type": "MIPRO", "mipro": {"demonstrations": 2, "minibatch": 8}}}, id="MIPRO"
        ),
        pytest.param({"budget": {"rollouts": 70}}, id="its budget ends it"),
        pytest.param(
            {"budget": {"rollouts": 123}, "train": 40, "batching": {**FIXED, "size": 20}},
            id="its budget ends an iteration",
        ),
        pytest.param({"aggregation": {"strategy": "Naive"}}, id="Naive"),
    ],
)
def test_a_run_comes_out_the_same(learn: Learn, spec: dict[str, Any]) -> None:
    path, out = learn(**spec)
    told = same(out, "-f", path)
    assert told["end"] == result_of(out)["outcome"]
    assert (told["end"] == "BudgetExhausted") == ("budget" in spec)
    broken_off = "is spent" in result_of(out)["reason"]
    assert broken_off == (len(list(out.glob("steps/*.json"))) > told["steps"]) == ("train" in spec)


def test_a_bad_day_comes_out_the_same_with_every_call_that_was_lost(
    sims: Sims, key: Path, learn: Learn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests fail and are sent again, answers are broken, and one call in eight is given up."""
    bad = sims.start("--key", key, "--time-scale", "0", "--error-rate", ".05", "--malform-rate", ".1")
    attempts = ChatClient._attempts

    async def given_up(client: ChatClient, request: Any, call_key: str, call: Any) -> Completion:
        if call_key[0] in "37":
            raise TransientError("no answer after 6 attempts")
        return await attempts(client, request, call_key, call)

    monkeypatch.setattr(ChatClient, "_attempts", given_up)
    path, out = learn(bad)
    monkeypatch.undo()
    faults = result_of(out)["faults"]
    assert faults["askedAgain"] and faults["repaired"]
    assert faults["lost"] > faults["cut"] + faults["unparsable"], "some calls got no answer at all"
    assert sum(one["failed"] for one in result_of(out)["iterations"])
    same(out, "-f", path)


def test_a_diagnosis_comes_out_the_same_with_every_example_that_was_lost(
    sims: Sims, key: Path, learn: Learn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call in sixteen is given up, in the headroom test, in learning and in scoring."""
    bad = sims.start("--key", key, "--time-scale", "0", "--error-rate", ".05", "--malform-rate", ".1")
    attempts = ChatClient._attempts

    async def given_up(client: ChatClient, request: Any, call_key: str, call: Any) -> Completion:
        if call_key[0] == "3":
            raise TransientError("no answer after 6 attempts")
        return await attempts(client, request, call_key, call)

    monkeypatch.setattr(ChatClient, "_attempts", given_up)
    path, out = learn(bad, train=40, serialBaseline={"method": "ACE", "measure": True})
    monkeypatch.undo()
    receipts = [json.loads(one.read_text()) for one in out.glob("store/runs/*/serial/steps/*-map/*.json")]
    assert sum(one["counts"]["failed"] for one in receipts), "serial learning lost an example"
    same(out, "-f", path)


@pytest.mark.parametrize("method", ["ACE", "GEPA"])
def test_a_run_that_was_killed_and_gone_on_with_comes_out_the_same(
    method: str, sims: Sims, key: Path, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    sim = sims.start("--key", key, "--time-scale", "0.005")
    path = manifest(train=rows(20), held_out=few, method={"type": method}, batching=FIXED, workers=QUIET)
    run, out = Killed(path, sim, 8), tmp_path / "out"
    assert run.killed_at(out, 90) is not None
    killed = replayed(out, "-f", path)
    assert killed["identical"] and killed["end"].startswith("the record ends")
    run.to_the_end(out)
    same(out, "-f", path)


def test_given_plans_come_out_the_same_and_are_said_to_be_given(
    learn: Learn, quick: Sim, tmp_path: Path
) -> None:
    path, first = learn(batching={"sizes": [4, 8, 12]})
    plans, out = first / "plans", tmp_path / "given"
    for plan in sorted(plans.glob("i*.json"))[1:]:
        plan.unlink()
    process("run", "-f", path, "-o", out, "--engine", f"main={quick.url}", "--plans", plans)
    same(out, "-f", path, "--plans", plans)


def test_the_recording_of_the_real_model_comes_out_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES / "office")
    with tarfile.open(EXAMPLES / "recorded" / "memo.tar.gz") as archive:
        archive.extractall(tmp_path / "store", filter="data")
    given: list[str | Path] = ["-f", EXAMPLES / "real.yaml"]
    for split, file in (("train", "train.jsonl"), ("heldOut", "heldout.jsonl")):
        given += ["--data", f"{split}={EXAMPLES / 'office' / file}"]
    assert combee("run", "-o", tmp_path, "--recorded", *given).returncode == 0
    same(tmp_path, *given)
    assert (tmp_path / "prompt.md").read_bytes() == (EXAMPLES / "recorded" / "prompt.md").read_bytes()


def test_what_was_fetched_from_a_cluster_is_replayed_with_its_store(learn: Learn, tmp_path: Path) -> None:
    """A fetched folder has no run.json, no clock and no store."""
    path, out = learn()
    fetched = tmp_path / "fetched"
    shutil.copytree(out, fetched, ignore=shutil.ignore_patterns("store", "run.json", "clock.json", "lock"))
    assert combee("replay", fetched, "-f", path).returncode == 2
    same(fetched, "-f", path, "--store", out / "store")


@pytest.mark.parametrize(
    ("budget", "clocks"),
    [
        pytest.param(
            {"money": 6.0, "primary": "money"},
            lambda iteration: Clocks(0.0, 3600.0 * (1 + iteration)),
            id="what GPUs cost",
        ),
        pytest.param(
            {"wallClockSeconds": 1500, "primary": "wallClockSeconds"},
            lambda iteration: Clocks(1000.0 * iteration),
            id="wall clock",
        ),
    ],
)
def test_what_a_clock_decided_comes_out_the_same_and_not_without_it(
    learn: Learn, monkeypatch: pytest.MonkeyPatch, budget: dict[str, Any], clocks: Callable[[int], Clocks]
) -> None:
    """GPU seconds, which a laptop holds none of, and a clock that runs fast bound what is learned."""

    async def shown(executor: LocalExecutor) -> Clocks:
        number = executor.state.iteration
        if executor.state.phase != "Learning" or number in executor.plans:
            return Clocks()
        return executor.folder.clocks(number, clocks(number))

    with monkeypatch.context() as patch:
        patch.setattr(LocalExecutor, "_clocks", shown)
        path, out = learn(train=40, budget=budget, prices={"currency": "EUR", "perGpuHour": 1.0})
    sizes = [json.loads(plan.read_text())["batch_size"] for plan in sorted(out.glob("plans/*.json"))]
    assert result_of(out)["outcome"] == "BudgetExhausted", (result_of(out)["reason"], sizes)
    kept = json.loads((out / "clocks" / "i000.json").read_text())
    assert Clocks(**kept) == clocks(0)
    told = same(out, "-f", path)
    assert told["end"] == "BudgetExhausted"
    with monkeypatch.context() as patch:
        patch.setattr(deciding, "_over_budget", lambda *_: None)
        first = replayed(out, "-f", path)["differences"][0]
    assert (first["field"], first["recorded"]) == ("batch_size", "none: learning stopped")
    shutil.rmtree(out / "clocks")
    without = replayed(out, "-f", path)
    assert without["differences"] or without["end"].startswith("the record ends before the plan")


def test_a_changed_decision_rule_is_found(learn: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = learn()
    monkeypatch.setattr(deciding, "evaluation_due", lambda *_: False)
    told = replayed(out, "-f", path)
    found = [(one["step"], one["field"], one["recorded"], one["now"]) for one in told["differences"]]
    assert found == [(f"plan of iteration {n}", "evaluate", "True", "False") for n in (1, 2)]
    shown = combee("replay", out, "-f", path)
    assert shown.returncode == 5
    assert "differs: plan of iteration 1: evaluate: recorded True, now False" in shown.stdout


def test_a_changed_reply_is_found(learn: Learn, tmp_path: Path) -> None:
    path, out = learn()
    changed = 0
    for record in (out / "store" / "memo").glob("??/*"):
        body = json.loads(record.read_text())["completion"]
        if '"answer"' in body["text"]:
            answer = json.loads(body["text"]) | {"answer": "none of these"}
            record.write_bytes(
                _encoded(record.name, Completion.from_json(body | {"text": json.dumps(answer)}))
            )
            changed += 1
    assert changed
    told = replayed(out, "-f", path)
    assert "-profile-" in told["differences"][0]["step"] and told["end"].endswith("which differs")
    assert {one["field"] for one in told["differences"]} >= {"outputs.scores", "scores.select"}


def test_a_changed_artifact_is_found(learn: Learn) -> None:
    path, out = learn()
    (out / "lessons.md").write_text("# Something else\n")
    (found,) = replayed(out, "-f", path)["differences"]
    assert (found["step"], found["field"], found["recorded"]) == ("files", "lessons.md", "# Something else\n")


@pytest.mark.parametrize("damaged", [False, True])
def test_a_call_that_the_record_lacks_is_named(learn: Learn, *, damaged: bool) -> None:
    path, out = learn()
    record = next((out / "store" / "memo").glob("??/*"))
    record.write_text("{}") if damaged else record.unlink()
    done = combee("replay", out, "-f", path)
    assert done.returncode == 2
    assert (
        f"the record {'has a damaged answer to' if damaged else 'lacks'} the call {record.name}"
        in done.stderr
    )


def test_another_manifest_or_another_folder_is_refused(
    learn: Learn, manifest: Manifest, tmp_path: Path
) -> None:
    path, out = learn()
    other = manifest(name="run2", train=path, seed=8)
    assert combee("replay", tmp_path, "-f", path).returncode == 2
    done = combee("replay", out, "-f", other)
    assert done.returncode == 2, done.stdout
