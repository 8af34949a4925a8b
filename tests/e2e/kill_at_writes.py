"""Runs ``combee`` until it ends, and kills it before each write of another kind and after each step:
``kill-at-writes DEATHS LOG AFTER ARGUMENT...``. Every attempt is a process of its own, forked from this one,
so that nothing but what it wrote goes on. DEATHS names the writes at which one died, a line each, and
DEATHS.ends the bytes that LOG, the model's, had when all calls of that attempt were over. With ``-`` in place
of LOG nothing is killed, and DEATHS names all writes. Only writes count that come next after a step or plan
whose name the pattern AFTER matches."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.request import urlopen

from combee.assembly.folder import CLOCK
from combee.cli import main as cli
from combee.report import bundle, figures
from warm import build_here

SHARD, DIGEST = re.compile(r"\b\d{5}\b"), re.compile(r"\b[0-9a-f]{2}/[0-9a-f]{16,}\b.*")


class Writes:
    """Stands before ``os.link`` and ``os.replace``, by which a folder gives every object its name."""

    def __init__(self, deaths: Path, kills: bool, after: str, out: Path) -> None:
        self.deaths, self.kills, self.after, self.out = deaths, kills, after, out
        self.known = set(names_of(deaths))
        self.one_at_a_time = Lock()
        over = [path for kind in ("plans", "steps") for path in (out / kind).glob("*.json")]
        last = max(over, key=lambda path: (path.stat().st_mtime_ns, path), default=None)
        self.step = str(last.relative_to(out)) if last else "the start"

    def around(self, real: Callable[..., None]) -> Callable[..., None]:
        def write(source: Any, target: Any, *more: Any, **words: Any) -> None:
            path = str(Path(target).relative_to(self.out))
            over = path.startswith(("steps/", "plans/"))
            with self.one_at_a_time:  # or another thread's kill falls between a step and the kill after it
                if path != CLOCK:
                    self._at(f"before {path}" if over else f"before {kind_of(path)} after {self.step}")
                elif not self.after:  # it is written by the clock, after whatever step is over by then
                    self._at(f"before {path}")
                real(source, target, *more, **words)
                if over:
                    self.step = path
                    self._at(f"after {path}")

        return write

    def _at(self, name: str) -> None:
        if name in self.known or not re.search(self.after, self.step):
            return
        self.known.add(name)
        with self.deaths.open("a") as file:
            file.write(f"{name}\n")
        if self.kills:
            os.killpg(0, signal.SIGKILL)


def kind_of(path: str) -> str:
    """The name of a write without what tells equal ones apart."""
    return DIGEST.sub("*", SHARD.sub("*", path))


def names_of(deaths: Path) -> list[str]:
    """At which writes something died, in order."""
    return deaths.read_text().splitlines() if deaths.exists() else []


def ends_of(deaths: Path) -> list[int]:
    """Bytes that the model's log had when the calls of each attempt that died were over."""
    return [int(line) for line in deaths.with_name(f"{deaths.name}.ends").read_text().splitlines()]


def wait_until_idle(url: str) -> None:
    """Wait until the model is idle: by then all calls of a dead attempt are answered or given up."""
    while True:
        with urlopen(f"{url.removesuffix('/v1')}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        if not sum(float(busy) for busy in re.findall(r"^vllm:num_requests_\w+\{[^}]*\} (\S+)", text, re.M)):
            return
        time.sleep(0.01)


def attempt(writes: Writes, arguments: list[str]) -> None:
    """A process that works until it dies or ends. It draws no figures: its result is as that of a run that
    nothing disturbs."""
    os.setsid()
    os.link, os.replace, os.rename = map(writes.around, (os.link, os.replace, os.rename))
    bundle.build_apart = build_here
    figures.figures = lambda result: {}
    sys.argv = ["combee", *arguments]
    cli.main()


def until_it_ends(deaths: Path, log: Path | None, after: str, arguments: list[str]) -> int:
    """Its exit code."""
    out = Path(arguments[arguments.index("-o") + 1])
    while True:
        child = os.fork()
        if child == 0:
            attempt(Writes(deaths, log is not None, after, out), arguments)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != -signal.SIGKILL or log is None:
            return code
        wait_until_idle(arguments[arguments.index("--engine") + 1].partition("=")[2])
        with deaths.with_name(f"{deaths.name}.ends").open("a") as file:
            file.write(f"{log.stat().st_size}\n")


def main() -> None:
    """The program."""
    deaths, log, after, *arguments = sys.argv[1:]
    sys.exit(until_it_ends(Path(deaths), None if log == "-" else Path(log), after, arguments))
