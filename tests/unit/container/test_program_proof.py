"""A program enters a playbook by its own test alone, which may do nothing but compute, within its limits."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from container_bench import processes_that_say

from combee.clients.sandbox import proof, proof_child
from combee.clients.sandbox.proof import proved
from combee.errors import UserError
from combee.names import PROGRAM_MODULES
from combee.work.proofs import SAMPLE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs are confined by Linux")
ASKS = "its test asks the system for a file, a process, a socket or the like"
ENDS = "its test does not come to its end"
EMPTY = "its test passes without its body, too"
NONE = "it is no function with a docstring and a test"


def why(*body: str, test: str = "    assert one(1) == 1", seconds: int = 5) -> str:
    """Why a function with these lines, which else gives its argument back, does not pass."""
    lines = "".join(f"    {line}\n" for line in body)
    text = f'def one(a):\n    """Give it back."""\n{lines}    return a\n\n\ndef test_one():\n{test}'
    return asyncio.run(proved(text, seconds)).why


def test_one_that_computes_passes() -> None:
    assert asyncio.run(proved(SAMPLE, 5)).why == ""
    assert why("import datetime, decimal, json, math, statistics",
               'datetime.datetime.strptime("3 May 2024", "%d %B %Y")',
               "json.dumps(math.sqrt(statistics.mean([float(decimal.Decimal(2))])))") == ""  # fmt: skip


def test_it_may_import_all_that_it_is_told_of() -> None:
    assert why(*(f"import {name}" for name in PROGRAM_MODULES)) == ""


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["while True:", "    pass"], id="loops"),
        pytest.param(["while True:", "    try:", "        a.b", "    except BaseException:", "        pass"],
                     id="loops, and catches what it can"),
        pytest.param(["import _signal", "_signal.signal(24, _signal.SIG_IGN)", "while True:", "    pass"],
                     id="loops, and ignores the warning"),
        pytest.param(["10 ** 10 ** 9"], id="one long step"),
    ],
)  # fmt: skip
def test_one_that_takes_too_long_is_ended(lines: list[str]) -> None:
    assert why(*lines, seconds=1) == "its test takes more than 1 s"


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["import os", "os.fork()"], id="forks"),
        pytest.param(["import os", "os.system('true')"], id="starts a shell"),
        pytest.param(["import posix", "posix.execv('/bin/true', ['true'])"], id="becomes another program"),
        pytest.param(["import socket"], id="imports sockets"),
        pytest.param(["import ctypes", "ctypes.CDLL(None).socket(2, 1, 0)"], id="makes a socket"),
        pytest.param(
            ["import ctypes", "ctypes.CDLL(None).syscall(41, 2, 1, 0)"], id="makes one by its number"
        ),
        pytest.param(
            ["import ctypes", "ctypes.CDLL(None).syscall(0x40000029, 2, 1, 0)"], id="by another one"
        ),
        pytest.param(["import ctypes", "ctypes.CDLL(None).ptrace(0, 0, 0, 0)"], id="is traced"),
        pytest.param(["open('/etc/hostname').read()"], id="reads a file"),
        pytest.param(["open('/proc/self/environ').read()"], id="reads an environment"),
        pytest.param(["open('left', 'w').write('x')"], id="writes a file"),
        pytest.param(["import os", "os.listdir('/')"], id="lists a folder"),
        pytest.param(["import os", "os.kill(os.getppid(), 0)"], id="signals a process"),
        pytest.param(["import os", "os.setuid(1)"], id="becomes another user"),
        pytest.param(["import time", "time.sleep(1)"], id="sleeps"),
        pytest.param(
            ["import _thread", "lock = _thread.allocate_lock()", "lock.acquire()", "lock.acquire()"],
            id="waits for what never comes",
        ),
        pytest.param(["import _thread", "_thread.start_new_thread(print, ())"], id="starts a thread"),
    ],
)
@pytest.mark.parametrize("way", ["as it is", "caught"])
def test_one_that_asks_the_system_is_ended_also_where_it_would_go_on(lines: list[str], way: str) -> None:
    if way == "caught":
        lines = ["try:", *(f"    {line}" for line in lines), "except BaseException:", "    pass"]
    assert why(*lines) == ASKS


def test_one_that_takes_memory_is_refused() -> None:
    assert why("bytearray(10 * 2 ** 30)") == "its test takes more than 256 MiB"
    assert why("parts = []", "while True:", "    parts.append(bytearray(2 ** 24))", seconds=5) != ""


def test_it_sees_no_secret_of_the_process_that_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "secret-of-mine")
    assert (
        why("import os", "assert 'secret-of-mine' not in str(os.environ)", "assert 'HOME' in os.environ")
        == ""
    )


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        pytest.param("    assert one(1) == 2", "its test fails", id="fails"),
        pytest.param("    assert nothing(1) == 2", "its test raises an error", id="raises"),
        pytest.param("    raise SystemExit(0)", "its test raises an error", id="leaves"),
        pytest.param("    import os\n    os._exit(0)", ENDS, id="ends its process"),
        pytest.param("    import ctypes\n    ctypes.string_at(0)", ENDS, id="crashes"),
        pytest.param("    pass", EMPTY, id="nothing"),
        pytest.param("    assert True", EMPTY, id="what is always so"),
        pytest.param("    one", EMPTY, id="names it only"),
        pytest.param(
            "    try:\n        assert one(1) == 2\n    except Exception:\n        pass", EMPTY, id="forgives"
        ),
        pytest.param("    assert (", NONE, id="is no Python"),
        pytest.param(f"    assert {'(' * 4000}", NONE, id="is deep"),
        pytest.param(f"    {'-' * 6000}one", NONE, id="is deeper"),
    ],
)
def test_a_test_that_does_not_hold_the_function_to_anything_lets_nothing_in(test: str, reason: str) -> None:
    assert why(test=test) == reason


def test_to_end_the_process_with_the_code_of_a_test_that_passed_is_not_to_pass() -> None:
    forged = f"os._exit({proof_child.PASSED})"
    assert why("import os", forged) == ENDS
    assert why(test=f"    import os\n    {forged}") == ENDS
    assert why(test="    return\n    assert one(1) == 1") == ENDS


def test_a_program_cannot_read_which_of_its_runs_this_is() -> None:
    assert why("import sys", "assert not sys.argv and not sys.orig_argv") == ""
    caller = ["import sys", "frame, held = sys._getframe(1), []", "while frame:",
              "    held += frame.f_locals.values() if frame.f_code.co_name != '<module>' else []",
              "    frame = frame.f_back",
              "assert held and not [one for one in held if one == 'as it is' or hasattr(one, 'body')]",
              "assert not [one for one in held if isinstance(one, str) and 'def one' in one]"]  # fmt: skip
    assert why(*caller) == ""


def test_one_without_a_docstring_or_a_body_is_none() -> None:
    rest = "\n\n\ndef test_one():\n    assert one(1) is None"
    for function in (
        "def one(a):\n    return a",
        'def one(a):\n    """It is only told."""',
        "class one:\n    a = 1",
    ):
        assert asyncio.run(proved(function + rest, 5)).why == NONE


def test_nothing_is_left_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert why("while True:", "    pass  # of the test that leaves nothing", seconds=1)
    assert list(tmp_path.iterdir()) == [] and not processes_that_say("of the test that leaves nothing")


def test_where_the_kernel_cannot_hold_it_nothing_is_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "child.py"
    other.write_text(
        "import platform\n"
        "platform.machine = lambda: 'aarch64'\n"
        f"exec(open({proof_child.__file__!r}).read())\n"
    )
    monkeypatch.setattr(proof, "CHILD", other)
    with pytest.raises(UserError, match=r"no program of a playbook can be kept from files.*here") as refused:
        why()
    assert "leave programs out" in str(refused.value)
