"""No bytes of a stranger make more of a door than an error that its callers expect, and all take little time.

``make test`` gives each door the inputs that are known to be hard. ``make test-long`` has atheris look for
more: ``COMBEE_FUZZ_SECONDS`` at each door, from those on, each in a process with bounded memory. What it
finds is printed with how to run it again, and becomes one of the door's seeds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from doors import DOORS, GATEWAY, LOOP, ROLES, WIRE, replies, reply, variants
from hostile import http

from combee.clients.model.wire import Completion

HERE = Path(__file__).parent
SECONDS = int(os.environ.get("COMBEE_FUZZ_SECONDS", "60"))
MEMORY_MB, LONGEST_SECONDS = 1024, 10


@pytest.mark.parametrize("name", DOORS)
def test_a_door_takes_what_is_known_to_be_hard(name: str) -> None:
    door = DOORS[name]
    for whole in door.seeds():
        for data in variants(whole):
            door.one(data)


@pytest.mark.parametrize("role", ["models", *replies.PROMPTS])
def test_what_an_endpoint_sends_is_read_from_the_wire(role: str) -> None:
    """The client connects to nothing else, and an answer that stands there is the answer to the call."""
    before, shape = WIRE.connections, replies.SHAPES.get(role, replies.CHAT)[0]
    came = reply(bytes([ROLES.index(role)]) + http(replies.body(shape)))
    assert WIRE.connections == before + 1
    assert role == "models" or isinstance(came, Completion), came


def test_a_header_that_no_server_may_send_is_left_out_of_an_answer() -> None:
    """The gateway called it a bug of its own."""
    odd = http(b"{}", b"x-good: c", b"x-odd: a\x05b")
    answer = LOOP.run(GATEWAY.passed(b"\xff" + odd))
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\r\n\r\n{}")
    assert b"x-good: c" in answer and b"x-odd" not in answer


def test_a_name_that_ends_in_a_space_is_left_out_of_an_answer() -> None:
    """aiohttp refuses such a header, but not with the line feed alone below it, in two parts."""
    odd = b"HTTP/1.1 200  apylican\r\ncontent-length :140\r\nx-good: c\n\r\n{"
    answer = LOOP.run(GATEWAY.passed(b"(" + odd))
    assert answer.startswith(b"HTTP/1.1 200 ") and b"x-good: c" in answer and b"length" not in answer


@pytest.mark.parametrize("status", [b"101 Switching", b"600 No", b"999 No"])
def test_a_status_that_ends_nothing_is_no_answer(status: bytes) -> None:
    answer = LOOP.run(GATEWAY.passed(b"\xff" + http(b"{}", status=status)))
    assert answer.startswith(b"HTTP/1.1 502 ") and b"no_answer" in answer


@pytest.fixture(scope="session")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with atheris, as tests/fuzz/requirements.lock pins it."""
    folder = tmp_path_factory.mktemp("atheris")
    words = ["install", "-q", "--disable-pip-version-check", "--target", folder, "--require-hashes"]
    wheels = ["--only-binary", ":all:", "-r", HERE / "requirements.lock"]
    subprocess.run([sys.executable, "-m", "pip", *words, *wheels], check=True, timeout=600)
    return folder


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 600, func_only=True)
@pytest.mark.parametrize("name", DOORS)
def test_a_search_by_coverage_finds_no_way_to_break_a_door(name: str, fuzzer: Path, tmp_path: Path) -> None:
    limits = [f"-max_total_time={SECONDS}", f"-timeout={LONGEST_SECONDS}", f"-rss_limit_mb={MEMORY_MB}"]
    words = [HERE / "doors.py", name, tmp_path / "corpus", *limits, "-max_len=8192", "-print_final_stats=1"]
    done = subprocess.run(
        [sys.executable, *map(str, words), f"-artifact_prefix={tmp_path}/"],
        env={**os.environ, "PYTHONPATH": str(fuzzer)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=SECONDS + 300,
    )
    again = "; ".join(f"python {HERE}/doors.py {name} {path}" for path in tmp_path.glob("*-*"))
    assert done.returncode == 0, f"{done.stdout[-6000:]}\nagain: {again}"
    (covered,) = re.findall(r"DONE +cov: (\d+)", done.stdout)
    (executed,) = re.findall(r"number_of_executed_units: (\d+)", done.stdout)
    print(f"{name}: {executed} inputs in {SECONDS} s, {covered} edges, none broke it")
    assert int(executed) > SECONDS
