"""combee compare through the real command line, against simulated models in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.real import main as by_the_clock
from e2e_support import Manifest, Sims, combee, environment, process

from warm import Program

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

Rows = Callable[[int], Path]


@dataclass
class Ended:
    """The process of a cell, which has ended: what is asked of one that asyncio started."""

    returncode: int
    errors: bytes

    async def communicate(self) -> tuple[bytes, bytes]:
        return b"", self.errors


Compare = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compare:
    """Runs it with cells that are forked; one test has it start them itself."""

    async def forked(*words: str, **_: object) -> Ended:
        assert words[1:4] == ("-m", "combee.cli.main", "run")
        errors = tmp_path / f"{Path(words[words.index('-o') + 1]).name}.err"
        cell = Program(["combee", *words[3:]], environment(), os.devnull, errors)
        while cell.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return Ended(cell.wait(), errors.read_bytes())

    monkeypatch.setattr(asyncio, "create_subprocess_exec", forked)
    return lambda *words: combee("compare", *words)


def read(out: Path) -> dict:
    return json.loads((out / "compare.json").read_text())


def test_two_seeds_on_equal_terms_and_the_same_command_asks_nothing_again(
    compare: Compare,
    sims: Sims,
    key: Path,
    manifest: Manifest,
    rows: Rows,
    few: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """40 rows, 2 seeds, each with a model of its own."""
    servers = [sims.start("--key", key, "--time-scale", "0", "--seed", seed) for seed in ("0", "1")]
    engines = [word for sim in servers for word in ("--engine", f"main={sim.url}")]
    # What a hedge leaves behind may be answered after the comparison is over.
    held = tmp_path / "held.jsonl"
    given = map(json.loads, few.read_text().splitlines())
    held.write_text("".join(json.dumps({**row, "id": f"h-{n}"}) + "\n" for n, row in enumerate(given)))
    path = manifest(name="formula", train=rows(40), held_out=held, workers={"hedgeBudget": 0})
    out = tmp_path / "out"
    words = ("-f", path, "-o", out, "--seeds", "2", "--jobs", "2", *engines)
    strategies = ("--strategies", "Sequential,Naive,ParallelScan", "--sizes", "40")

    done = compare(*words, *strategies)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    result = read(out)
    assert result["simulated"] and "simulated model" in done.stdout
    by_name = {row["strategy"]: row for row in result["rows"]}
    assert list(by_name) == ["Sequential", "Sequential, 8 at once", "Naive@40", "ParallelScan@40"]
    scan, naive, ahead = (by_name[name] for name in ("ParallelScan@40", "Naive@40", "Sequential, 8 at once"))
    assert ahead["heldOut"] == by_name["Sequential"]["heldOut"] and ahead["difference"] is None
    assert 1 < ahead["speedUp"]["mean"] <= 8 and ahead["calls"] > by_name["Sequential"]["calls"]
    # Two seeds show of no loop that it is worse, so that the fastest is the opponent.
    assert scan["overPlain"]["strategy"] == "Naive@40" and naive["overPlain"] is None
    assert scan["difference"]["byExample"]["n"] == 2 * 20
    assert scan["difference"]["overSeeds"]["n"] == 2
    assert scan["lessons"]["carried"] > 1.5 * naive["lessons"]["carried"]
    assert scan["speedUp"]["mean"] > 5
    for name in ("compare.md", "compare.html", "plot-formula.svg", "plot-formula.png"):
        assert (out / name).stat().st_size > 1000

    before = [sum(sim.answered().values()) for sim in servers]
    kept = (out / "compare.json").read_bytes()
    again = compare(*words, *strategies)
    assert again.returncode == 0, again.stderr
    assert [sum(sim.answered().values()) for sim in servers] == before
    assert (out / "compare.json").read_bytes() == kept

    capsys.readouterr()
    named = ["--strategies", "Sequential,Naive@40,ParallelScan@40", "--seeds", "0,1"]
    assert by_the_clock([str(path), str(out), str(held), *named]) == 0
    lines = capsys.readouterr().out.splitlines()
    told = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line]
    whole = {line[0]: line for line in told if len(line) == 8 and "→" in line[1]}
    runs = [line for line in told if len(line) == 10 and "→" in line[3]]
    replies = [line for line in told if len(line) == 7 and line[2] == "map"]
    assert whole["Sequential"][7] == "1.0x (1.0 to 1.0)"
    assert set(whole) == set(by_name) - {"Sequential, 8 at once"}, "by the clock stands what was run"
    for name in whole:
        row = by_name[name]
        assert int(whole[name][4]) == round(row["calls"])
        assert [line[1] for line in runs if line[0] == name] == ["0", "1"]
        right = next(line[1:] for line in told if line[0] == f"{name}: right answers")
        counts = [tuple(map(int, cell.split(" of "))) for cell in right]
        assert sum(asked for _, asked in counts) == 2 * 20
        assert sum(right for right, _ in counts) == pytest.approx(2 * 20 * row["heldOut"]["mean"])
    assert replies
    assert all(int(used) + int(cut) + int(unread) == int(n) for *_, n, used, cut, unread in replies)

    # A wider comparison in the same folder would score heldOut at other counts: that is another one.
    other = compare(*words, "--strategies", "ParallelScan@20")
    assert other.returncode == 0, other.stderr
    refused = compare(*words, "--strategies", "ParallelScan@40", "--evaluate-every", "10")
    assert refused.returncode == 2 and "another manifest" in refused.stderr


def test_modelled_time_does_not_depend_on_how_fast_the_server_was(
    compare: Compare, sims: Sims, key: Path, manifest: Manifest, rows: Rows, few: Path, tmp_path: Path
) -> None:
    seconds = []
    for scale in ("0", "0.05"):
        sim = sims.start("--key", key, "--time-scale", scale)
        path, out = manifest(name="formula", train=rows(20), held_out=few), tmp_path / f"out{scale}"
        done = compare(
            "-f", path, "-o", out, "--strategies", "ParallelScan@20", "--seeds", "1",
            "--engine", f"main={sim.url}",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        seconds.append(read(out)["rows"][0]["modelledSeconds"])
    assert seconds[0] == pytest.approx(seconds[1], rel=0.02)


def test_a_cell_that_finds_nothing_better_still_has_its_score_on_gate(
    sims: Sims, manifest: Manifest, rows: Rows, few: Path, tmp_path: Path
) -> None:
    """Without a key the model answers nothing right, so no playbook can score above the start."""
    sim = sims.start("--time-scale", "0")
    path, out = manifest(name="formula", train=rows(8), held_out=few), tmp_path / "out"
    done = process(
        "compare", "-f", path, "-o", out, "--strategies", "Sequential,Naive@8", "--seeds", "1",
        "--engine", f"main={sim.url}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (naive,) = (row for row in read(out)["rows"] if row["strategy"] == "Naive@8")
    assert naive["heldOut"]["mean"] == naive["heldOut"]["start"]
    assert naive["difference"]["byExample"]["n"] == 20


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--strategies", "Greedy"), "--strategies"),
        (("--seeds", "none"), "--seeds"),
        (("--sizes", "a"), "--sizes"),
        (("--engine", "other=http://127.0.0.1:9/v1"), "--engine other"),
    ],
)
def test_a_mistake_is_found_before_any_work(
    flags: tuple[str, ...], said: str, manifest: Manifest, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = combee("compare", "-f", manifest(), "-o", out, "--engine", "main=http://127.0.0.1:9/v1", *flags)
    assert done.returncode == 2 and said in done.stderr
    assert not out.exists()
