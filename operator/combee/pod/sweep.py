"""``combee-worker sweep``: deletes expired traffic in one store, whoever kept it.

/etc/combee/secrets/store/    keys of the store's Secret
/store                        where traffic is kept, where it is a claim

Exit 0: what is over is gone; 1: it could not be done; 70: a bug.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass

from combee.errors import BugError
from combee.pod.environment import open_store
from combee.pod.log import PodLog
from combee.settings import SweepSettings
from combee.work.traffic import sweeping


@dataclass(frozen=True, slots=True)
class SweepTask:
    """What is to be deleted."""

    store: str
    """the store's address, or the folder of a claim."""
    retention: dict[str, float]
    """how long traffic is kept, by Playbook, in seconds."""
    ending: tuple[str, ...]
    """Playbooks of which no more comes."""


def read_task(settings: SweepSettings) -> SweepTask:
    """Return what is to be swept. Raises BugError when what the operator wrote cannot be read."""
    try:
        raw = json.loads(settings.task)
        retention = {str(name): float(seconds) for name, seconds in raw["retention"].items()}
        return SweepTask(str(raw["store"]), retention, tuple(map(str, raw["ending"])))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BugError(f"it cannot be read ({type(error).__name__})", where="COMBEE_SWEEP") from None


def run(settings: SweepSettings, task: SweepTask, log: PodLog) -> int:
    """Sweep; return the exit code. Nothing is raised."""
    return log.guarded(lambda: log.say("INFO", "swept", deleted=asyncio.run(_sweep(settings, task))))


async def _sweep(settings: SweepSettings, task: SweepTask) -> int:
    store = open_store(settings, task.store)
    try:
        return await sweeping.sweep(store, task.retention, time.time(), ending=task.ending)
    finally:
        store.close()
