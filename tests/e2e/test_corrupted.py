"""Files of a run's folder are damaged: the same command ends with the same bytes, or refuses by name."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from damaging import ends_as, goes_on, survives
from e2e_support import ENDED, FORMULA, Manifest, Sims, combee
from killing import Killed, files_of, kept

pytestmark = pytest.mark.e2e

WORKERS = {"concurrency": 8, "hedgeBudget": 0}
FIXED = {"mode": "Fixed", "size": 20, "reason": "test"}
SEED, STORES, MANY_STORES = 18, 24, 1000
PAIRS, MANY_PAIRS = 12, 100
KILLS, MANY_KILLS = 3, 34


@pytest.fixture
def run(sims: Sims, key: Path, manifest: Manifest, tmp_path: Path) -> Killed:
    """A run of two iterations that learns something, which has come to no end yet."""
    paths = []
    for name in ("train", "heldout"):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(b"".join((FORMULA / f"{name}.jsonl").read_bytes().splitlines(keepends=True)[:40]))
        paths.append(path)
    sim = sims.start("--key", key, "--time-scale", "0.005")
    return Killed(manifest(train=paths[0], held_out=paths[1], batching=FIXED, workers=WORKERS), sim, 8)


def survives_damage(run: Killed, folder: Path, stores: int, part: int = 0, files: int = 1) -> None:
    """Damage files in each of so many copies of a finished run, and go on with it. In three of four the same
    command makes the result again from what lies there."""
    whole, seed, ends = folder / "whole", f"corrupted {SEED} part {part}", Counter[str]()
    run.to_the_end(whole)
    wanted, other, draw = kept(whole), another(run, folder), random.Random(seed)
    for number in range(stores):
        out = folder / f"out{number}"
        subprocess.run(["cp", "-al", whole, out], check=True)
        if number % 4:
            (out / "result.json").unlink()
        print(f"{number}: ", end="")
        ends[survives(run, out, other, draw, wanted, files)] += 1
    print(f"seed {seed!r}, {stores} stores: {dict(ends)}")


def another(run: Killed, folder: Path) -> Path:
    """The folder of a run with another seed."""
    manifest = folder / "other.yaml"
    manifest.write_text(run.path.read_text().replace("seed: 7", "seed: 8"))
    assert manifest.read_text() != run.path.read_text()
    replace(run, path=manifest).to_the_end(folder / "other")
    return folder / "other"


def test_a_damaged_store_is_mended_or_named(run: Killed, tmp_path: Path) -> None:
    survives_damage(run, tmp_path, STORES)


def test_a_store_with_two_damaged_files_is_mended_or_one_is_named(run: Killed, tmp_path: Path) -> None:
    survives_damage(run, tmp_path, PAIRS, files=2)


@pytest.mark.long
@pytest.mark.timeout(3600, func_only=True)  # a hundred runs are gone on with
def test_a_hundred_stores_with_two_damaged_files(run: Killed, tmp_path: Path) -> None:
    survives_damage(run, tmp_path, MANY_PAIRS, part=1, files=2)


@pytest.mark.long
@pytest.mark.timeout(3600, func_only=True)  # with the next three, a thousand runs are gone on with
@pytest.mark.parametrize("part", range(4))
def test_a_thousand_damaged_stores(part: int, run: Killed, tmp_path: Path) -> None:
    survives_damage(run, tmp_path, MANY_STORES // 4, part)


def test_a_blob_is_made_again_from_the_memo(run: Killed, tmp_path: Path) -> None:
    """Nobody is asked, and a line says so."""
    out = tmp_path / "out"
    run.to_the_end(out)
    wanted, asked = kept(out), run.sim.answered()
    for path in sorted((out / "store" / "blobs").rglob("*")):
        if path.is_file():
            path.unlink()
    (out / "result.json").unlink()
    assert ends_as(run, out, wanted) == "mended"
    assert run.sim.answered() == asked, "a model was asked"


def test_what_somebody_edited_is_kept_and_named_and_nobody_is_asked(run: Killed, tmp_path: Path) -> None:
    """The run is over: it writes its files again without its server."""
    out = tmp_path / "out"
    run.to_the_end(out)
    names = ("prompt.md", "lessons.md", "rollouts.jsonl")
    wanted = [(out / name).read_bytes() for name in names]
    (out / "prompt.md").write_text("My own prompt.\n")
    (out / "lessons.md").unlink()
    run.sim.stop()
    done = combee(*run.words(out))
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode in ENDED, said
    assert [(out / name).read_bytes() for name in names] == wanted
    assert (out / "prompt.md.orig").read_text() == "My own prompt.\n" and "prompt.md.orig" in said
    assert len(list(out.glob("*.orig"))) == 1


def test_an_edited_text_keeps_no_blob_from_being_made_again(run: Killed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run.to_the_end(out)
    wanted = kept(out)
    (out / "lessons.md").write_text("My own lessons.\n")
    shutil.rmtree(out / "store" / "blobs")
    (out / "result.json").unlink()
    assert ends_as(run, out, wanted) == "mended"
    assert (out / "lessons.md.orig").read_text() == "My own lessons.\n"


@pytest.mark.parametrize("answers", ["all", "some"])
def test_what_the_memo_does_not_answer_is_named_with_a_command_that_works(
    answers: str, run: Killed, tmp_path: Path
) -> None:
    out = tmp_path / "a run"
    run.to_the_end(out)
    wanted, memo = kept(out), out / "store" / "memo"
    for folder in (
        [memo] if answers == "all" else sorted(path for path in memo.iterdir() if path.is_dir())[:9]
    ):
        shutil.rmtree(folder)
    shutil.rmtree(out / "store" / "blobs")
    (out / "result.json").unlink()
    said = ends_as(run, out, ())
    goes_on(run, said, wanted)
    assert "cannot be made again" in said and "copy of the folder" in said, said


def test_a_damaged_run_json_does_not_make_another_runs_folder_this_ones(run: Killed, tmp_path: Path) -> None:
    """Neither another manifest's nor, where nothing bears it out, a stranger's."""
    out = another(run, tmp_path)
    for path in (out / "run.json", out / "result.json"):
        path.unlink()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert "not a run's" in ends_as(run, out, ())
    (out / "run.json").write_text("{")
    assert "cannot be made again" in ends_as(run, out, ())
    (out / "run.json").unlink()
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def survives_kills_and_damage(run: Killed, folder: Path, kills: int) -> None:
    """Kill each of so many runs at a moment, damage a file of what lies there, and go on."""
    whole, draw, ends = folder / "whole", random.Random(f"killed and corrupted {SEED}"), Counter[str]()
    run.to_the_end(whole)
    other = another(run, folder)
    wanted, files = kept(whole), files_of(whole)
    for number in range(kills):
        point, tries = draw.uniform(0.02, 0.95), 0
        while run.killed_at(out := folder / f"out{number}-{tries}", round(point * files)) is None:
            point, tries = point * 0.8, tries + 1
        print(f"{number}: at {100 * point:.0f} %, ", end="")
        ends[survives(run, out, other, draw, wanted)] += 1
    print(f"seed {SEED}, {kills} kills: {dict(ends)}")


def test_killed_and_damaged(run: Killed, tmp_path: Path) -> None:
    survives_kills_and_damage(run, tmp_path, KILLS)


@pytest.mark.long
@pytest.mark.timeout(3600, func_only=True)  # 34 runs, killed, damaged and gone on with
def test_killed_and_damaged_34_times(run: Killed, tmp_path: Path) -> None:
    survives_kills_and_damage(run, tmp_path, MANY_KILLS)
