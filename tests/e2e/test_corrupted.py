"""Files of a run's folder are damaged: the same command ends with the same bytes, or refuses by name."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from e2e_support import ENDED, FORMULA, Manifest, Sims, combee
from killing import Killed, files_of, kept

pytestmark = pytest.mark.e2e

WORKERS = {"concurrency": 8, "hedgeBudget": 0}
FIXED = {"mode": "Fixed", "size": 12, "reason": "test"}
SEED, STORES, MANY_STORES = 18, 12, 1000
KILLS, MANY_KILLS = 3, 34
DAMAGES = ("flipped", "cut", "emptied", "deleted", "swapped")


@pytest.fixture
def run(sims: Sims, key: Path, manifest: Manifest, tmp_path: Path) -> Killed:
    """A run of two iterations, which has come to no end yet."""
    paths = []
    for name in ("train", "heldout"):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(b"".join((FORMULA / f"{name}.jsonl").read_bytes().splitlines(keepends=True)[:24]))
        paths.append(path)
    sim = sims.start("--key", key, "--time-scale", "0.005")
    return Killed(manifest(train=paths[0], held_out=paths[1], batching=FIXED, workers=WORKERS), sim, 8)


def damaged(out: Path, draw: random.Random) -> tuple[str, Path]:
    """Damage one file of a run's folder, of whatever kind, and return how and which."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(out.rglob("*")):
        if path.is_file() and path.name != "lock" and not path.name.startswith("report"):
            parts = path.relative_to(out).parts
            kind = "/".join(part for part in parts[:-1] if len(part) > 2) or path.name
            kinds.setdefault(kind, []).append(path)
    alike = kinds[draw.choice(sorted(kinds))]
    path, how = draw.choice(alike), draw.choice(DAMAGES)
    data, other = path.read_bytes(), draw.choice(alike).read_bytes()
    path.unlink()
    if how == "flipped" and data:
        at = draw.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :])
    elif how == "cut":
        path.write_bytes(data[: draw.randrange(len(data) + 1)])
    elif how == "emptied":
        path.write_bytes(b"")
    elif how == "swapped":
        path.write_bytes(other if len(alike) > 1 else data[::-1])
    return how, path


def ends_as(run: Killed, out: Path, wanted: tuple[object, ...]) -> str:
    """Go on with a damaged folder. It ends as the undisturbed run, or says which file it cannot go on
    without. A run that was over asks its store nothing: its texts are compared."""
    was_over = (out / "result.json").exists()
    done = combee(*run.words(out))
    said = done.stdout + done.stderr
    assert "bug in combee" not in said and "Traceback" not in said, said
    if done.returncode in ENDED:
        texts = [(out / name).read_bytes() for name in ("lessons.md", "prompt.md")]
        assert texts == wanted[1] if was_over and (out / "result.json").exists() else kept(out) == wanted, (
            said
        )
        return "mended" if "made again from the memo" in " ".join(said.split()) else "identical"
    assert done.returncode == 2 and done.stderr.startswith("error: ") and str(out) in done.stderr, said
    return f"refused: {done.stderr.strip()}"


def survives_damage(run: Killed, folder: Path, stores: int) -> Counter[str]:
    """Damage a file in each of so many copies of a finished run, and go on with it."""
    whole, draw, ends = folder / "whole", random.Random(f"corrupted {SEED}"), Counter[str]()
    run.to_the_end(whole)
    wanted = kept(whole)
    for number in range(stores):
        out = folder / f"out{number}"
        shutil.copytree(whole, out)
        if number % 2:  # the same command makes the result again from what lies there
            (out / "result.json").unlink()
        how, path = damaged(out, draw)
        end = ends_as(run, out, wanted)
        print(f"{number}: {how} {path.relative_to(out)}: {end}")
        ends[end.partition(":")[0]] += 1
        shutil.rmtree(out)
    print(f"seed {SEED}, {stores} stores: {dict(ends)}")
    return ends


def test_a_damaged_store_is_mended_or_named(run: Killed, tmp_path: Path) -> None:
    survives_damage(run, tmp_path, STORES)


@pytest.mark.long
@pytest.mark.timeout(7200, func_only=True)  # a thousand runs are gone on with
def test_a_thousand_damaged_stores(run: Killed, tmp_path: Path) -> None:
    survives_damage(run, tmp_path, MANY_STORES)


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


def test_what_the_memo_does_not_answer_is_named(run: Killed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run.to_the_end(out)
    shutil.rmtree(out / "store" / "memo")
    shutil.rmtree(out / "store" / "blobs")
    (out / "result.json").unlink()
    said = ends_as(run, out, ())
    assert "cannot be made again from the memo" in said and "copy of the store" in said, said


def survives_kills_and_damage(run: Killed, folder: Path, kills: int) -> None:
    """Kill each of so many runs at a moment, damage a file of what lies there, and go on. Where that is
    refused, a folder with the memo, as the refusal says, ends the same."""
    whole, draw, ends = folder / "whole", random.Random(f"killed and corrupted {SEED}"), Counter[str]()
    run.to_the_end(whole)
    wanted, files = kept(whole), files_of(whole)
    for number in range(kills):
        point, tries = draw.uniform(0.02, 0.95), 0
        while run.killed_at(out := folder / f"out{number}-{tries}", round(point * files)) is None:
            point, tries = point * 0.8, tries + 1
        how, path = damaged(out, draw)
        end = ends_as(run, out, wanted)
        print(f"{number}: at {100 * point:.0f} %, {how} {path.relative_to(out)}: {end}")
        ends[end.partition(":")[0]] += 1
        if end.startswith("refused"):
            anew = folder / f"anew{number}"
            if (out / "store" / "memo").exists():
                shutil.copytree(out / "store" / "memo", anew / "store" / "memo")
            assert ends_as(run, anew, wanted) == "identical"
    print(f"seed {SEED}, {kills} kills: {dict(ends)}")


def test_killed_and_damaged(run: Killed, tmp_path: Path) -> None:
    survives_kills_and_damage(run, tmp_path, KILLS)


@pytest.mark.long
@pytest.mark.timeout(3600, func_only=True)  # 34 runs, killed, damaged and gone on with
def test_killed_and_damaged_34_times(run: Killed, tmp_path: Path) -> None:
    survives_kills_and_damage(run, tmp_path, MANY_KILLS)
