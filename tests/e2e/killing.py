"""Kill a run at every kind of write or at random moments, resume it, and compare it with an undisturbed
run."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from e2e_support import ENDED, ROOT, Sim, environment, process, result_of
from kill_at_writes import ends_of, names_of

from combee.plan.types import StepSummary
from warm import Program, run_program


@dataclass(frozen=True)
class Killed:
    """A run to be killed: the manifest at ``path`` with the model ``sim``.

    ``in_flight`` bounds the calls that one kill may lose, so that may be answered twice."""

    path: Path
    sim: Sim
    in_flight: int
    flags: Sequence[str | Path] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def words(self, out: Path) -> list[str]:
        """The command, without ``combee``."""
        given = ["run", "-f", self.path, "-o", out, "--engine", f"main={self.sim.url}", *self.flags]
        return [str(word) for word in given]

    def to_the_end(self, out: Path) -> float:
        """Seconds that the run, or what is left of it, took."""
        began = time.monotonic()
        done = process(*self.words(out), **self.variables)
        assert done.returncode in ENDED, done.stdout + done.stderr
        return time.monotonic() - began

    def at_writes(self, deaths: Path, log: Path | str, after: str, out: Path) -> None:
        """Run it to its end by ``kill_at_writes``."""
        path = f"{self.variables.get('PYTHONPATH', ROOT / 'operator')}:{Path(__file__).parent}"
        done = run_program(
            ["kill-at-writes", deaths, log, after, *self.words(out)],
            environment(**self.variables | {"PYTHONPATH": path}),
        )
        assert done.returncode in ENDED, done.stdout + done.stderr

    def killed_at(self, out: Path, files: int) -> float | None:
        """Kill it once its store has so many files, and more than before: after how many seconds, or None
        where it ended before. Counted in files a moment is the same part of the work on a busy machine."""
        began, files = time.monotonic(), max(files, files_of(out) + 1)
        process = Program(["combee", *self.words(out)], environment(**self.variables), os.devnull, os.devnull)
        while files_of(out) < files:
            if process.poll() is not None:
                return None
            time.sleep(0.01)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            return None
        return time.monotonic() - began


def files_of(out: Path) -> int:
    """How many files are in the store of a run."""
    return sum(len(files) for _, _, files in os.walk(out / "store"))


def kept(out: Path) -> tuple[object, ...]:
    """What must not differ: every artifact of the run, byte for byte, and what its result says of it."""
    found, store = result_of(out), out / "store" / "blobs"
    steps = [StepSummary.decode(path.read_bytes()) for path in sorted(out.glob("steps/*.json"))]
    finished = [step.outputs["artifact"] for step in steps if step is not None and step.kind == "finish"]
    artifacts = [(store / digest[:2] / digest).read_bytes() for digest in finished]
    built_on = [one["builtOn"] for one in found["iterations"]]
    texts = [(out / name).read_bytes() for name in ("lessons.md", "prompt.md")]
    return found["playbook"], texts, artifacts, found["heldOut"], found["variants"], built_on


def survives_every_write(run: Killed, folder: Path, after: str = "") -> None:
    """One run is killed before its first write of each kind within each step, and after each step and plan;
    each time the same command goes on, to the same end. What was in flight at a kill may be answered once
    more, and nothing else. With ``after``, a pattern, only at writes that come next after a step or plan of
    such a name."""
    before, names = run.sim.answered(), folder / "names"
    run.at_writes(names, "-", after, folder / "whole")
    usual, begun = run.sim.answered() - before, run.sim.said()
    deaths, out = folder / "deaths", folder / "out"
    run.at_writes(deaths, run.sim.log, after, out)
    killed = names_of(deaths)
    wanted, seen = ({name.partition(" after ")[0] for name in one} for one in (names_of(names), killed))
    assert wanted <= seen, wanted - seen
    assert kept(out) == kept(folder / "whole")
    answers = [run.sim.answered_until(end) for end in (begun, *ends_of(deaths), run.sim.said())]
    lost = lost_at([later - sooner for sooner, later in pairwise(answers)], usual)
    print(f"killed at {len(killed)} writes, {sum(lost)} calls answered twice")
    for name, calls in zip(killed, lost, strict=True):
        assert calls <= run.in_flight, f"a kill {name} cost {calls} calls that were answered again"


def lost_at(attempts: Sequence[Counter[str]], usual: Counter[str]) -> list[int]:
    """How many answers each kill lost, by what was answered in each attempt: all attempts but the last were
    killed.

    A call that is answered again was lost by the kill that ended the attempt which answered it before. That
    need not be the last kill: where shards go on side by side, an attempt may die before it comes to what an
    earlier one had lost.

    >>> lost_at([Counter("ab"), Counter("a"), Counter("bc")], Counter("abc"))
    [2, 0]
    """
    lost, count, latest = [0] * (len(attempts) - 1), Counter[str](), dict[str, int]()
    for number, answered in enumerate(attempts):
        for call in answered.elements():
            if count[call] >= usual[call]:
                earlier = latest.get(call, number)
                lost[max(0, min(earlier, number - 1))] += 1
            count[call] += 1
            latest[call] = number
    return lost


def survives(run: Killed, folder: Path, moments: int, seed: str) -> None:
    """Kill each of ``moments`` runs once, at a moment that ``seed`` draws; each is resumed to the same
    end."""
    wanted, usual, files = _undisturbed(run, folder / "whole")
    draw = random.Random(seed)
    for number in range(moments):
        point, tries, before = draw.uniform(0.02, 0.95), 0, run.sim.answered()
        while (after := run.killed_at(out := folder / f"out{number}-{tries}", round(point * files))) is None:
            # One that ended between two looks was not killed: an earlier moment is taken, in a folder of its
            # own.
            point, tries, before = point * 0.8, tries + 1, run.sim.answered()
        _tell(out, point, after)
        run.to_the_end(out)
        _same(run, out, wanted, (run.sim.answered() - before - usual).total(), run.in_flight)


def survives_all(run: Killed, folder: Path, moments: int, seed: str) -> None:
    """Kill one run at each of ``moments`` moments that ``seed`` draws, and resume it every time to the same
    end. Where a run ends too soon, another one goes on in its place."""
    wanted, usual, files = _undisturbed(run, folder / "whole")
    draw, out, before, killed, ended = random.Random(seed), folder / "out", run.sim.answered(), 0, 0
    for point in sorted(draw.uniform(0.02, 0.95) for _ in range(moments)):
        while (after := run.killed_at(out, round(point * files))) is None:
            # It ended between two looks: it is compared, and another one is begun and killed a little
            # earlier.
            again = (run.sim.answered() - before - usual).total()
            _same(run, out, wanted, again, killed * run.in_flight)
            ended += 1
            point, out, before, killed = point * 0.8, folder / f"out{ended}", run.sim.answered(), 0
        _tell(out, point, after)
        killed += 1
    run.to_the_end(out)
    _same(run, out, wanted, (run.sim.answered() - before - usual).total(), killed * run.in_flight)


def _undisturbed(run: Killed, out: Path) -> tuple[object, Counter[str], int]:
    """What is kept of a run that nothing disturbs, how often it asked what, and the files of its store."""
    before = run.sim.answered()
    seconds = run.to_the_end(out)
    print(f"undisturbed in {seconds:.1f} s")
    return kept(out), run.sim.answered() - before, files_of(out)


def _tell(out: Path, point: float, seconds: float) -> None:
    done = len(list(out.glob("steps/*")))
    print(f"killed after {seconds:.1f} s, at {100 * point:.0f} % of the work, {done} steps done")


def _same(run: Killed, out: Path, wanted: object, twice: int, allowed: int) -> None:
    print(f"{twice} calls answered twice, {result_of(out)['playbook']['digest'][:16]}")
    assert kept(out) == wanted
    assert twice <= allowed
