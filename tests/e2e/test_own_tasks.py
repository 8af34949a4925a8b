"""Learning from traces, and for a class of one's own: the examples, on a laptop and as pods."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from desk import Desk, desk
from e2e_support import ROOT, Sims, process, result_of
from pods import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="pods are Linux processes")]

EXAMPLES = ROOT / "examples"
CODES = {
    "login": "IDN-2",
    "broken device": "HWR-1",
    "invoice": "FIN-7",
    "parcel": "LOG-4",
    "privacy": "LEG-3",
}
OWN_PATH = f"{ROOT / 'operator'}:{EXAMPLES / 'tickets'}"
FIXED = {
    "batching": {"mode": "Fixed", "size": 10, "reason": "test"},
    "workers": {"parallelism": 2, "concurrency": 8, "hedgeBudget": 0},
}


@pytest.fixture
def model() -> Iterator[Desk]:
    with desk() as running:
        yield running


def written(tmp_path: Path, example: str, **task: object) -> tuple[Path, Path]:
    """An example with batches of a fixed size: for a laptop, and with its data on a claim, for pods."""
    document = yaml.safe_load((EXAMPLES / example).read_text())
    document["spec"] |= FIXED
    document["spec"]["task"] |= task
    data = document["spec"]["task"]["data"]
    places = {}
    for split, source in data.items():
        path = EXAMPLES / source["uri"] if not Path(source["uri"]).is_absolute() else Path(source["uri"])
        data[split] = {"uri": str(path)}
        (tmp_path / f"{split}.jsonl").write_bytes(path.read_bytes())
        places[split] = {"pvc": {"claimName": "rows", "path": f"{split}.jsonl"}}
    laptop, pods = tmp_path / "laptop.yaml", tmp_path / "pods.yaml"
    laptop.write_text(yaml.safe_dump(document))
    document["spec"]["task"]["data"] = places
    pods.write_text(yaml.safe_dump(document))
    return laptop, pods


def stated(folder: Path) -> set[str]:
    """The topics whose team the playbook states rightly."""
    text = (folder / "lessons.md").read_text()
    return {topic for topic, code in CODES.items() if f"Tickets about {topic} go to {code}" in text}


def test_the_example_of_traces_teaches_without_a_rollout(model: Desk, tmp_path: Path) -> None:
    out = tmp_path / "out"
    document = yaml.safe_load((EXAMPLES / "traces.yaml").read_text())
    document["spec"]["task"]["data"]["train"]["uri"] = str(EXAMPLES / "data/traces/train.jsonl")
    document["spec"]["workers"] = {"hedgeBudget": 0}  # a slow answer is not asked for twice
    path = tmp_path / "traces.yaml"
    path.write_text(yaml.safe_dump(document))
    command = ["run", "-f", path, "-o", out, "--engine", f"main={model.url}"]
    done = process(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "learned a playbook that nothing has scored" in done.stdout
    assert stated(out) == set(CODES)
    result = result_of(out)
    assert result["outcome"] == "Learned"
    assert "scored on nothing" in result["reason"]
    assert result.get("heldOut") is None
    assert result["rollouts"] == 0
    assert set(model.asked) <= {"reflection", "playbook_entries", "merged_entries"}
    assert len({prompt for prompt in model.prompts if "# THE AGENT'S WORK" in prompt}) == 30
    asked = sum(model.asked.values())
    assert process(*command).returncode == 0
    assert process("replay", out, "-f", path).returncode == 0
    assert sum(model.asked.values()) == asked


def test_a_preview_of_traces_counts_no_rollout(tmp_path: Path) -> None:
    done = process("preview", "-f", EXAMPLES / "traces.yaml")
    assert done.returncode == 0, done.stderr
    assert "rollouts (map, replay, heldOut)   0\n" in done.stdout
    assert "scored on nothing" in done.stdout


def test_pods_learn_from_traces_what_a_laptop_learns(
    model: Desk, tmp_path: Path, clusters: list[Cluster]
) -> None:
    laptop, pods = written(tmp_path, "traces.yaml", traces={"partTokens": 500})
    out = tmp_path / "out"
    done = process("run", "-f", laptop, "-o", out, "--engine", f"main={model.url}")
    assert done.returncode == 0, done.stdout + done.stderr
    cluster = Cluster(tmp_path / "cluster", pods, model.url.replace("127.0.0.1", "localhost"))
    clusters.append(cluster)
    state = cluster.to_the_end()
    assert state.outcome is not None
    assert state.outcome.name == "Learned"
    assert state.best is not None
    assert state.best.artifact == result_of(out)["playbook"]["digest"]
    assert not [step for step in cluster.summaries.values() if step.kind == "evaluate"]


def test_a_long_trace_is_one_source_and_what_was_left_out_is_told(model: Desk, tmp_path: Path) -> None:
    lines = (EXAMPLES / "data/traces/train.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    filler = [
        {"role": "assistant", "content": f"I look at page {n}. " + "Nothing here. " * 60} for n in range(8)
    ]
    first["messages"][2:2] = filler
    train = tmp_path / "long.jsonl"
    train.write_text("\n".join([json.dumps(first), *lines[1:], "{not json"]) + "\n")
    laptop, _ = written(
        tmp_path, "traces.yaml", traces={"partTokens": 500}, data={"train": {"uri": str(train)}}
    )
    out = tmp_path / "out"
    done = process("run", "-f", laptop, "-o", out, "--engine", f"main={model.url}")
    assert done.returncode == 0, done.stdout + done.stderr
    told = result_of(out)["data"]["warnings"]
    assert any("1 of 31 rows are left out: line 31 (is not valid JSON" in said for said in told)
    assert any("1 of 30 traces are longer than 500 tokens and are read in" in said for said in told)
    assert "line 31" in done.stdout + done.stderr
    parts = [prompt for prompt in model.prompts if "# THE AGENT'S WORK, PART" in prompt]
    assert len(parts) == model.asked["reflection"] - 29 > 1
    entries = {entry["text"]: entry for entry in result_of(out)["entries"]}
    assert all(len(entry["sources"]) == len(set(entry["sources"])) for entry in entries.values())


def test_nothing_is_shown_that_one_trace_alone_says(model: Desk, tmp_path: Path) -> None:
    one = (EXAMPLES / "data/traces/train.jsonl").read_text().splitlines()[0]
    train = tmp_path / "one.jsonl"
    train.write_text(one + "\n")
    laptop, _ = written(tmp_path, "traces.yaml", data={"train": {"uri": str(train)}})
    done = process("run", "-f", laptop, "-o", tmp_path / "out", "--engine", f"main={model.url}")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "two traces support it" in done.stdout


def test_the_example_of_a_class_learns(model: Desk, tmp_path: Path, clusters: list[Cluster]) -> None:
    laptop, pods = written(tmp_path, "custom.yaml")
    out = tmp_path / "out"
    done = process("run", "-f", laptop, "-o", out, "--engine", f"main={model.url}", PYTHONPATH=OWN_PATH)
    assert done.returncode == 0, done.stdout + done.stderr
    assert stated(out) == set(CODES)
    assert result_of(out)["heldOut"]["gate"]["best"] > 0.9
    cluster = Cluster(
        tmp_path / "cluster",
        pods,
        model.url.replace("127.0.0.1", "localhost"),
        variables={"PYTHONPATH": OWN_PATH},
    )
    clusters.append(cluster)
    state = cluster.to_the_end()
    assert state.best is not None
    assert state.best.artifact == result_of(out)["playbook"]["digest"]


def test_a_class_that_is_not_there_is_told_on_a_laptop_and_is_a_pods_result(
    model: Desk, tmp_path: Path, clusters: list[Cluster]
) -> None:
    laptop, pods = written(tmp_path, "custom.yaml")
    said = "spec.task.custom.class: there is no module routing here"
    done = process("run", "-f", laptop, "-o", tmp_path / "out", "--engine", f"main={model.url}")
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "out").exists()
    cluster = Cluster(tmp_path / "cluster", pods, model.url)
    clusters.append(cluster)
    from combee.plan.decide import decide
    from combee.plan.types import Snapshot

    (profile,) = decide(
        spec=cluster.run.spec, who=cluster.who, state=cluster.state, snapshot=Snapshot(), elapsed_seconds=0.0
    ).start
    pod = cluster.start(profile)
    assert pod.wait() == 0
    assert pod.message is not None
    assert pod.message.error == "InvalidManifest"
    assert said in pod.message.message


def test_validating_does_not_load_a_class(tmp_path: Path) -> None:
    laptop, _ = written(tmp_path, "custom.yaml")
    assert process("validate", "-f", laptop).returncode == 0


def test_the_page_about_tasks_shows_the_example() -> None:
    """The code on the page is a task, too, and scores alike."""
    import re

    page = (ROOT / "docs/custom-tasks.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    shown: dict[str, object] = {}
    exec(compile(code, "docs/custom-tasks.md", "exec"), shown)
    task = shown["Routing"]()  # type: ignore[operator]
    rows = task.read_rows((EXAMPLES / "data/tickets/train.jsonl").read_bytes().splitlines(), "train.jsonl")
    assert len(rows.examples) == 40
    assert all(task.score(one.target.lower(), one).correct for one in rows.examples)


def test_a_run_on_rows_of_ones_own_is_rehearsed_with_a_key_by_their_fields(
    sims: Sims, tmp_path: Path
) -> None:
    key, rows = tmp_path / "key.json", EXAMPLES / "data/tickets"
    files = ["--data", rows / "train.jsonl", "--data", rows / "heldout.jsonl"]
    made = process("sim", "key", "--input", "text", "--target", "queue", *files, "-o", key)
    assert made.returncode == 0 and "72 answers, 5 topics" in made.stdout
    laptop, _ = written(tmp_path, "custom.yaml")
    url = sims.start("--key", key, "--time-scale", "0", "--served-model-name", "openai/gpt-oss-20b").url
    done = process(
        "run", "-f", laptop, "-o", tmp_path / "out", "--engine", f"main={url}", PYTHONPATH=OWN_PATH
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "learned a better playbook (simulated model)" in done.stdout
    assert "When a question uses " in (tmp_path / "out/lessons.md").read_text()
