"""Put one defect at a time into a copy of the tree and say whether the tests see it: ``python
tests/mutants.py``.

The defects are in mutants.toml, each with the tests that should see it. First all these tests run once
without a defect: those that fail then tell nothing, and what rests on them is ``broken``.

Exit 0: every defect was caught; 1: one was not; 2: the list does not fit the tree.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".toml")
PRODUCT = Path("operator/combee")
CAUGHT, MISSED, BROKEN = "caught", "NOT caught", "broken"
FAILED, UNREADABLE = 1, 2
"""What pytest ends with when a test failed, and when a module could not be imported."""
HANGS_SECONDS = 300
"""A test that a defect makes hang for so long has seen it."""
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class ListError(Exception):
    """The list does not fit the tree."""


@dataclass(frozen=True)
class Mutant:
    """One defect: ``old`` occurs once in ``file``, below the product's folder, and ``new`` replaces it."""

    name: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]
    cluster: bool = False

    def applied(self, text: str) -> str:
        """The file's text with the defect. ListError unless ``old`` stands exactly once in it."""
        times = text.count(self.old)
        if times != 1:
            raise ListError(f"{self.name}: its old text stands {times} times in {PRODUCT / self.file}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Told:
    """What became of one defect."""

    name: str
    verdict: str
    seconds: float
    seen_by: str = ""
    """the first test that failed."""


def read_list(path: Path = LIST) -> list[Mutant]:
    """The defects, in the order of the file."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


@dataclass
class Copy:
    """A copy of the working tree that defects are put into."""

    folder: Path
    _moments: count[int] = field(default_factory=lambda: count(int(time.time())))

    @classmethod
    def of(cls, root: Path, folder: Path) -> Copy:
        """Copy what git tracks, or would track, as it is in the working tree."""
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            check=True,
            capture_output=True,
        ).stdout.decode()
        for name in filter(None, names.split("\0")):
            source, target = root / name, folder / name
            if source.is_symlink() or source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        made = cls(folder)
        made.require_own_product()
        return made

    def require_own_product(self) -> None:
        """ListError where another tree's product would be tested."""
        said = self._python("-c", "import combee; print(combee.__file__)")
        if not Path(said.stdout.strip()).is_relative_to(self.folder / PRODUCT):
            raise ListError(f"the copy's product is not the one that is imported: {said.stdout}{said.stderr}")

    def tested(self, tests: Iterable[str], *more: str) -> subprocess.CompletedProcess[str]:
        """Run tests in the copy."""
        words = ("-q", "-rfE", "-p", "no:cacheprovider", f"--timeout={HANGS_SECONDS}", *more)
        return self._python("-m", "pytest", *words, *tests)

    def tried(self, mutant: Mutant) -> Told:
        """Put a defect in, run its tests, take it out."""
        path = self.folder / PRODUCT / mutant.file
        right, began = path.read_text(encoding="utf-8"), time.monotonic()
        self._write(path, mutant.applied(right))
        try:
            done = self.tested(mutant.tests, "-x")
        finally:
            self._write(path, right)
        verdict = {0: MISSED, FAILED: CAUGHT, UNREADABLE: CAUGHT}.get(done.returncode, BROKEN)
        seen_by = next(iter(_FAILURE.findall(done.stdout)), "") if verdict == CAUGHT else ""
        return Told(mutant.name, verdict, round(time.monotonic() - began, 1), seen_by)

    def _write(self, path: Path, text: str) -> None:
        """Write a file with a time of its own: Python knows compiled code by its source's size and whole
        second."""
        path.write_text(text, encoding="utf-8")
        moment = next(self._moments)
        os.utime(path, (moment, moment))

    def _python(self, *words: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        # With CI set property tests draw the same examples each time: a defect is caught, or it is not.
        environment = {**clean, "PYTHONPATH": str(self.folder / "operator"), "CI": "1"}
        return subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=environment, capture_output=True, text=True
        )


def failing(copy: Copy, mutants: Sequence[Mutant], jobs: int) -> list[str]:
    """Tests of the list that fail without any defect. ListError when they cannot be run."""
    union = sorted({test for mutant in mutants for test in mutant.tests})
    done = copy.tested(union, *(("-n", str(jobs), "--dist", "loadfile") if jobs > 1 else ()))
    if done.returncode not in (0, FAILED):
        raise ListError(
            f"the tests cannot be run (pytest ended with {done.returncode}):\n{done.stdout[-4000:]}"
        )
    return _FAILURE.findall(done.stdout)


def rests_on(mutant: Mutant, failures: Iterable[str]) -> bool:
    """Whether one of the tests that should see a defect fails without it."""
    return any(
        failure == test or failure.startswith((f"{test}::", f"{test}[", f"{test}/"))
        for test in mutant.tests
        for failure in failures
    )


def run(mutants: Sequence[Mutant], jobs: int) -> list[Told]:
    """Try all of them, and tell of each as it is done."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: SimpleQueue[Copy] = SimpleQueue()
        first = Copy.of(ROOT, Path(folder).resolve() / "0")
        for mutant in mutants:
            mutant.applied((first.folder / PRODUCT / mutant.file).read_text(encoding="utf-8"))
        began = time.monotonic()
        failures = failing(first, mutants, jobs)
        for failure in failures:
            print(f"fails without a defect: {failure}", flush=True)
        print(f"without a defect: {time.monotonic() - began:.1f} s", flush=True)
        copies.put(first)
        for number in range(1, jobs):
            copies.put(Copy.of(ROOT, Path(folder).resolve() / str(number)))

        def one(mutant: Mutant) -> Told:
            if rests_on(mutant, failures):
                told = Told(mutant.name, BROKEN, 0.0)
            else:
                copy = copies.get()
                try:
                    told = copy.tried(mutant)
                finally:
                    copies.put(copy)
            print(f"{told.verdict:<10} {told.seconds:6.1f} s  {told.name:<38} {told.seen_by}", flush=True)
            return told

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, mutants))


def main(words: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="try these defects only")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="try so many at once, each in a copy"
    )
    parser.add_argument("--cluster", action="store_true", help="with those that only a real cluster can tell")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what became of each")
    given = parser.parse_args(words)
    mutants = [one for one in read_list() if given.cluster or not one.cluster]
    if given.only:
        if unknown := sorted(set(given.only) - {one.name for one in mutants}):
            parser.error(f"no defect is named {', '.join(unknown)}")
        mutants = [one for one in mutants if one.name in given.only]
    if given.list:
        for one in mutants:
            print(f"{one.name:<38} {one.file}\n    {one.why}")
        return 0
    try:
        results = run(mutants, max(1, given.jobs))
    except ListError as error:
        print(error, file=sys.stderr)
        return 2
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n", encoding="utf-8")
    caught = sum(one.verdict == CAUGHT for one in results)
    print(f"{caught} of {len(results)} caught, {sum(one.seconds for one in results):.0f} s of tests")
    return 0 if caught == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
