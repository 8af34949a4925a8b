"""``combee run``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from combee.assembly.crash import bug_text
from combee.cli.errors import USER_ERROR, say, say_line
from combee.cli.screen import Screen, choose_mode
from combee.errors import BugError, CombeeError
from combee.local.flags import StandInFlags
from combee.local.mend import run_mended
from combee.local.session import Prepared, prepare
from combee.local.sources import parse_stand_ins
from combee.plan.types import EXIT_CODES
from combee.report.result import Result


def run_run(
    path: Path,
    out: Path,
    given: StandInFlags,
    plans: Path | None,
    *,
    task_user: str = "",
    recorded: bool = False,
    as_json: bool,
) -> int:
    """Check, work and show; return the exit code of the outcome."""
    try:
        prepared = prepare(path, parse_stand_ins(given, task_user), plans, recorded=recorded)
    except CombeeError as error:
        say(error, as_json=as_json)
        return USER_ERROR
    return work(prepared, out, as_json=as_json)


def work(prepared: Prepared, out: Path, *, as_json: bool) -> int:
    """Work and show; return the exit code of the outcome."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    with Screen(choose_mode(json=as_json, stream=sys.stdout), errors=sys.stderr) as screen:
        try:
            result = asyncio.run(_interruptible(prepared, out, screen))
        except BugError as error:
            screen.error(error)
            return EXIT_CODES["Failed"]
        except CombeeError as error:
            screen.error(error)
            return USER_ERROR
        screen.finished(result, str(out), command=command)
    return result.exit_code


async def _interruptible(prepared: Prepared, out: Path, screen: Screen) -> Result:
    """Run the session. The first Ctrl-C (or SIGTERM) stops it cleanly; a second one at once."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_unclaimed)
    work = asyncio.ensure_future(run_mended(prepared, out, screen))
    stopping = False

    def stop() -> None:
        nonlocal stopping
        if stopping:
            screen.close()
            os._exit(EXIT_CODES["Stopped"])
        stopping = True
        screen.note("stopping: what is finished is kept; once more stops at once")
        work.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stop)
    try:
        return await work
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _unclaimed(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an error that nobody waits for any more. One of ours is known already: its waiter was cancelled
    because an equal one ended the run (64 writes fail when a disk is full, one is said). asyncio would
    print either with a traceback and with values, which can be rows."""
    error = context.get("exception")
    if isinstance(error, BaseException) and not isinstance(error, CombeeError):
        say_line(bug_text(error))
