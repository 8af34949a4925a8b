"""``combee run`` on the real Formula data, with the simulated model in a process of its own."""

from __future__ import annotations

import html
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import yaml
from e2e_support import COMBEE, ENDED, MODEL, ROOT, Manifest, Sim, Sims, combee, environment, result_of

from combee.methods.ace import AceMethod
from combee.report.result import read_result
from waiting import wait_until

pytestmark = pytest.mark.e2e


def learn(sim: Sim, path: Path, out: Path, *flags: str | Path) -> subprocess.CompletedProcess[str]:
    return combee("run", "-f", path, "-o", out, "--engine", f"main={sim.url}", *flags)


@pytest.fixture
def counting(sims: Sims, key: Path) -> Sim:
    """A simulated model that only this test asks."""
    return sims.start("--key", key, "--time-scale", "0")


def test_it_learns_and_leaves_all_its_files(quick: Sim, manifest: Manifest, rows, tmp_path: Path) -> None:
    out = tmp_path / "out"
    path = manifest(train=rows(200), batching={"mode": "Fixed", "size": 100, "reason": "test"})
    document = yaml.safe_load(path.read_text())
    document["spec"]["task"]["failureCost"] = "A wrong figure"
    document["spec"]["task"]["data"]["heldOut"] |= {"steward": "data-platform", "usedForTuning": True}
    path.write_text(yaml.safe_dump(document))
    # With a report that is built apart, figures and all.
    command = [*COMBEE, "run", "-f", path, "-o", out, "--engine", f"main={quick.url}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    result = read_result((out / "result.json").read_bytes())
    assert result.outcome == "Learned"
    gate = result.held_out.gate
    assert gate is not None and gate.gain >= 0.10
    assert gate.n == result.data.held_out.gate == 150
    (changed,) = out.glob("store/runs/*/changed.md")
    assert "Of 150 questions of gate" in changed.read_text() and "## Higher" in changed.read_text()
    assert "simulated model" in done.stdout
    assert "report.html" in done.stdout and "lessons.md" in done.stdout
    report = (out / "report.html").read_text()
    assert "simulated model" in report.casefold() and "<svg" in report
    assert "simulated model" in (out / "report.md").read_text().casefold()
    assert (result.setup.steward, result.setup.used_for_tuning) == ("data-platform", True)
    assert result.setup.failure_cost == "A wrong figure"
    for text in (report, (out / "report.md").read_text()):
        assert "A wrong figure" in text and "heldOut was used for tuning before" in text
    rendered = [entry for entry in result.entries if entry.rendered]
    assert rendered and all(entry.sources for entry in rendered)
    # The first answer brings a look at the server, which has no KV cache to speak of.
    seen = result.profile.stages[0].servers
    assert seen is not None and seen.kv_use_most is None
    assert "What the servers were seen to do" in report
    playbook = (out / "lessons.md").read_text()
    assert all(entry.id in playbook for entry in rendered)
    assert len(list((out / "plans").glob("i*.json"))) == len(result.iterations) == 2


def test_the_same_command_again_asks_nothing_and_says_the_same(
    counting: Sim, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    # What a hedge leaves behind may be answered after the run is over.
    path = manifest(
        train=rows(40),
        held_out=few,
        batching={"mode": "Fixed", "size": 40, "reason": "test"},
        workers={"hedgeBudget": 0},
    )
    first = learn(counting, path, tmp_path / "out")
    before, asked = result_of(tmp_path / "out"), sum(counting.answered().values())
    again = combee("run", "-f", path, "-o", tmp_path / "out", "--engine", f"main={counting.url}")
    assert again.returncode == first.returncode
    assert sum(counting.answered().values()) == asked
    after = result_of(tmp_path / "out")
    assert before == after
    # Nor does it need the server, or take work up where another number of iterations is asked for.
    gone = ["run", "-f", path, "-o", tmp_path / "out", "--engine", "main=http://127.0.0.1:9/v1"]
    without = combee(*gone)
    assert (without.returncode, without.stderr) == (first.returncode, "")
    assert "is over already, so nothing is asked" in without.stdout and "iteration 1" not in without.stdout
    assert without.stdout.partition("\n\n")[2] == again.stdout.partition("\n\n")[2].replace(
        f"main={counting.url}", "main=http://127.0.0.1:9/v1"
    )
    assert combee(*gone, "--plans", tmp_path / "out" / "plans").returncode == first.returncode
    more = shutil.copytree(tmp_path / "out" / "plans", tmp_path / "more")
    plan = json.loads((more / "i000.json").read_text())
    (more / "i001.json").write_text(json.dumps({**plan, "iteration": 1}))
    further = combee(*gone, "--plans", more)
    assert further.returncode == 2 and "cannot be reached" in further.stderr

    other = tmp_path / "other"
    shutil.copytree(tmp_path / "out" / "store" / "memo", other / "store" / "memo")
    assert learn(counting, path, other).returncode == first.returncode
    assert sum(counting.answered().values()) == asked
    assert (other / "prompt.md").read_bytes() == (tmp_path / "out" / "prompt.md").read_bytes()


def test_a_recorded_run_asks_nobody_and_says_what_it_lacks(
    counting: Sim, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    path = manifest(
        train=rows(20),
        held_out=few,
        batching={"mode": "Fixed", "size": 20, "reason": "test"},
        workers={"hedgeBudget": 0},
    )
    first = learn(counting, path, tmp_path / "out")
    asked = sum(counting.answered().values())
    for name in ("same", "another"):
        shutil.copytree(tmp_path / "out" / "store" / "memo", tmp_path / name / "store" / "memo")
    same = combee("run", "-f", path, "-o", tmp_path / "same", "--recorded")
    assert same.returncode == first.returncode, same.stderr
    assert (tmp_path / "same" / "prompt.md").read_bytes() == (tmp_path / "out" / "prompt.md").read_bytes()
    told = result_of(tmp_path / "same")["models"]["task"]
    assert told["simulated"] and told["servedBy"].endswith("(recorded)") and "simulated model" in same.stdout
    path.write_text(
        yaml.safe_dump({**(run := yaml.safe_load(path.read_text())), "spec": {**run["spec"], "seed": 8}})
    )
    another = combee("run", "-f", path, "-o", tmp_path / "another", "--recorded")
    assert another.returncode == 2 and "--recorded: the memo has no answer" in another.stderr
    assert sum(counting.answered().values()) == asked
    (tmp_path / "another" / "store" / "memo" / "servers.json").unlink()
    unknown = combee("run", "-f", path, "-o", tmp_path / "another", "--recorded")
    assert unknown.returncode == 2 and "does not say what served" in unknown.stderr


def test_plans_of_a_measured_run_give_the_same_bytes_elsewhere(
    quick: Sim, common: Sims, key: Path, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    path = manifest(train=rows(60), held_out=few, batching={"mode": "Dynamic", "sizes": [5, 10, 25]})
    learn(quick, path, tmp_path / "one")
    slow = common.shared("--key", key, "--time-scale", "0.01")
    other = combee(
        "run",
        "-f",
        path,
        "-o",
        tmp_path / "two",
        "--engine",
        f"main={slow.url}",
        "--plans",
        tmp_path / "one" / "plans",
    )
    assert other.returncode in ENDED, other.stderr
    assert (tmp_path / "one" / "lessons.md").read_bytes() == (tmp_path / "two" / "lessons.md").read_bytes()
    one, two = result_of(tmp_path / "one"), result_of(tmp_path / "two")
    assert one["playbook"]["digest"] == two["playbook"]["digest"]
    sizes = [[row["batchSize"] for row in result["iterations"]] for result in (one, two)]
    assert sizes[0] == sizes[1]

    # What obeyed fewer plans goes on by itself without them.
    (tmp_path / "begun").mkdir()
    shutil.copy(tmp_path / "one" / "plans" / "i000.json", tmp_path / "begun")
    three = ["run", "-f", path, "-o", tmp_path / "three", "--engine", f"main={quick.url}"]
    combee(*three, "--plans", tmp_path / "begun")
    assert len(result_of(tmp_path / "three")["iterations"]) == 1
    combee(*three)
    assert len(result_of(tmp_path / "three")["iterations"]) > 1


@pytest.mark.parametrize(
    ("strategy", "merge"), [("Sequential", "Structured"), ("Naive", "Structured"), ("ParallelScan", "Model")]
)
def test_every_strategy_runs_on_the_same_code_path(
    strategy: str, merge: str, quick: Sim, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    fixed = {} if strategy == "Sequential" else {"batching": {"mode": "Fixed", "size": 12, "reason": "test"}}
    path = manifest(train=rows(12), held_out=few, aggregation={"strategy": strategy, "merge": merge}, **fixed)
    done = learn(quick, path, out)
    assert done.returncode in ENDED, done.stderr
    result = result_of(out)
    assert result["setup"]["strategy"] == strategy
    assert [row["batchSize"] for row in result["iterations"]] == (
        [1] * 12 if strategy == "Sequential" else [12]
    )[: len(result["iterations"])]


def test_a_rollout_budget_is_never_overrun_and_exits_4(
    counting: Sim, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    path = manifest(
        train=rows(100),
        held_out=few,
        budget={"rollouts": 120, "money": 100.0, "primary": "money"},
        prices={
            "currency": "EUR",
            "models": [{"name": MODEL, "promptPerMillionTokens": 2, "completionPerMillionTokens": 8}],
        },
        batching={"mode": "Fixed", "size": 50, "reason": "test"},
        workers={"hedgeBudget": 0},
    )
    done = learn(counting, path, tmp_path / "out")
    assert done.returncode == 4, done.stderr
    result = result_of(tmp_path / "out")
    assert result["outcome"] == "BudgetExhausted" and result["rollouts"] <= 120
    answered = [json.loads(line) for line in counting.log.read_text().splitlines()]
    assert sum(row["role"] == "rollout" for row in answered) <= 120
    assert (tmp_path / "out" / "report.html").exists()
    cost, *others = result["budget"]
    assert cost["name"] == "money" and [line["name"] for line in others[:2]] == ["rollouts", "tokens"]
    used = result["usage"].values()
    tokens = [sum(role[name] for role in used) for name in ("promptTokens", "completionTokens")]
    assert cost["spent"] == pytest.approx((2 * tokens[0] + 8 * tokens[1]) / 1e6, abs=1e-4)
    assert (cost["limit"], cost["currency"]) == (100.0, "EUR")
    assert "money, EUR" in (tmp_path / "out" / "report.md").read_text()
    assert "in another folder with a copy of this one's store/memo" in " ".join(done.stdout.split())


def test_nothing_better_than_the_start_exits_3_and_shows_what_was_tried(
    quick: Sim, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    path = manifest(train=rows(6), held_out=few, batching={"mode": "Fixed", "size": 6, "reason": "test"})
    done = learn(quick, path, tmp_path / "out")
    assert done.returncode == 3, done.stderr
    result = result_of(tmp_path / "out")
    assert result["outcome"] == "NothingBetter" and result["playbook"]["entries"] == 0
    tried = result["entries"]
    assert tried and all(not one["rendered"] and one["leftOut"] for one in tried)
    (iteration,) = result["iterations"]
    assert len(result["refusals"]) == iteration["verification"]["refused"]
    assert "Read the entries that were tried" in done.stdout
    assert tried[0]["text"] in html.unescape((tmp_path / "out" / "report.html").read_text())


def test_ctrl_c_stops_cleanly_and_the_same_command_goes_on(
    sims: Sims, key: Path, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    # Slow enough for whoever interrupts to come in time, and quick for what goes on.
    slow, quick = (sims.start("--key", key, "--time-scale", scale) for scale in ("0.3", "0"))
    path = manifest(
        train=rows(40),
        held_out=few,
        batching={"mode": "Fixed", "size": 20, "reason": "test"},
        workers={"hedgeBudget": 0},
    )
    command = ["run", "-f", str(path), "-o", str(out), "--engine"]
    process = subprocess.Popen(
        [*COMBEE, *command, f"main={slow.url}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    wait_until("its first plan", (out / "plans" / "i000.json").exists, process)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 130, stderr
    stopped = result_of(out)
    assert stopped["outcome"] == "Stopped"
    # Also what the interrupted step asked; what was in flight was not read any more.
    counted, asked = sum(role["calls"] for role in stopped["usage"].values()), sum(slow.answered().values())
    assert asked - 64 <= counted <= asked
    # A rollout is charged once its request is sent: nobody can tell what the server did for one in flight.
    rolled_out = sum(slow.answered("rollout").values())
    assert rolled_out <= stopped["rollouts"] <= rolled_out + 64
    assert "again to go on" in " ".join(stdout.split())  # its lines end where the path says so
    assert "Traceback" not in stderr
    done = combee(*command, f"main={quick.url}")
    assert done.returncode in ENDED, done.stderr
    answered = slow.answered() + quick.answered()
    assert max(answered.values()) <= 2
    assert sum(count - 1 for count in answered.values()) <= 64


def test_json_mode_prints_one_documented_object_a_line(
    quick: Sim, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    import jsonschema

    path = manifest(train=rows(20), held_out=few, batching={"mode": "Fixed", "size": 20, "reason": "test"})
    done = learn(quick, path, tmp_path / "out", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    schema = json.loads((ROOT / "operator/combee/report/events.schema.json").read_text())
    for event in events:
        jsonschema.validate(event, schema)
    names = [event["event"] for event in events]
    assert names[0] == "started" and names[-1] == "finished"
    assert {"plan", "progress", "iteration"} <= set(names)


def test_an_initial_playbook_is_trusted_and_its_preamble_kept(
    quick: Sim, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.md").write_text(
        "These are our house rules.\n\n## FORMULAS AND CALCULATIONS\n[calc-00001] helpful=4 harmful=1 :: "
        "State ratios plainly.\n"
    )
    data = {
        "train": {"uri": str(rows(20))},
        "heldOut": {"uri": str(few)},
    }
    path = manifest(
        task={"type": "Formula", "data": data, "initialPlaybook": {"uri": str(tmp_path / "mine.md")}},
        batching={"mode": "Fixed", "size": 20, "reason": "test"},
    )
    done = learn(quick, path, tmp_path / "out")
    assert done.returncode in ENDED, done.stderr
    blobs = [
        p.read_text(errors="replace")
        for p in (tmp_path / "out" / "store" / "blobs").rglob("*")
        if p.is_file()
    ]
    rendered = [text for text in blobs if text.startswith("These are our house rules.")]
    assert rendered and all("State ratios plainly." in text for text in rendered)


def test_gc_keeps_results_and_deletes_the_store(
    quick: Sim, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    path = manifest(train=rows(20), held_out=few, batching={"mode": "Fixed", "size": 20, "reason": "test"})
    learn(quick, path, out)
    assert combee("gc", out).returncode == 0 and (out / "store").exists()
    assert combee("gc", out, "--yes").returncode == 0
    assert not (out / "store").exists() and (out / "result.json").exists()
    steps = {path.stem.rsplit("-", 2)[1] for path in (out / "steps").iterdir()}
    assert steps >= {"profile", "map", "reduce", "finish"}
    assert combee("gc", tmp_path).returncode == 2


def test_the_help_is_light() -> None:
    code = "import sys; sys.argv=['combee','--help']\n"
    code += "try:\n import combee.cli.main as m; m.main()\nexcept SystemExit: pass\n"
    code += "heavy = {'openai', 'numpy', 'matplotlib', 'pydantic', 'starlette', 'rich'} & set(sys.modules)\n"
    code += "assert not heavy, heavy"
    done = subprocess.run([COMBEE[0], "-c", code], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    assert "validate" in done.stdout and "preview" in done.stdout and "sim" in done.stdout


def test_ledgers_in_the_store_read_back(
    quick: Sim, manifest: Manifest, rows, few: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    path = manifest(train=rows(40), held_out=few, batching={"mode": "Fixed", "size": 40, "reason": "test"})
    learn(quick, path, out)
    digest = result_of(out)["playbook"]["digest"]
    data = (out / "store" / "blobs" / digest[:2] / digest).read_bytes()
    ledger = AceMethod().from_json(data)
    assert ledger.to_json() == data and ledger.digest == digest
    shutil.rmtree(out)
    assert MODEL and os.path.exists(path)
