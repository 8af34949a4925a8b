"""The test of a playbook's program, in its own process: run by path with ``python -I -S``, never imported.

It parses the program, gives up every call of the system but those of plain computing, and only then runs what
a model wrote. From there on the kernel ends it where it opens a file, starts a process or makes a socket,
whoever the process belongs to, and whether or not the program would have gone on. It needs only the standard
library.
"""

from __future__ import annotations

import ast
import ctypes
import importlib
import math
import os
import platform
import resource
import struct
import sys
import time
from types import CodeType
from typing import NoReturn

PASSED, FAILED, RAISED, MEMORY, NO_PROGRAM, NOT_CONFINED = 40, 41, 42, 43, 44, 45
"""The exit codes. A program that ends the process itself may forge one; so a test must come to its end, too,
where that end fails (``FAILING``)."""
AS_IT_IS, WITHOUT, FAILING = "as it is", "without", "failing"
"""The ways to run a program: as it is, without the function's body, with a test whose end fails."""
_LATE = ("_strptime",)
"""What a module that a program may import loads only when it is used."""

_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_X86_64 = 0xC000003E
_LOAD, _EQUAL, _GIVE = 0x20, 0x15, 0x06
_ALLOW, _END = 0x7FFF0000, 0x80000000
_COMPUTING = (
    0, 1, 3, 5, 8,  # read, write, close, fstat, lseek: of what is open
    9, 10, 11, 12, 25, 28,  # mmap, mprotect, munmap, brk, mremap, madvise
    13, 14, 15, 131,  # rt_sigaction, rt_sigprocmask, rt_sigreturn, sigaltstack
    24, 219,  # sched_yield, restart_syscall
    39, 96, 201, 228, 229, 318,  # getpid, gettimeofday, time, clock_gettime, clock_getres, getrandom
    60, 231,  # exit, exit_group
)  # fmt: skip


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def main() -> NoReturn:
    """Run the test of the program that the last argument is, in the way that the third one names, which the
    program cannot read there. What it may import, the first argument, is loaded before: nothing can be read
    after. The second says how many seconds of a processor it may take: on a busy machine it takes no more of
    these."""
    code, test = _prepared()
    if not _confined():
        os._exit(NOT_CONFINED)
    os._exit(_outcome(code, test))


def _prepared() -> tuple[CodeType, str]:
    """Return what is run and the name of its test. No frame that the program runs in holds the way."""
    modules, seconds, way, program = sys.argv[1:]
    sys.argv.clear()
    sys.orig_argv.clear()
    for name in (*modules.split(","), *_LATE):
        importlib.import_module(name)
    try:
        tree = ast.parse(program)
        function, test = _parts(tree)
        if way == WITHOUT:
            function.body = [ast.Raise(ast.Name("NotImplementedError", ast.Load()), None)]
        if way == FAILING:
            test.body.append(ast.Assert(ast.Constant(False), None))
        ast.fix_missing_locations(tree)
        code = compile(tree, "program", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        os._exit(NO_PROGRAM)
    until = math.ceil(time.process_time()) + int(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (until, until))
    return code, test.name


def _parts(tree: ast.Module) -> tuple[ast.FunctionDef, ast.FunctionDef]:
    """Return the function and its test. Raises ValueError for anything else."""
    function, test = tree.body
    if not (isinstance(function, ast.FunctionDef) and isinstance(test, ast.FunctionDef)):
        raise ValueError("not two functions")
    if not ast.get_docstring(function) or len(function.body) == 1:
        raise ValueError("no docstring, or nothing else")
    return function, test


def _outcome(code: CodeType, test: str) -> int:
    space: dict[str, object] = {"__name__": "program"}
    try:
        exec(code, space)  # noqa: S102 - what this process is for
        space[test]()  # type: ignore[operator]
    except AssertionError:
        return FAILED
    except MemoryError:
        return MEMORY
    except BaseException:
        return RAISED
    return PASSED


def _confined() -> bool:
    """Give up all calls of the system but those of computing; return whether the kernel holds the rest."""
    if platform.machine() != "x86_64":
        return False
    rows = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _X86_64), (_GIVE, 0, 0, _END), (_LOAD, 0, 0, 0)]
    for number in _COMPUTING:
        rows += [(_EQUAL, 0, 1, number), (_GIVE, 0, 0, _ALLOW)]
    rows.append((_GIVE, 0, 0, _END))
    code = b"".join(struct.pack("HBBI", *row) for row in rows)
    buffer = ctypes.create_string_buffer(code)
    program = _Program(len(rows), ctypes.cast(buffer, ctypes.c_void_p))
    libc = ctypes.CDLL(None)
    return not libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) and not libc.prctl(
        _SECCOMP, _FILTER, ctypes.byref(program), 0, 0
    )


if __name__ == "__main__":
    main()
