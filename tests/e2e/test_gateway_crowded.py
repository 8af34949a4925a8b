"""Many large bodies or half heads at once: the process stays within the memory of its container, and nobody
is lost, with a good key or without."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from gateway_parts import (
    ApiServer,
    Running,
    Upstream,
    cold_gateway,
    content,
    playbook,
    secret,
    version,
)

from combee.gateway.room import EACH
from waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.e2e
A, KEY = "a" * 64, "key-of-the-client"
MIB = 1024 * 1024
MEMORY, BODY, CLIENTS = 256 * MIB, 6 * MIB, 40
SMALL_MEMORY, STRANGERS, STRANGE_BODY = 64 * MIB, 500, 300_000


def ask(running: Running, body: bytes) -> tuple[int, str, str]:
    """(status, code, Retry-After)."""
    parts = urlsplit(running.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_SECONDS)
    try:
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        connection.request("POST", "/formula/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        return (
            answer.status,
            said.get("error", {}).get("code", ""),
            answer.headers.get("Retry-After") or "",
        )
    finally:
        connection.close()


def most_memory(running: Running) -> int:
    """Bytes that the process had resident at most."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def test_more_large_bodies_than_there_is_memory_for(tmp_path: Path) -> None:
    secret(tmp_path, "keys", "formula", first=KEY)
    body = json.dumps({"messages": [{"role": "user", "content": "x" * BODY}]}).encode()
    with ApiServer() as api, Upstream(hold=threading.Event()) as upstream:
        api.put(
            "playbooks", playbook("formula", upstream.url, active=A, keys={"secretRef": {"name": "keys"}})
        )
        api.put("playbookversions", version("formula", A))
        api.put("configmaps", content("formula", A, "- [r-1] the rule of A"))
        with (
            # Memory counts, and a forked one has that of whatever it was forked from.
            cold_gateway(api, tmp_path, COMBEE_GATEWAY_MEMORY=str(MEMORY)) as running,
            ThreadPoolExecutor(CLIENTS) as clients,
        ):
            before = most_memory(running)
            asked: list[Future[tuple[int, str, str]]] = [
                clients.submit(ask, running, body) for _ in range(CLIENTS)
            ]
            wait_until(
                "all were passed on or answered",
                lambda: len(upstream.seen) + sum(one.done() for one in asked) >= CLIENTS,
            )
            assert upstream.hold is not None
            upstream.hold.set()
            answers = [one.result() for one in asked]
            # What those took is given back once their answers are sent, which is a moment after they are
            # read.
            wait_until("there is room again", lambda: ask(running, body)[0] == 200)
            peak = most_memory(running)
    refused = [one for one in answers if one[0] == 503]
    print(f"{len(refused)} of {CLIENTS} were told to come again; {before / MIB:.0f} -> {peak / MIB:.0f} MiB")
    assert set(answers) == {(200, "", ""), (503, "no_memory", "1")}
    assert len(refused) == CLIENTS - (len(upstream.seen) - 1)
    assert peak < MEMORY


async def refused(port: int) -> set[bytes]:
    """Send the strangers' bodies, all at once on connections that are there already; return their answers."""
    links = [await asyncio.open_connection("127.0.0.1", port) for _ in range(STRANGERS)]
    head = f"POST /formula/v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: {STRANGE_BODY}\r\n\r\n"
    for _, writer in links:
        writer.write(head.encode() + b"x" * STRANGE_BODY)
    answers = {await reader.readline() for reader, _ in links}
    for _, writer in links:
        writer.close()
    return answers


def test_bodies_of_strangers_take_what_is_counted_for_their_connections(tmp_path: Path) -> None:
    secret(tmp_path, "keys", "formula", first=KEY)
    with ApiServer() as api, Upstream() as upstream:
        api.put(
            "playbooks", playbook("formula", upstream.url, active=A, keys={"secretRef": {"name": "keys"}})
        )
        with cold_gateway(api, tmp_path, COMBEE_GATEWAY_MEMORY=str(SMALL_MEMORY)) as running:
            before = most_memory(running)
            answers = asyncio.run(refused(urlsplit(running.url).port or 0))
            peak = most_memory(running)
    print(f"{STRANGERS} strangers: {before / MIB:.0f} -> {peak / MIB:.0f} MiB")
    assert answers == {b"HTTP/1.1 401 Unauthorized\r\n"}
    assert peak - before < STRANGERS * EACH


@pytest.fixture
def many_files() -> Iterator[None]:
    """Leave to open as many sockets as the system gives."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))


HALF, HEADS, ENDLESS = b"POST /formula/v1/chat/completions HTTP/1.1\r\nX: " + b"x" * 22_000, 1500, 33 * MIB
"""A head that does not end and how often it is sent at once, 33 MB together; and the bytes of one alone."""


def turned_away(running: Running, reason: str) -> int:
    """How many connections were refused for that reason."""
    found = re.search(rf'turned_away_total{{reason="{reason}"}} (\d+)', running.metrics())
    return int(found[1]) if found else 0


@pytest.mark.usefixtures("many_files")
def test_heads_without_an_end_take_no_memory_and_are_waited_for_in_vain(tmp_path: Path) -> None:
    """Without any key 33 MB of headers passed the memory of a pod, and 1,500 half heads stayed 97 seconds."""
    secret(tmp_path, "keys", "formula", first=KEY)
    body = json.dumps({"messages": [{"role": "user", "content": "q"}]}).encode()
    with ApiServer() as api, Upstream() as upstream, contextlib.ExitStack() as links:
        api.put(
            "playbooks", playbook("formula", upstream.url, active=A, keys={"secretRef": {"name": "keys"}})
        )
        api.put("playbookversions", version("formula", A))
        api.put("configmaps", content("formula", A, "- [r-1] the rule of A"))
        with cold_gateway(api, tmp_path, COMBEE_GATEWAY_MEMORY=str(MEMORY)) as running:
            address = (urlsplit(running.url).hostname, urlsplit(running.url).port)
            before = most_memory(running)
            endless = links.enter_context(socket.create_connection(address, timeout=PATIENCE_SECONDS))
            with contextlib.suppress(ConnectionError):
                endless.sendall(HALF + b"x" * ENDLESS)
            wait_until("it is refused", lambda: turned_away(running, "HeadTooLarge") == 1)
            assert most_memory(running) - before < ENDLESS // 4
            for _ in range(HEADS):
                link = links.enter_context(socket.create_connection(address, timeout=PATIENCE_SECONDS))
                link.sendall(HALF)
            assert ask(running, body)[0] == 200
            wait_until("all are refused", lambda: turned_away(running, "HeadLate") == HEADS)
            peak = most_memory(running)
    print(f"{HEADS} half heads and one of 33 MB: {before / MIB:.0f} -> {peak / MIB:.0f} MiB")
    assert peak - before < HEADS * EACH
