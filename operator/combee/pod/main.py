"""``combee-worker step``, ``publish``, ``report``, ``judge``, ``sweep``, ``watch-data`` and ``attend``: what runs
in the pods of runs and Playbooks.

Little is imported before the words are read, and publish never loads what only a step needs.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence

STOPPED = 143
BUG = 70
USAGE = 64
USAGE_TEXT = "usage: combee-worker step | publish | report | judge | sweep | watch-data | attend\n"
HELP_TEXT = f"""{USAGE_TEXT}
Do the work of one pod. The operator makes the pods and sets their environment.

  step        work of a run: profile, map, reduce, finish or evaluate
  publish     write what a run learned into a ConfigMap
  report      hand out a run's results, for kubectl combee report
  judge       compare a candidate's answers with the active version's
  sweep       delete captured traffic after its retention
  watch-data  tell whether the data that a Playbook learns from changed
  attend      serve a user's container that rolls out

Example: COMBEE_ROOT=/ combee-worker step

Exit codes: 0 done; 1 failed; 64 wrong arguments; 70 the environment cannot be read, or a bug; 143 stopped.
"""


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
        sys.stdout.write(HELP_TEXT)
        return 0
    if words not in (["step"], ["publish"], ["report"], ["judge"], ["sweep"], ["watch-data"], ["attend"]):
        sys.stderr.write(USAGE_TEXT)
        return USAGE
    # In a container this is process 1, which ignores signals that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))
    # Nothing that is imported becomes garbage: looking for some meanwhile is a seventh of the time.
    gc.disable()
    try:
        own = {"judge": _judge, "sweep": _sweep, "watch-data": _watch_data, "attend": _attend}
        work = own.get(words[0], lambda: _prepared(words[0]))()
    finally:
        gc.enable()
    return work()


def _prepared(word: str) -> Callable[[], int]:
    """The pod's work, with everything imported; a pod that cannot be read has none but to say so."""
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
    if word == "publish":
        from combee.pod.publish import run as publish

        return lambda: publish(pod, log)
    if word == "report":
        from combee.pod.report import run as report

        return lambda: report(pod, log)
    from combee.pod.step import run as step

    return lambda: step(pod, log)


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


if __name__ == "__main__":
    program()
