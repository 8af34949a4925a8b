"""``combee-worker step``, ``publish`` and ``report``: what runs in a run's pods.

Little is imported before the words are read, and publish never loads what only a step needs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

STOPPED = 143
USAGE = 64
USAGE_TEXT = "usage: combee-worker step | publish | report\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one pod's work; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words not in (["step"], ["publish"], ["report"]):
        sys.stderr.write(USAGE_TEXT)
        return USAGE
    # In a container this is process 1, which ignores signals that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))
    return _run(words[0])


def _run(word: str) -> int:
    from combee.errors import CombeeError
    from combee.runtime.worker.log import PodLog

    try:
        from combee.runtime.worker.pod import read_pod
        from combee.settings import worker_settings

        settings = worker_settings()
        pod = read_pod(settings)
    except CombeeError as error:
        PodLog().say("ERROR", str(error), error=error.code)
        return 70
    about = {"run": pod.name, "iteration": pod.step.iteration, "step": pod.step.name, "shard": pod.shard}
    log = PodLog(about, settings.log_level)
    if word == "publish":
        from combee.runtime.worker.publish import run as publish

        return publish(pod, log)
    if word == "report":
        from combee.runtime.worker.results import run as report

        return report(pod, log)
    from combee.runtime.worker.step import run as step

    return step(pod, log)


if __name__ == "__main__":
    sys.exit(main())
