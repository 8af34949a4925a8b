"""A rollout's first moments, in a process of its own: run by path with ``python -I -S``, never imported.

It reads what to do as JSON from its standard input, sets the limits, becomes the user, and turns into the command.
Standard library only, and nothing imported late: as the user it may not even be able to read that.
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
    """Do what standard input says; the exit code, where it does not become the command."""
    told = json.load(sys.stdin)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for name, limit in told.get("limits", {}).items():
        kind = getattr(resource, name, None)
        if kind is not None:
            _lower(kind, limit)
    _become(told.get("uid"))
    if told["do"] == "kill":
        return _kill_all()
    os.umask(0o077)
    try:
        os.chdir(told["folder"])
    except OSError as error:
        return _refuse(f"the folder {told['folder']} cannot be entered ({error.strerror})")
    command = told["command"]
    program = shutil.which(command[0], path=told["env"].get("PATH"))
    if program is None:
        return _refuse(f"there is no program {command[0]!r} that may be run")
    if told["do"] == "check":
        return 0
    _bind_to_parent()
    try:
        os.execve(program, command, told["env"])  # noqa: S606 - the user's own command
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
    """No way to more rights, and no life after the run, where the system knows of such things."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _kill_all() -> int:
    """End all processes of this user but this one: the kernel does it in one go, against which no fork helps."""
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
    """Whether other processes of this user are still there, as far as the system tells: a killed one takes a moment."""
    me, found = os.getpid(), False
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() and int(entry.name) != me and not found:
                with contextlib.suppress(OSError):
                    found = entry.stat().st_uid == os.getuid() and not _is_dead(entry.path)
    return found


def _is_dead(process: str) -> bool:
    said = Path(process, "stat").read_text(encoding="utf-8", errors="replace")
    return said.rpartition(")")[2].split()[0] in "ZX"


def _refuse(what: str) -> int:
    sys.stdout.write(f"{what}\n")
    return CANNOT_START


if __name__ == "__main__":
    sys.exit(main())
