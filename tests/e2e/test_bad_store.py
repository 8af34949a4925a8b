"""Folders and disks that do not take writes, and runs that are interrupted: nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from checks import bytes_of, refused
from e2e_support import COMBEE, ENDED, FORMULA, Manifest, Sim, Sims, combee, environment, result_of

from waiting import wait_until
from warm import Program

pytestmark = pytest.mark.e2e

Start, StartPiped = Callable[..., Program], Callable[..., subprocess.Popen[str]]
SLOTS = 8


@pytest.fixture(scope="module")
def sim(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    """One simulated model for all of this file."""
    running = Sims(tmp_path_factory.mktemp("sims"))
    yield running.start("--key", key, "--time-scale", "0.01")
    for one in running.started:
        one.stop()


@pytest.fixture(scope="module")
def slow(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    """Another one, so slow that no run is over before whoever interrupts it has come."""
    running = Sims(tmp_path_factory.mktemp("slow"))
    yield running.start("--key", key, "--time-scale", "0.1")
    for one in running.started:
        one.stop()


@pytest.fixture
def path(manifest: Manifest, rows, tmp_path: Path) -> Path:
    """A manifest of two iterations on few rows."""
    held_out = tmp_path / "heldout.jsonl"
    held_out.write_bytes(b"".join((FORMULA / "heldout.jsonl").read_bytes().splitlines(keepends=True)[:30]))
    fixed = {"mode": "Fixed", "size": 20, "reason": "test"}
    return manifest(
        train=rows(40), held_out=held_out, batching=fixed, workers={"concurrency": SLOTS, "hedgeBudget": 0}
    )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ``combee``; whatever still runs at the end is killed."""
    started: list[Program] = []

    def begin(*arguments: str | Path) -> Program:
        files = (tmp_path / f"{name}{len(started)}" for name in ("stdout", "stderr"))
        program = Program(["combee", *map(str, arguments)], environment(), *files)
        started.append(program)
        return program

    yield begin
    for program in started:
        program.kill()
        program.wait()


@pytest.fixture
def start_piped() -> Iterator[StartPiped]:
    """The same by pipes, which a reader can close."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str | Path, **options: object) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()}
        process = subprocess.Popen([*COMBEE, *map(str, arguments)], **{**pipes, **options})
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


@contextmanager
def disk(where: Path, options: str) -> Iterator[Path]:
    """A small disk of its own; only root can make one."""
    where.mkdir()
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can mount the small disk that this test fills")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)], capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"NOT TESTED: no disk can be mounted here ({done.stderr.decode().strip()})")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def run_flags(path: Path, out: Path, sim: Sim) -> list[str | Path]:
    return ["run", "-f", path, "-o", out, "--engine", f"main={sim.url}"]


def fill(folder: Path) -> Path:
    """Take all that is free on a disk."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"\0" * size) == size:
                    pass
            except OSError:
                continue
    return filler


