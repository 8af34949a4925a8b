"""Damages a file of a run's folder, of any kind and in any way, and goes on with the run."""

from __future__ import annotations

import random
import re
import resource
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e_support import ENDED, combee
from killing import Killed, kept

DAMAGES = (
    "flipped",
    "cut",
    "emptied",
    "deleted",
    "swapped",
    "another run's",
    "gigantic",
    "deep JSON",
    "bad UTF-8",
)
MEMORY_BYTES = 1 << 30
"""How much more a command may take for a folder with a damaged file than the tests' process has."""
GIGANTIC_BYTES = 6 << 30


def kinds_in(out: Path) -> dict[str, list[Path]]:
    """The files of a run's folder, by kind: the folders they lie in but those of one run or step, or the
    name."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(out.rglob("*")):
        if path.is_file() and path.name != "lock" and not path.name.startswith("report"):
            parts = path.relative_to(out).parts[:-1]
            kind = "/".join(part for part in parts if part.isalpha() and len(part) > 2)
            kinds.setdefault(kind or path.name, []).append(path)
    return kinds


def damaged(out: Path, other: Path, draw: random.Random) -> tuple[str, Path]:
    """Damage one file of a run's folder, and return how and which. ``other``: another run's folder."""
    kinds, others = kinds_in(out), kinds_in(other)
    kind, how = draw.choice(sorted(kinds)), draw.choice(DAMAGES)
    alike, foreign = kinds[kind], others.get(kind) or sorted(others["store/memo"])
    path, by, theirs = draw.choice(alike), draw.choice(alike).read_bytes(), draw.choice(foreign).read_bytes()
    data = path.read_bytes()
    at = draw.randrange(len(data) + 1)
    path.unlink()
    if how == "flipped" and data:
        at = min(at, len(data) - 1)
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :])
    elif how == "cut":
        path.write_bytes(data[:at])
    elif how == "emptied":
        path.write_bytes(b"")
    elif how == "swapped":
        path.write_bytes(by if len(alike) > 1 else data[::-1])
    elif how == "another run's":
        path.write_bytes(theirs)
    elif how == "gigantic":
        with path.open("wb") as file:
            file.write(data)
            file.truncate(GIGANTIC_BYTES)
    elif how == "deep JSON":
        path.write_bytes(b'{"version": ' + b"[" * 100_000)
    elif how == "bad UTF-8":
        path.write_bytes(data[:at] + b"\xff\xfe\xed\xa0\x80" + data[at:])
    return how, path


@contextmanager
def in_memory(more_bytes: int) -> Iterator[None]:
    """Let the process take so much more memory than it has, and no more."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def ends_as(run: Killed, out: Path, wanted: tuple[object, ...]) -> str:
    """Go on with a damaged folder. It ends as the undisturbed run, or names the file that it cannot go on
    without, and what it says to do then ends so. A run that was over asks its store nothing: its texts are
    compared."""
    was_over = (out / "result.json").exists()
    with in_memory(MEMORY_BYTES):
        done = combee(*run.words(out))
    said = done.stdout + done.stderr
    assert "bug in combee" not in said and "Traceback" not in said, said
    if done.returncode in ENDED:
        texts = [(out / name).read_bytes() for name in ("lessons.md", "prompt.md")]
        same = texts == wanted[1] if was_over and (out / "result.json").exists() else kept(out) == wanted
        assert same, said
        return "mended" if "it is made again from" in " ".join(said.split()) else "identical"
    assert done.returncode == 2 and done.stderr.startswith("error: ") and str(out) in done.stderr, said
    return f"refused: {done.stderr.strip()}"


def goes_on(run: Killed, refused: str, wanted: tuple[object, ...]) -> None:
    """Do what a refusal says: the commands as they are printed, to the end of the undisturbed run."""
    command = re.search(r"`(mkdir -p [^`]*)`", refused)
    if command is not None:
        subprocess.run(["bash", "-ec", command[1]], check=True)
    folder = re.search(r"`-o ([^`]*)`", refused)
    assert folder is not None, refused
    assert ends_as(run, Path(shlex.split(folder[1])[0]), wanted) == "identical"


def survives(
    run: Killed, out: Path, other: Path, draw: random.Random, wanted: tuple[object, ...], files: int = 1
) -> str:
    """Damage files of a run's folder, and go on with it. Returns what was done and how it ended."""
    done = [damaged(out, other, draw) for _ in range(files)]
    began = time.monotonic()
    end = ends_as(run, out, wanted)
    if end.startswith("refused"):
        goes_on(run, end, wanted)
    said = ", ".join(f"{how} {path.relative_to(out)}" for how, path in done)
    print(f"{said}: {end} ({time.monotonic() - began:.1f} s)")
    subprocess.run(["rm", "-rf", out, *out.parent.glob(f"{out.name}-*")], check=True)
    return end.partition(":")[0]
