"""The start of a rollout, in its own process: run by path with ``python -I -S``, never imported.

It reads its task as JSON from standard input, sets the limits, becomes the user, and then executes the
command. It needs only the standard library and imports nothing late: the user may not be able to read that
library.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

_NO_NEW_PRIVILEGES, _DEATH_SIGNAL = 38, 1
CANNOT_START = 126
_TRIES, _PAUSE_SECONDS = 100, 0.02


def main() -> int:
    """Do the task on standard input. Return an exit code where it does not become the command."""
    task = json.load(sys.stdin)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for name, limit in task.get("limits", {}).items():
        kind = getattr(resource, name, None)
        if kind is not None:
            _lower(kind, limit)
    _become(task.get("uid"))
    if task["do"] == "kill":
        return _kill_all()
    os.umask(0o077)
    try:
        os.chdir(task["folder"])
    except OSError as error:
        return _refuse(f"the folder {task['folder']} cannot be entered ({error.strerror})")
    command = task["command"]
    program = shutil.which(command[0], path=task["env"].get("PATH"))
    if program is None:
        return _refuse(f"there is no program {command[0]!r} that may be run")
    if task["do"] == "check":
        return 0
    _bind_to_parent()
    try:
        os.execve(program, command, task["env"])  # noqa: S606 - the user's own command
    except OSError as error:
        return _refuse(f"{command[0]!r} cannot be run ({error.strerror})")


def _lower(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(kind, (allowed, allowed))


def _become(uid: int | None) -> None:
    if uid is None:
        return
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def _bind_to_parent() -> None:
    """Forbid the process to gain rights, and end it with its parent, where the system supports that."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _kill_all() -> int:
    """End all other processes of this user. The kernel does this in one step, so that no fork escapes."""
    if os.getuid() == 0:
        return _refuse("all processes of root are not to be ended")
    for _ in range(_TRIES):
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        if not _others():
            return 0
        time.sleep(_PAUSE_SECONDS)
    return 1


def _others() -> bool:
    """Return whether other processes of this user still run, as far as the system tells: one that was killed
    may take a moment to end."""
    own_pid, alive = os.getpid(), False
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() and int(entry.name) != own_pid and not alive:
                with contextlib.suppress(OSError):
                    alive = entry.stat().st_uid == os.getuid() and not _is_dead(entry.path)
    return alive


def _is_dead(process: str) -> bool:
    status = Path(process, "stat").read_text(encoding="utf-8", errors="replace")
    return status.rpartition(")")[2].split()[0] in "ZX"


def _refuse(problem: str) -> int:
    sys.stdout.write(f"{problem}\n")
    return CANNOT_START


if __name__ == "__main__":
    sys.exit(main())