def test_two_runs_on_one_folder(sim: Sim, slow: Sim, path: Path, start: Start, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = start(*run_flags(path, out, slow))
    wait_until("its first plan", (out / "plans" / "i000.json").exists, first)
    with first.paused():
        before = bytes_of(out)
        refused(combee(*run_flags(path, out, sim)), str(out), "another run is working", "Wait", "-o")
        refused(combee("gc", out, "--yes"), "another run is working")
        assert bytes_of(out) == before
    _, stderr = first.communicate(timeout=240)
    assert first.returncode in ENDED and stderr == "", stderr


def test_a_folder_that_takes_no_writes(sim: Sim, path: Path, tmp_path: Path) -> None:
    with disk(tmp_path / "ro", "ro,size=1m") as where:
        words = ("cannot be used as an output folder", "Read-only", "-o")
        refused(combee(*run_flags(path, where, sim)), str(where), *words)
        refused(combee(*run_flags(path, where / "a" / "b", sim)), str(where), *words)
        assert bytes_of(where) == {}


def test_a_disk_that_is_full(sim: Sim, path: Path, tmp_path: Path) -> None:
    with disk(tmp_path / "small", "size=1m") as where:
        refused(combee(*run_flags(path, where / "out", sim)), str(where), "full", "16 MiB", "Free space")
        assert bytes_of(where) == {}


def test_a_disk_that_fills_up_in_mid_run_loses_nothing(
    sim: Sim, slow: Sim, path: Path, start: Start, tmp_path: Path
) -> None:
    whole = combee(*run_flags(path, tmp_path / "whole", sim))
    assert whole.returncode in ENDED, whole.stderr
    with disk(tmp_path / "small", "size=18m") as where:
        before, slowly = sim.answered(), slow.answered()
        out = where / "out"
        process = start(*run_flags(path, out, slow))
        wait_until("its first plan", (out / "plans" / "i000.json").exists, process)
        with process.paused():
            filler = fill(where)
        stdout, stderr = process.communicate(timeout=240)
        assert process.returncode == 2, stdout + stderr
        assert stderr.count("\n") == 1 and stderr.startswith("error: "), stderr
        assert "the store is full" in stderr and "Free some space" in stderr, stderr
        assert not (out / "result.json").exists()
        filler.unlink()
        done = combee(*run_flags(path, out, sim))
        assert done.returncode == whole.returncode, done.stderr
        asked = (sim.answered() - before) + (slow.answered() - slowly)
        # Lost are only answers that found no room: those in flight, and those asked for as they failed.
        assert sum(asked.values()) <= len(asked) + 4 * SLOTS
        assert (out / "lessons.md").read_bytes() == (tmp_path / "whole" / "lessons.md").read_bytes()
        assert result_of(out)["outcome"] == result_of(tmp_path / "whole")["outcome"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
def test_a_signal_stops_cleanly_and_the_same_command_goes_on(
    number: signal.Signals, sim: Sim, slow: Sim, path: Path, start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start(*run_flags(path, out, slow))
    wait_until("its first plan", (out / "plans" / "i000.json").exists, process)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 130 and stderr == "", stderr
    assert "again to go on" in " ".join(stdout.split())  # its lines end where the path says so
    assert result_of(out)["outcome"] == "Stopped"
    done = combee(*run_flags(path, out, sim))
    assert done.returncode in ENDED and done.stderr == "", done.stderr


def test_a_second_ctrl_c_stops_at_once(
    key: Path, sims: Sims, path: Path, start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    hanging = sims.start("--key", key, "--time-scale", "0", "--hang-one-in", "1")
    process = start(*run_flags(path, out, hanging))
    wait_until("its first file", (out / "run.json").exists, process)
    process.send_signal(signal.SIGINT)
    # Two signals of a kind that wait together are delivered as one: the second is for after the first was
    # heard.
    wait_until("its answer", lambda: "once more stops at once" in process.stdout.read_text(), process)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=240)  # a call that hangs is given up after 600 s
    assert process.returncode == 130 and "Traceback" not in stdout + stderr
    sim = sims.start("--key", key, "--time-scale", "0")
    done = combee(*run_flags(path, out, sim))
    assert done.returncode in ENDED and done.stderr == "", done.stderr


def test_ctrl_c_while_the_endpoint_is_being_asked_leaves_nothing(
    path: Path, start: Start, tmp_path: Path
) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
        process = start("run", "-f", path, "-o", tmp_path / "out", "--engine", f"main={url}")
        deaf.settimeout(240)
        connection, _ = deaf.accept()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=240)
        connection.close()
    assert process.returncode == 130 and "Traceback" not in stderr and not (tmp_path / "out").exists()


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["plain", "json"])
def test_a_reader_that_goes_away_does_not_end_the_run(
    flags: list[str], sim: Sim, path: Path, start_piped: StartPiped, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start_piped(*run_flags(path, out, sim), *flags)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    stderr = process.stderr.read()
    assert process.wait(240) in ENDED and stderr == "", stderr
    assert (out / "result.json").exists() and (out / "report.html").exists()


def test_a_closed_pipe_before_the_first_line(path: Path, start_piped: StartPiped, tmp_path: Path) -> None:
    for arguments in (["preview", "-f", path], ["validate", "-f", path], ["--help"]):
        process = start_piped(*arguments)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        lines = process.stderr.read().splitlines()
        assert all(line.startswith("warning: ") for line in lines), lines
        process.wait(240)
    reading, writing = os.pipe()
    os.close(reading)
    process = start_piped(
        "run", "-f", tmp_path / "nope", "-o", tmp_path / "out", stdout=writing, stderr=writing
    )
    os.close(writing)
    assert process.wait(240) == 2
