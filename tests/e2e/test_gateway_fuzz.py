"""Raw requests that no client library would send, by a seeded generator: the gateway answers or closes each
in time, stays within its memory, and passes on only what it understood.

Ten thousand by default, printed with their seed; ``COMBEE_FUZZ_SEED`` and ``COMBEE_FUZZ_REQUESTS`` choose
others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from gateway_parts import ApiServer, Running, Upstream, cold_gateway, content, playbook, secret, version

from waiting import wait_until

pytestmark = pytest.mark.e2e
A, KEY, RULE = "a" * 64, "key-of-the-client", b"the rule of A"
SEED = int(os.environ.get("COMBEE_FUZZ_SEED", "20"))
REQUESTS = int(os.environ.get("COMBEE_FUZZ_REQUESTS", "10000"))
AT_ONCE = 32
MEMORY = 256 * 1024 * 1024
WHOLE_SECONDS = 1.0
"""We wait so long for an answer, which one in twenty does not get, since it ends in the middle."""
METHODS = [b"GET", b"PUT", b"HEAD", b"CONNECT", b"OPTIONS", b"PRI", b"post", b"G T", b""]
PATHS = [
    b"/formula/v1/chat/completions",
    b"/formula/v1/embeddings",
    b"/formula/v1/models",
    b"/formula/v1/models/org/name",
    b"/formula/v1/models/..;/files",
    b"/formula/v1/models/%252e%252e/files",
    b"/formula/v1/models/%2e%2e/files",
    b"/formula/v1/models/..%5c..%5cfiles",
    b"/formula/v1/files",
    b"/formula//v1/embeddings",
    b"/formula/v1/embeddings?x=%00&y=\xff",
    b"http://elsewhere/formula/v1/models",
    b"//formula/v1/models",
    b"/-/",
    b"/-/playbooks/formula",
    b"/other/v1/models",
    b"*",
    b"elsewhere:443",
    b"",
    b"/\x00",
    b"/" + b"a" * 40_000,
]
VERSIONS = [b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.1 ", b"http/1.1", b""]
LINES = [
    b"Connection: close, X-Hidden",
    b"Connection: upgrade",
    b"Upgrade: websocket",
    b"Upgrade: h2c",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding: identity",
    b"Content-Length: 5",
    b"Content-Length: +5",
    b"Content-Length: 99999999999999999999",
    b"Content-Encoding: gzip",
    b"Expect: 100-continue",
    b"Expect: something",
    b" folded: 1",
    b"No-Colon",
    b": nameless",
    b"X-Nul: a\x00b",
    b"X-Latin: \xe9\xff",
    b"X-Cr: a\rb",
    b"Host: other",
    b"Cookie: combee-page-team-a=s.1.a",
    b"Authorization: Basic a",
    b"X-Long: " + b"y" * 20_000,
]
BODIES = [b'{"messages": [{"role": "user", "content": "q"}]}'] * 6 + [
    b"",
    b"{",
    b"[]",
    b'{"messages": 1e999}',
    b'{"messages": ' + b"[" * 3000,
    b'{"messages": [], "messages": []}',
    b"\xff\xfe\x00",
    b'{"a": "' + b"z" * 100_000 + b'"}',
]


def raw(rng: random.Random) -> bytes:
    """One attempt at a request, right in most of its parts."""

    def seldom(share: float) -> bool:
        return rng.random() < share

    body = rng.choice(BODIES)
    method, path, protocol = b"POST", PATHS[0], b"HTTP/1.1"
    if seldom(0.3):
        path = rng.choice(PATHS)
        method = b"GET" if b"models" in path else method
    if seldom(0.1):
        method = rng.choice(METHODS)
    if seldom(0.1):
        protocol = rng.choice(VERSIONS)
    lines = [b" ".join((method, path, protocol)), b"Host: x", b"X-Hidden: 1"]
    if not seldom(0.05):
        lines.append(b"Authorization: Bearer " + (b"guess" if seldom(0.1) else KEY.encode()))
    if seldom(0.5):
        lines += rng.sample(LINES, rng.choice((1, 1, 2, 3)))
        lines += [b"X-Names-Hidden: 1"] * (LINES[0] in lines)
    if seldom(0.05):
        lines += [b"X-Many: 1"] * rng.choice((50, 200))
    if method == b"GET":
        body = b""
    elif seldom(0.3):
        lines.append(b"Transfer-Encoding: chunked")
        size = rng.choice((b"%x", b"%x", b"%x", b"%x;x=1", b"0x%x", b"-%x", b"1%x"))
        end = rng.choice((b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX-Trailer: 1\r\n\r\n", b"0\r\n", b""))
        body = size % len(body) + b"\r\n" + body + b"\r\n" + end
    elif not seldom(0.05):
        lines.append(b"Content-Length: %d" % (len(body) + (rng.choice((-1, 1)) if seldom(0.05) else 0)))
    made = (rng.choice((b"\n", b"\r")) if seldom(0.05) else b"\r\n").join([*lines, b"", b""]) + body
    if seldom(0.1):
        at = rng.randrange(len(made))
        made = made[:at] + rng.randbytes(rng.randrange(1, 8)) + made[at + rng.randrange(3) :]
    if seldom(0.05):
        made = made[: rng.randrange(len(made))]
    return made * (rng.choice((2, 20)) if seldom(0.1) else 1)


async def attempt(port: int, sent: bytes, slices: int) -> str:
    """Send a request in so many pieces; return the first answer's status, or that there was none. What is not
    whole is waited for by the gateway, and not by us: all connections must be gone in the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(WHOLE_SECONDS):
                size = len(sent) // slices + 1
                for at in range(0, len(sent), size):
                    writer.write(sent[at : at + size])
                    await writer.drain()
                answer = await reader.read(65_536)
    finally:
        writer.close()
    match = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    assert match or not answer, answer[:200]
    return match[1].decode() if match else "none"


