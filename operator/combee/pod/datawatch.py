"""``combee-worker watch-data``: leaves a mark of each place of a Playbook's data in its termination message.

/etc/combee/secrets/<place>/    keys of the place's Secret
/data/<place>                   the claim, where the place is one

Exit 0: the marks are told; 1: a place cannot be read, which the message says beside other marks; 70: a bug.
"""

from __future__ import annotations

import json

from combee.clients.data.marks import mark_of
from combee.errors import BugError, CombeeError
from combee.pod.environment import SECRETS_FOLDER, TERMINATION_LOG, read_secret
from combee.pod.log import PodLog
from combee.settings import DataWatchSettings

MAX_BYTES = 1000
"""The most bytes told of an error."""


def read_task(settings: DataWatchSettings) -> dict[str, str]:
    """Return place -> its address or path. Raises BugError when what the operator wrote cannot be read."""
    try:
        return {str(key): str(place) for key, place in json.loads(settings.task).items()}
    except (ValueError, AttributeError) as error:
        raise BugError(f"it cannot be read ({type(error).__name__})", where="COMBEE_WATCH") from None


def run(settings: DataWatchSettings, task: dict[str, str], log: PodLog) -> int:
    """Look at every place, also after one that cannot be read; return the exit code. Nothing is raised."""
    marks: dict[str, str] = {}

    def work() -> None:
        errors = []
        for key, place in task.items():
            try:
                marks[key] = _mark(settings, key, place)
            except CombeeError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        _tell(settings, {"marks": marks})
        log.say("INFO", "looked", places=len(marks))

    return log.guarded(work, lambda error: _tell(settings, {"marks": marks, "error": error[:MAX_BYTES]}))


def _mark(settings: DataWatchSettings, key: str, place: str) -> str:
    at = str(settings.path(place)) if place.startswith("/") else place
    return mark_of(at, read_secret(settings.path(f"{SECRETS_FOLDER}/{key}")))


def _tell(settings: DataWatchSettings, message: dict[str, object]) -> None:
    settings.path(TERMINATION_LOG).write_text(json.dumps(message, sort_keys=True), encoding="utf-8")
