"""Whether a program of a playbook passes its own test, within limits."""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from combee.clients.sandbox.launch import CANNOT_START
from combee.clients.sandbox.proof_child import (
    AS_IT_IS,
    FAILED,
    FAILING,
    MEMORY,
    NO_PROGRAM,
    NOT_CONFINED,
    PASSED,
    RAISED,
    WITHOUT,
)
from combee.clients.sandbox.sandbox import Limits, Run, Sandbox
from combee.errors import UserError
from combee.names import PROGRAM_MODULES
from combee.settings import program_path

CHILD = Path(__file__).with_name("proof_child.py")
MEMORY_MIB = 256
SPARE_SECONDS = 60
"""What a test may take beyond its processor seconds, on a machine that is busy."""
_BAD_CALL, _LATE = 128 + signal.SIGSYS, {128 + signal.SIGXCPU, 128 + signal.SIGKILL}
_WHY = {
    FAILED: "its test fails",
    RAISED: "its test raises an error",
    MEMORY: f"its test takes more than {MEMORY_MIB} MiB",
    NO_PROGRAM: "it is no function with a docstring and a test",
    _BAD_CALL: "its test asks the system for a file, a process, a socket or the like",
}
_ENDS = "its test does not come to its end"
_NOT_HERE = (NOT_CONFINED, CANNOT_START)


@dataclass(frozen=True, slots=True)
class Proof:
    """The outcome of a program's test. ``why`` says why it does not pass, without a word of the program's;
    it is empty where it passes."""

    why: str
    seconds: float


async def proved(program: str, seconds: int) -> Proof:
    """Run the test of a program and, where it passes, twice more: with an end that fails, which it must come
    to, and without the function's body, where a test that passes, too, tests nothing. Each run may take
    ``seconds`` of a processor. Raises UserError where no program can be confined here."""
    first = await _run(program, seconds, AS_IT_IS)
    if why := _why(first, seconds):
        return Proof(why, first.seconds)
    ended, empty = await _run(program, seconds, FAILING), await _run(program, seconds, WITHOUT)
    why = "" if ended.code == FAILED else _ENDS
    if not why and empty.why == "" and empty.code == PASSED:
        why = "its test passes without its body, too"
    return Proof(why, first.seconds + ended.seconds + empty.seconds)


async def _run(program: str, seconds: int, way: str) -> Run:
    modules = ",".join(PROGRAM_MODULES)
    sandbox = Sandbox(
        command=(sys.executable, "-I", "-S", str(CHILD), modules, str(seconds), way, program),
        folder=CHILD.parent,
        limits=Limits(
            seconds + SPARE_SECONDS, memory_bytes=MEMORY_MIB << 20, scratch_bytes=1 << 20, processes=1
        ),
        users=None,
        path=program_path(),
    )
    return await sandbox.run({}, {}, {}, asyncio.get_running_loop().create_future())


def _why(run: Run, seconds: int) -> str:
    """Return why a test does not pass, or empty."""
    if run.code in _NOT_HERE:
        raise UserError(
            "no program of a playbook can be kept from files, processes and sockets here",
            where="the sandbox of programs",
            fix="Run it on Linux on x86-64, with seccomp, or leave programs out of the method's options",
        )
    if run.why or run.code in _LATE:
        return f"its test takes more than {seconds} s"
    return "" if run.code == PASSED else _WHY.get(run.code, _ENDS)