async def fuzzed(port: int) -> Counter[str]:
    """Send all of them, some at a time; return how often each came of it."""
    rng, found = random.Random(SEED), Counter[str]()
    requests = iter([(raw(rng), rng.choice((1, 1, 1, 2, 7))) for _ in range(REQUESTS)])

    async def worker() -> None:
        for sent, slices in requests:
            found[await attempt(port, sent, slices)] += 1

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return found


def resident(running: Running) -> int:
    """Bytes that the process had resident at most."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def understood(path: str, headers: dict[str, str], body: bytes) -> bool:
    """Return whether the upstream was sent what the gateway promises to pass, and nothing else."""
    names = {name.lower() for name in headers}
    plain = re.fullmatch(r"/v1/(chat/completions|embeddings|models|models/org/name)(\?.*)?", path)
    if plain is None or names & {"x-trailer", "cookie", "upgrade", "expect", "te", "x-nul"}:
        return False
    if {"x-names-hidden", "x-hidden"} <= names:
        return False
    if plain[1] != "chat/completions":
        return True
    # What is no object was refused; where there are messages, the playbook is put in front of them.
    told = json.loads(body)
    messages = told.get("messages") if isinstance(told, dict) else None
    return isinstance(told, dict) and (not isinstance(messages, list) or not messages or RULE in body)


def test_ten_thousand_raw_requests_crash_and_hang_nothing(tmp_path: Path) -> None:
    secret(tmp_path, "keys", "formula", first=KEY)
    with ApiServer() as api, Upstream() as upstream:
        keys = {"secretRef": {"name": "keys"}}
        api.put("playbooks", playbook("formula", upstream.url, active=A, keys=keys))
        api.put("playbookversions", version("formula", A))
        api.put("configmaps", content("formula", A, f"- [r-1] {RULE.decode()}"))
        with cold_gateway(api, tmp_path, COMBEE_GATEWAY_MEMORY=str(MEMORY)) as running:
            found = asyncio.run(fuzzed(urlsplit(running.url).port or 0))
            peak = resident(running)
            came = f"{dict(found.most_common())}, {len(upstream.seen)} passed"
            print(f"seed {SEED}: {came}, {peak / 2**20:.0f} MiB")
            assert running.process.poll() is None
            for gauge in ("connections", "in_flight"):
                line = f"combee_gateway_{gauge} 0.0"
                wait_until(line, lambda line=line: line in running.metrics())
            assert "bug in combee" not in running.log.read_text()
            assert "500" not in found
            assert peak < MEMORY
            misread = [seen for seen in upstream.seen if not understood(*seen)]
            assert misread == []
            assert found["200"] > REQUESTS // 20
            assert running.stop() == 0
    assert sum(found.values()) == REQUESTS
