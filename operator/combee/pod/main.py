"""``combee-worker``: what runs in the pods of runs, Playbooks and stores, by the word that it is given.

Little is imported before the word is read, and publish never loads what only a step needs.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from combee.steps import WORK

if TYPE_CHECKING:
    from combee.pod.log import PodLog

STOPPED = 143
USAGE = 64


def program() -> None:
    """Run as the console script. It ends at once: all that counts is written by then, and unloading hundreds
    of modules in order would keep whoever waits for the pod's end waiting."""
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one pod's work; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if {"-h", "--help"} & set(words):
        sys.stdout.write(help_text())
        return 0
    if len(words) != 1 or words[0] not in PROGRAMS:
        sys.stderr.write(_usage())
        return USAGE
    # In a container, this is process 1, which ignores signals that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))
    # Nothing that is imported becomes garbage: looking for some meanwhile takes a seventh of the time.
    gc.disable()
    try:
        work = _prepared(PROGRAMS[words[0]].read)
    finally:
        gc.enable()
    return work()


def _prepared(read: Callable[[PodLog], Callable[[], int]]) -> Callable[[], int]:
    """Return the work that ``read`` returns. Where the pod's files or settings are unreadable, it only
    returns the exit code."""
    from combee.pod.log import BUG, PodLog

    first = PodLog()
    from combee.errors import CombeeError

    try:
        return read(first)
    except CombeeError as error:
        first.say("ERROR", str(error), error=error.code)
        return lambda: BUG


def _of_a_run(word: str, first: PodLog) -> Callable[[], int]:
    """Return the work of a run's pod."""
    from combee.pod.environment import read_pod
    from combee.settings import WorkerSettings, read_settings

    settings = read_settings(WorkerSettings, "combee-worker")
    pod = read_pod(settings)
    about = {"run": pod.name, "iteration": pod.step.iteration, "step": pod.step.name, "shard": pod.shard}
    if word == "step":
        from combee.pod.step import run
    elif word == "publish":
        from combee.pod.publish import run
    else:
        from combee.pod.report import run
    return partial(run, pod, replace(first, about=about, level=settings.log_level))


def _judge(first: PodLog) -> Callable[[], int]:
    """Return the work of a canary's pod, which belongs to no run."""
    from combee.pod.judge import read_task, run
    from combee.settings import JudgeSettings, read_settings

    settings = read_settings(JudgeSettings, "combee-worker judge")
    task = read_task(settings)
    about = {"playbook": task.playbook, "test": task.test}
    return partial(run, settings, task, replace(first, about=about, level=settings.log_level))


def _sweep(first: PodLog) -> Callable[[], int]:
    """Return the work of a store's pod, which belongs to nobody."""
    from combee.pod.sweep import read_task, run
    from combee.settings import SweepSettings, read_settings

    settings = read_settings(SweepSettings, "combee-worker sweep")
    return partial(run, settings, read_task(settings), replace(first, level=settings.log_level))


def _watch_data(first: PodLog) -> Callable[[], int]:
    """Return the work of the pod that looks at a Playbook's data."""
    from combee.pod.datawatch import read_task, run
    from combee.settings import DataWatchSettings, read_settings

    settings = read_settings(DataWatchSettings, "combee-worker watch-data")
    return partial(run, settings, read_task(settings), replace(first, level=settings.log_level))


def _attend(first: PodLog) -> Callable[[], int]:
    """Return the work of the container beside a user's own, which reads nothing of a run."""
    from combee.pod.attend import run
    from combee.settings import AttendSettings, read_settings

    settings = read_settings(AttendSettings, "combee-worker attend")
    return partial(run, settings, replace(first, level=settings.log_level))


@dataclass(frozen=True, slots=True)
class Program:
    """What a word means. ``read`` imports and reads what the work needs, and returns the work."""

    read: Callable[[PodLog], Callable[[], int]]
    does: str


PROGRAMS: Mapping[str, Program] = {
    "step": Program(partial(_of_a_run, "step"), f"work of a run: {WORK}"),
    "publish": Program(partial(_of_a_run, "publish"), "write what a run learned into a ConfigMap"),
    "report": Program(partial(_of_a_run, "report"), "hand out a run's results, for kubectl combee report"),
    "judge": Program(_judge, "compare a candidate's answers with the active version's"),
    "sweep": Program(_sweep, "delete captured traffic after its retention"),
    "watch-data": Program(_watch_data, "tell whether the data that a Playbook learns from changed"),
    "attend": Program(_attend, "serve a user's container that rolls out"),
}


def help_text() -> str:
    """Return what ``--help`` prints."""
    words = "\n".join(f"  {word:<10} {program.does}" for word, program in PROGRAMS.items())
    return f"""{_usage()}
Do the work of one pod. The operator makes the pods and sets their environment.

{words}

Example: COMBEE_ROOT=/ combee-worker step

Exit codes: 0 done; 1 failed; 64 wrong arguments; 70 the environment cannot be read, or a bug; 143 stopped.
"""


def _usage() -> str:
    return f"usage: combee-worker {' | '.join(PROGRAMS)}\n"


if __name__ == "__main__":
    program()
