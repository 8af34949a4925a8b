"""``combee-worker``: what runs in the pods of runs, Playbooks and stores, by the word that it is given.

Little is imported before the words are read, and publish never loads what only a step needs.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from combee.pod.environment import Pod
    from combee.pod.log import PodLog

    _OfRun = Callable[[Pod, PodLog], int]

STOPPED = 143
BUG = 70
USAGE = 64


def program() -> None:
    """The console script. It ends at once: all that counts is written by then, and taking hundreds of
    modules down in order would keep whoever waits for the pod's end."""
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one pod's work; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["-h"], ["--help"]):
        sys.stdout.write(help_text())
        return 0
    if len(words) != 1 or words[0] not in PROGRAMS:
        sys.stderr.write(_usage())
        return USAGE
    # In a container this is process 1, which ignores signals that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))
    # Nothing that is imported becomes garbage: looking for some meanwhile is a seventh of the time.
    gc.disable()
    try:
        work = PROGRAMS[words[0]].prepare()
    finally:
        gc.enable()
    return work()


def _step() -> _OfRun:
    from combee.pod.step import run

    return run


def _publish() -> _OfRun:
    from combee.pod.publish import run

    return run


def _report() -> _OfRun:
    from combee.pod.report import run

    return run


def _of_a_run(load: Callable[[], _OfRun]) -> Callable[[], int]:
    """A program for a pod of a run; where the pod's files cannot be read, one that only says so."""
    from combee.pod.log import PodLog

    first = PodLog()
    from combee.errors import CombeeError

    try:
        from combee.pod.environment import read_pod
        from combee.settings import worker_settings

        settings = worker_settings()
        pod = read_pod(settings)
    except CombeeError as error:
        first.say("ERROR", str(error), error=error.code)
        return lambda: BUG
    about = {"run": pod.name, "iteration": pod.step.iteration, "step": pod.step.name, "shard": pod.shard}
    log = PodLog(about, settings.log_level, begun=first.begun)
    work = load()
    return lambda: work(pod, log)


def _judge() -> Callable[[], int]:
    """The same for a canary's pod, which belongs to no run."""
    from combee.pod.log import PodLog

    first = PodLog()
    from combee.errors import CombeeError

    try:
        from combee.pod.judge import read_task, run
        from combee.settings import judge_settings

        settings = judge_settings()
        task = read_task(settings)
    except CombeeError as error:
        first.say("ERROR", str(error), error=error.code)
        return lambda: BUG
    about = {"playbook": task.playbook, "test": task.test}
    return lambda: run(settings, task, PodLog(about, settings.log_level, begun=first.begun))


def _sweep() -> Callable[[], int]:
    """The same for a store's pod, which belongs to nobody."""
    from combee.pod.log import PodLog

    first = PodLog()
    from combee.errors import CombeeError

    try:
        from combee.pod.sweep import read_task, run
        from combee.settings import sweep_settings

        settings = sweep_settings()
        task = read_task(settings)
    except CombeeError as error:
        first.say("ERROR", str(error), error=error.code)
        return lambda: BUG
    return lambda: run(settings, task, PodLog({}, settings.log_level, begun=first.begun))


def _watch_data() -> Callable[[], int]:
    """The same for the pod that looks at a Playbook's data."""
    from combee.pod.log import PodLog

    first = PodLog()
    from combee.errors import CombeeError

    try:
        from combee.pod.datawatch import read_task, run
        from combee.settings import data_watch_settings

        settings = data_watch_settings()
        task = read_task(settings)
    except CombeeError as error:
        first.say("ERROR", str(error), error=error.code)
        return lambda: BUG
    return lambda: run(settings, task, PodLog({}, settings.log_level, begun=first.begun))


def _attend() -> Callable[[], int]:
    """The same for the container beside a user's own, which reads nothing of a run."""
    from combee.pod.log import PodLog

    first = PodLog()
    from combee.errors import CombeeError

    try:
        from combee.objects.rollout_layout import PROBES_PORT
        from combee.pod.attend import run
        from combee.settings import attend_settings

        settings = attend_settings(PROBES_PORT)
    except CombeeError as error:
        first.say("ERROR", str(error), error=error.code)
        return lambda: BUG
    return lambda: run(settings, PodLog({}, settings.log_level, begun=first.begun))


@dataclass(frozen=True, slots=True)
class Program:
    """What a word means. ``prepare`` imports what the work needs, and returns the work."""

    prepare: Callable[[], Callable[[], int]]
    does: str


PROGRAMS: Mapping[str, Program] = {
    "step": Program(partial(_of_a_run, _step), "work of a run: profile, map, reduce, finish or evaluate"),
    "publish": Program(partial(_of_a_run, _publish), "write what a run learned into a ConfigMap"),
    "report": Program(partial(_of_a_run, _report), "hand out a run's results, for kubectl combee report"),
    "judge": Program(_judge, "compare a candidate's answers with the active version's"),
    "sweep": Program(_sweep, "delete captured traffic after its retention"),
    "watch-data": Program(_watch_data, "tell whether the data that a Playbook learns from changed"),
    "attend": Program(_attend, "serve a user's container that rolls out"),
}


def help_text() -> str:
    """What ``--help`` prints."""
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
