"""What is wrong is said in one line with its fix, exit code 2, before anything is written or spent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from checks import bytes_of, refused
from e2e_support import ENDED, FORMULA, MODEL, Manifest, Sim, Sims, combee

pytestmark = pytest.mark.e2e

NOWHERE = "http://127.0.0.1:9/v1"
"""Nothing listens there: what is refused before the preflight needs no server."""
GOOD = b'{"context": "What is 1 plus %d?", "target": "%d"}\n'
FIXED = {"mode": "Fixed", "size": 20, "reason": "test"}


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    """One simulated model for all of this file; it wants a key."""
    running = Sims(tmp_path_factory.mktemp("sims"))
    yield running.start("--time-scale", "0", "--api-key", "right-key")
    for one in running.started:
        one.stop()


@pytest.fixture
def held_out(tmp_path: Path) -> Path:
    path = tmp_path / "heldout.jsonl"
    path.write_bytes(b"".join((FORMULA / "heldout.jsonl").read_bytes().splitlines(keepends=True)[:30]))
    return path


def run(path: Path, out: Path, *flags: str | Path, url: str = NOWHERE, **extra: str):
    return combee("run", "-f", path, "-o", out, "--engine", f"main={url}", *flags, **extra)


def secret_model(url: str, model: str = MODEL) -> dict[str, object]:
    """spec.models of a run that talks to an endpoint with a key."""
    ref = {"name": "llm", "key": "token"}
    role = {"endpoint": {"url": url, "model": model, "apiKeySecretRef": ref}}
    return {"engines": [], "models": {"task": role, "proposer": role}}


DATA = {
    "empty": (b"", ("train.jsonl", "no row")),
    "blank": (b"\n \n", ("train.jsonl", "no row")),
    "no-target": (GOOD % (1, 2) + b'{"context": "q"}\n', ("train.jsonl:2", "no target", "'context'")),
    "target-is-no-number": (
        GOOD % (1, 2) + b'{"context": "q", "target": "a lot"}\n',
        ("train.jsonl:2", "target", "number"),
    ),
    "not-utf-8": (GOOD % (1, 2) + b'{"context": "\xff", "target": "1"}\n', ("train.jsonl:2", "UTF-8")),
    "not-json": (b"context,target\n", ("train.jsonl:1", "not valid JSON", "one JSON object a line")),
    "10-mb-row": (
        GOOD % (1, 2) + b'{"context": "' + b"x" * 10_000_000 + b'", "target": "1"}\n',
        ("train.jsonl:2", "longer than", "Shorten"),
    ),
    "conflicting-ids": (
        b'{"id": "a", "context": "q", "target": "1"}\n{"id": "a", "context": "r", "target": "1"}\n',
        ("train.jsonl:2", "line 1", "id of its own"),
    ),
}


@pytest.mark.parametrize("case", DATA)
def test_a_row_or_a_file_of_data(case: str, manifest: Manifest, held_out: Path, tmp_path: Path) -> None:
    content, words = DATA[case]
    train, out = tmp_path / "train.jsonl", tmp_path / "out"
    train.write_bytes(content)
    done = run(manifest(train=train, held_out=held_out), out)
    refused(done, *words)
    assert not out.exists() and "xxxx" not in done.stderr


def test_a_file_that_is_not_there(manifest: Manifest, tmp_path: Path) -> None:
    refused(run(tmp_path / "nope.yaml", tmp_path / "out"), "nope.yaml", "No such file", "-f")
    refused(run(manifest(train=tmp_path / "nope.jsonl"), tmp_path / "out"), "nope.jsonl", "no such file")
    refused(run(manifest(train=tmp_path), tmp_path / "out"), "Is a directory")
    assert not (tmp_path / "out").exists()


def test_held_out_rows_that_are_in_train_are_a_leak(
    manifest: Manifest, held_out: Path, tmp_path: Path
) -> None:
    train = tmp_path / "train.jsonl"
    leaked = held_out.read_bytes().splitlines(keepends=True)[5:8]
    train.write_bytes(GOOD % (1, 2) + b"".join(leaked))
    done = run(manifest(train=train, held_out=held_out), tmp_path / "out")
    refused(done, "heldOut", "3 of 30 rows are in train", "Remove", "row 6")
    assert not (tmp_path / "out").exists()


def test_a_held_out_that_can_never_show_a_gain(manifest: Manifest, rows, tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_bytes(b"".join(GOOD % (n, n + 1) for n in range(6)))
    done = run(manifest(train=rows(20), held_out=few), tmp_path / "out")
    refused(done, "spec.task.data.heldOut", "3 gate rows", "at least 12")
    assert not (tmp_path / "out").exists()


FLAGS = {
    "engine-without-url": (["--engine", "main"], ("--engine", "NAME=URL")),
    "engine-unknown": (["--engine", f"other={NOWHERE}"], ("'other'", "main")),
    "engine-is-no-url": (["--engine", "main=127.0.0.1:9"], ("--engine main", "http://")),
    "engine-has-no-port": (["--engine", "main=http://127.0.0.1:x/v1"], ("--engine main", "not a URL")),
    "secret-in-the-open": (["--secret", "llm/token=sk-in-the-open"], ("--secret llm/token", "=env:VARIABLE")),
    "secret-alone": (["--secret", "sk-in-the-open"], ("--secret", "NAME/KEY=env:VARIABLE")),
    "data-unknown": (["--data", "dev=x.jsonl"], ("--data dev", "train, heldOut")),
    "data-elsewhere": (["--data", "train=s3://bucket/train.jsonl"], ("s3", "local copy")),
    "flag-unknown": (["--frobnicate"], ("--frobnicate", "run --help")),
    "plans-absent": (["--plans", "nope"], ("nope", "i000.json", "of an earlier run")),
}


@pytest.mark.parametrize("case", FLAGS)
def test_a_flag(case: str, manifest: Manifest, held_out: Path, rows, tmp_path: Path) -> None:
    flags, words = FLAGS[case]
    path = manifest(train=rows(20), held_out=held_out)
    given = flags if "--engine" in flags else [*flags, "--engine", f"main={NOWHERE}"]
    done = combee("run", "-f", path, "-o", tmp_path / "out", *given, cwd=tmp_path)
    refused(done, *words)
    assert not (tmp_path / "out").exists() and "sk-in-the-open" not in done.stderr


def test_a_missing_engine_or_key_names_the_flag(manifest: Manifest, held_out: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused(combee("run", "-f", manifest(held_out=held_out), "-o", out), "engineRef", "--engine main=URL")
    path = manifest(held_out=held_out, **secret_model(NOWHERE))
    refused(combee("run", "-f", path, "-o", out), "apiKeySecretRef", "--secret llm/token=env:")
    flags = ("--secret", "llm/token=env:COMBEE_TEST_KEY")
    refused(combee("run", "-f", path, "-o", out, *flags), "COMBEE_TEST_KEY", "not set", "export")
    bad = combee("run", "-f", path, "-o", out, *flags, COMBEE_TEST_KEY="sk-secret\nline")
    refused(bad, "COMBEE_TEST_KEY", "not a key")
    assert not out.exists() and "sk-secret" not in bad.stderr


@pytest.mark.parametrize(
    "damage", ["{}", "not json", '{"version": 1}', '{"version": 99}', "\x00\xff"], ids=range(5)
)
def test_a_damaged_folder_of_plans(
    damage: str, manifest: Manifest, held_out: Path, rows, tmp_path: Path
) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    (plans / "i000.json").write_bytes(damage.encode("latin-1"))
    done = run(manifest(train=rows(20), held_out=held_out), tmp_path / "out", "--plans", plans)
    refused(done, "i000.json", "version" if "99" in damage else "earlier run")
    assert not (tmp_path / "out").exists()


def test_all_problems_at_once(manifest: Manifest, tmp_path: Path) -> None:
    path = manifest(batching={"mode": "Fixd"}, stopping={"patience": -1}, colour="red")
    refused(run(path, tmp_path / "out"), "run.yaml:")
    done = combee("validate", "-f", path)
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and all(line.startswith("error: ") for line in lines)
    for word in ("spec.batching.mode", "spec.stopping.patience", "spec.colour"):
        assert sum(word in line for line in lines) == 1, done.stderr
    assert not (tmp_path / "out").exists()


def test_an_endpoint_that_is_not_there_is_said_at_once(
    manifest: Manifest, held_out: Path, rows, tmp_path: Path
) -> None:
    done = run(manifest(train=rows(20), held_out=held_out), tmp_path / "out")
    # A call that is made again and again says how often; that nobody waits meanwhile is tested beside the
    # client.
    refused(done, "models.task (127.0.0.1:9)", "cannot be reached", f"listening at {NOWHERE}?")
    assert not (tmp_path / "out").exists()


def test_a_wrong_key_and_an_unknown_model(
    sim: Sim, manifest: Manifest, held_out: Path, rows, tmp_path: Path
) -> None:
    data = {"train": rows(20), "held_out": held_out}
    flags = ("--secret", "llm/token=env:COMBEE_TEST_KEY")
    path = manifest(**data, **secret_model(sim.url))
    done = combee("run", "-f", path, "-o", tmp_path / "out", *flags, COMBEE_TEST_KEY="wrong-key")
    refused(done, "key is refused (401)", "--secret llm/token=env:COMBEE_TEST_KEY")
    assert "wrong-key" not in done.stdout + done.stderr
    refused(run(manifest(**data), tmp_path / "out", url=sim.url), "an API key is needed (401)", "--secret")
    path = manifest(**data, **secret_model(sim.url, "no/such-model"))
    done = combee("run", "-f", path, "-o", tmp_path / "out", *flags, COMBEE_TEST_KEY="right-key")
    refused(done, "'no/such-model' is not served", f"It serves: {MODEL}")
    assert not (tmp_path / "out").exists()


def test_with_json_the_error_is_an_event_too(manifest: Manifest, tmp_path: Path) -> None:
    from combee.report.events import EVENTS

    for path in (manifest(train=tmp_path / "nope.jsonl"), manifest()):
        done = run(path, tmp_path / "out", "--json")
        assert done.returncode == 2
        event = EVENTS.validate_json(done.stdout.strip())
        assert event.event == "error" and json.loads(done.stdout)["fix"]


def test_preview_spends_nothing_and_needs_no_server(manifest: Manifest, rows, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    path = manifest(train=rows(60))
    done = combee("preview", "-f", path, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    assert "smallest detectable gain" in done.stdout and "Nothing was spent" in done.stdout
    assert set(tmp_path.iterdir()) - before == {path, tmp_path / "train60.jsonl"}
    shown = json.loads(combee("preview", "-f", path, "--json").stdout)
    assert sum(batch["size"] for batch in shown["batches"]) == 60


@pytest.fixture(scope="module")
def learnt(sim: Sim, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path, dict[str, str]]:
    """A manifest, a folder in which it was learnt, and the environment of the run."""
    home = tmp_path_factory.mktemp("learnt")
    for name, count in (("train", 20), ("heldout", 30)):
        lines = (FORMULA / f"{name}.jsonl").read_bytes().splitlines(keepends=True)
        (home / f"{name}.jsonl").write_bytes(b"".join(lines[:count]))
    data = {"train": {"uri": "train.jsonl"}, "heldOut": {"uri": "heldout.jsonl"}}
    document = {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": "used"},
        "spec": {
            "task": {"type": "Formula", "data": data},
            "method": {"type": "ACE"},
            "batching": FIXED,
            **secret_model(sim.url),
        },
    }
    (home / "run.yaml").write_text(yaml.safe_dump(document))
    key = {"COMBEE_TEST_KEY": "right-key"}
    done = combee("run", "-f", home / "run.yaml", "-o", home / "out", *KEY_FLAGS, **key)
    assert done.returncode in ENDED, done.stderr
    return document, home, key


KEY_FLAGS = ("--secret", "llm/token=env:COMBEE_TEST_KEY")


def test_another_manifest_or_other_data_on_a_used_folder(learnt, tmp_path: Path) -> None:
    document, home, key = learnt
    out, before = home / "out", bytes_of(home / "out")
    other = home / "other.yaml"
    other.write_text(yaml.safe_dump({**document, "spec": {**document["spec"], "seed": 8}}))
    done = combee("run", "-f", other, "-o", out, *KEY_FLAGS, **key)
    refused(done, str(out), "another manifest", "-o")
    for split in ("train", "heldOut"):
        moved = tmp_path / "moved.jsonl"
        moved.write_bytes((home / f"{split.lower()}.jsonl").read_bytes() + GOOD % (7, 8))
        flags = (*KEY_FLAGS, "--data", f"{split}={moved}")
        done = combee("run", "-f", home / "run.yaml", "-o", out, *flags, **key)
        refused(done, "HeldOutMoved", split, "Restore the data")
    assert bytes_of(out) == before


@pytest.mark.parametrize("names", [["thesis.tex"], ["lock"], ["lock", "run.json"], ["store"]], ids="-".join)
def test_a_folder_that_is_not_a_runs(names: list[str], learnt, tmp_path: Path) -> None:
    _, home, key = learnt
    out = tmp_path / "mine"
    out.mkdir()
    for name in names:
        (out / name).write_text("three years of work")
    before = bytes_of(out)
    done = combee("run", "-f", home / "run.yaml", "-o", out, *KEY_FLAGS, **key)
    refused(done, str(out), "-o", "damaged" if "run.json" in names else "not a run's")
    assert bytes_of(out) == before
    refused(
        combee("run", "-f", home / "run.yaml", "-o", out / names[0], *KEY_FLAGS, **key),
        "cannot be used as an output folder",
    )
    assert bytes_of(out) == before


def test_gc_of_what_is_not_a_runs_folder(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mine").write_text("three years of work")
    before = bytes_of(tmp_path)
    refused(combee("gc", tmp_path, "--yes"), "not the folder of a run", "combee run -o DIR")
    assert bytes_of(tmp_path) == before
