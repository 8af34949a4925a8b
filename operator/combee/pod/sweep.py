"""``combee-worker sweep``: ends kept traffic in one store, whoever kept it.

/etc/combee/secrets/store/    keys of the store's Secret
/store                        where traffic is kept, where it is a claim

Exit 0: what is over is gone; 1: it could not be done; 70: ours.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass

from combee.assembly.crash import bug_text
from combee.errors import BugError, CombeeError
from combee.pod.log import PodLog
from combee.pod.termination import open_store
from combee.settings import SweepSettings
from combee.work.traffic import sweeping

DONE, FAILED, BUG = 0, 1, 70


@dataclass(frozen=True, slots=True)
class SweepTask:
    """What is to go."""

    store: str
    """its address, or the folder of a claim."""
    retention: dict[str, float]
    """by Playbook, in seconds."""
    ending: tuple[str, ...]
    """Playbooks of which no more comes."""


def read_task(settings: SweepSettings) -> SweepTask:
    """What is to be swept. BugError when what the operator wrote cannot be read."""
    try:
        raw = json.loads(settings.task)
        retention = {str(name): float(seconds) for name, seconds in raw["retention"].items()}
        return SweepTask(str(raw["store"]), retention, tuple(map(str, raw["ending"])))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BugError(f"it cannot be read ({type(error).__name__})", where="COMBEE_SWEEP") from None


def run(settings: SweepSettings, task: SweepTask, log: PodLog) -> int:
    """Sweep; the exit code. Nothing is raised."""
    try:
        deleted = asyncio.run(_sweep(settings, task))
    except CombeeError as error:
        log.say("ERROR", str(error), error=error.code)
        return BUG if isinstance(error, BugError) else FAILED
    except Exception as error:
        log.say("ERROR", bug_text(error), error=BugError.code)
        return BUG
    log.say("INFO", "swept", deleted=deleted)
    return DONE


async def _sweep(settings: SweepSettings, task: SweepTask) -> int:
    store = open_store(settings, task.store)
    try:
        return await sweeping.sweep(store, task.retention, time.time(), ending=task.ending)
    finally:
        store.close()
