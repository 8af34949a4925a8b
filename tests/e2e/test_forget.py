"""``combee playbook forget``: what came from a row is gone, and that is proven (simulated model)."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e_support import ENDED, FORMULA, MODEL, Sim, Sims, combee, environment

from combee.plan.types import StepSummary
from waiting import wait_until
from warm import Program

pytestmark = pytest.mark.e2e

SEED = 4
"""of the sources that are drawn."""
ROWS, HELD_OUT = 24, 40
BATCH = {"mode": "Fixed", "size": 8, "reason": "test"}


def rows_of(source: Path, count: int, to: Path, mark: str) -> Path:
    """The first rows of a file, each with an id."""
    rows = [json.loads(line) for line in source.read_bytes().splitlines()[:count]]
    lines = (json.dumps(row | {"id": f"{mark}{number}"}) for number, row in enumerate(rows))
    to.write_text("".join(f"{line}\n" for line in lines))
    return to


def without(path: Path, row: str) -> Path:
    """A copy of a file in which the row is not."""
    copy = path.with_name(f"{path.stem}-without-{row}.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    copy.write_text("".join(line for line in lines if json.loads(line)["id"] != row))
    return copy


def learned(out: Path) -> dict[str | int, bytes | str]:
    """All that a run learned: its files, and the artifact and the text after each iteration."""
    files = {name: (out / name).read_bytes() for name in ("prompt.md", "artifact.json", "lessons.md")}
    return files | dict(enumerate(artifacts(out)))


def artifacts(out: Path) -> list[str]:
    """The digests of the artifact and of its text after each iteration."""
    done = [StepSummary.decode(path.read_bytes()) for path in sorted((out / "steps").glob("*-finish-*.json"))]
    return [f"{one.outputs['artifact']} {one.outputs['playbook']}" for one in done if one is not None]


class Learned:
    """A run that learned from a few rows, and a model to learn anew with."""

    def __init__(self, folder: Path, sim: Sim, **spec: Any) -> None:
        self.folder, self.sim = folder, sim
        self.data = {
            "train": rows_of(FORMULA / "train.jsonl", ROWS, folder / "train.jsonl", "t"),
            "heldOut": rows_of(FORMULA / "heldout.jsonl", HELD_OUT, folder / "heldout.jsonl", "h"),
        }
        model = {"engineRef": {"name": "main"}}
        data = {name: {"uri": str(path)} for name, path in self.data.items()}
        self.document: dict[str, Any] = {
            "apiVersion": "combee.dev/v1alpha1",
            "kind": "PromptLearningRun",
            "metadata": {"name": "run"},
            "spec": {
                "task": {"type": "Formula", "data": data},
                "method": {"type": "ACE"},
                "engines": [{"name": "main", "vllm": {"model": MODEL}}],
                "models": {"task": model, "proposer": model},
                "batching": BATCH,
                "seed": 7,
                **spec,
            },
        }
        self.manifest, self.out = self.written(), folder / "first"
        self.run(self.manifest, self.out)

    def written(self, **forgotten: list[str]) -> Path:
        """The manifest, with rows that are forgotten by split."""
        document = json.loads(json.dumps(self.document))
        for split, ids in forgotten.items():
            document["spec"]["task"]["data"][split]["forgotten"] = ids
        path = self.folder / f"{'-'.join(map(str, [*forgotten, *forgotten.values()])) or 'run'}.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    def run(self, manifest: Path, out: Path, *flags: str) -> Path:
        done = combee("run", "-f", manifest, "-o", out, "--engine", f"main={self.sim.url}", *flags)
        assert done.returncode in ENDED, done.stderr
        return out

    def never(self, split: str, row: str, out: Path) -> dict[str | int, bytes | str]:
        """What a run learns that has no record to go by, and whose file does not have the row."""
        flags = ("--data", f"{split}={without(self.data[split], row)}")
        return learned(self.run(self.written(**{split: [row]}), out, *flags))

    def words(self, source: str, out: Path, manifest: Path | None = None) -> list[str | Path]:
        """The command that forgets a source."""
        words = ["playbook", "forget", self.out, "--source", source, "-f", manifest or self.manifest]
        return [*words, "-o", out, "--engine", f"main={self.sim.url}"]

    def forget(self, source: str, out: Path) -> str:
        """What it says."""
        done = combee(*self.words(source, out))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def first(quick: Sim, tmp_path: Path) -> Learned:
    return Learned(tmp_path, quick)


@pytest.mark.parametrize("sources", [5, pytest.param(20, marks=pytest.mark.long)])
def test_sources_drawn_at_random_are_as_if_they_had_never_been(
    first: Learned, tmp_path: Path, sources: int
) -> None:
    """To the byte what a run without the row and without any record learns; the model is simulated."""
    print(f"seed {SEED}")
    every = [("train", f"t{n}") for n in range(ROWS)] + [("heldOut", f"h{n}") for n in range(HELD_OUT)]
    drawn = random.Random(SEED).sample(every, sources)
    assert {split for split, _ in drawn} == {"train", "heldOut"}
    texts = set()
    for split, row in drawn:
        said = first.forget(row, tmp_path / f"anew-{row}")
        assert f"row {row} of {split}: iteration " in said and "proven: " in said, said
        anew = learned(tmp_path / f"anew-{row}")
        assert anew == first.never(split, row, tmp_path / f"never-{row}"), f"{split} {row}, seed {SEED}"
        assert f'{{"id": "{row}"' not in repr(anew) and f"{row}@" not in repr(anew)
        texts.add(anew["prompt.md"])
    assert len(texts - {b""}) > 1, "what is learned depends on the rows"


def test_before_the_row_all_is_as_it_was_and_nobody_is_asked(first: Learned, tmp_path: Path) -> None:
    """The other rows keep their places, and the new folder has no answer that was not asked for."""
    plans = len(list((first.out / "plans").glob("i*.json")))
    heads = {
        f"t{n}": combee(*first.words(f"t{n}", tmp_path / "anew"), "--dry-run").stdout for n in range(ROWS)
    }
    row, head = next((row, head) for row, head in heads.items() if f"iteration {plans} of {plans}" in head)
    known, most = map(int, re.findall(r"(\d+) calls?", head))
    before = first.sim.answered()
    first.forget(row, tmp_path / "anew")
    asked = first.sim.answered() - before
    had, has = artifacts(first.out), artifacts(tmp_path / "anew")
    assert len(had) == len(has) == plans > 1 and had[:-1] == has[:-1]
    assert known > 0 and sum(asked.values()) <= most
    memo, record = (
        {path.name for path in (out / "store" / "memo").rglob("*") if path.is_file()}
        for out in (tmp_path / "anew", first.out)
    )
    assert len(memo - record) <= sum(asked.values()) and record - memo


def test_it_says_before_what_it_takes_and_asks_nobody(first: Learned, tmp_path: Path) -> None:
    before = first.sim.said()
    done = combee(*first.words("t5@0", tmp_path / "anew"), "--dry-run")
    assert (done.returncode, first.sim.said()) == (0, before) and not (tmp_path / "anew").exists()
    assert done.stdout.startswith("row t5 of train: iteration ")


def test_what_is_forgotten_stays_forgotten(first: Learned, tmp_path: Path) -> None:
    """Forgetting one row after another is learning without both; nothing is forgotten twice."""
    first.out = first.run(first.written(train=["t3"]), tmp_path / "without-t3")
    words = first.words("t4", tmp_path / "both", first.written(train=["t3"]))
    done = combee(*words)
    assert done.returncode == 0 and 'forgotten: ["t3", "t4"]' in done.stdout, done.stderr
    assert learned(tmp_path / "both") == learned(
        first.run(first.written(train=["t3", "t4"]), tmp_path / "at-once")
    )
    again = combee(*first.words("t3", tmp_path / "again", first.written(train=["t3"])))
    assert again.returncode == 2 and "row t3 of train is forgotten already" in again.stderr


def test_a_source_that_is_none_and_a_run_that_is_not_over_are_refused(first: Learned, tmp_path: Path) -> None:
    done = combee(*first.words("t77", tmp_path / "anew"))
    assert done.returncode == 2 and not (tmp_path / "anew").exists()
    assert "no row or trace t77" in done.stderr and "Give the id of a row" in done.stderr
    other = combee(*first.words("t1", first.out))
    assert other.returncode == 2 and "a run of another manifest" in other.stderr
    (first.out / "result.json").unlink()
    (first.out / "SHA256SUMS").unlink()
    done = combee(*first.words("t1", tmp_path / "anew"))
    assert done.returncode == 2 and "the run is not over" in done.stderr


def test_a_proof_that_fails_says_so(first: Learned, tmp_path: Path) -> None:
    first.forget("t3", tmp_path / "anew")
    (tmp_path / "anew" / "prompt.md").write_text("Divide.\n")
    (tmp_path / "anew" / "SHA256SUMS").unlink()
    done = combee(*first.words("t3", tmp_path / "anew"))
    assert done.returncode == 5 and "not proven" in done.stdout


def test_a_kill_in_the_middle_changes_nothing(sims: Sims, key: Path, first: Learned, tmp_path: Path) -> None:
    slow = sims.start("--key", key, "--time-scale", "0.02")
    anew = tmp_path / "anew"
    words = ["combee", *map(str, first.words("t3", anew))]
    words[-1] = f"main={slow.url}"
    began = Program(words, environment(), os.devnull, tmp_path / "killed.err")
    wait_until("an iteration without the row", (anew / "plans" / "i001.json").exists, began)
    began.kill()
    began.wait(60)
    assert not (anew / "result.json").exists()
    assert "proven: " in first.forget("t3", anew)
    assert learned(anew) == first.never("train", "t3", tmp_path / "never")
