"""Messages made for patterns that try again and again, on a gateway that keeps all traffic: each probe is
answered within its deadline, another key's requests are served meanwhile, and each message is read to its
end. And clients that send everything before they read: each reads why it was refused."""

from __future__ import annotations

import json
import re
import socket
import threading
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from gateway_parts import (
    ApiServer,
    Running,
    Upstream,
    cold_gateway,
    content,
    gateway,
    playbook,
    secret,
    version,
)

from waiting import PATIENCE_SECONDS, looking, wait_until

pytestmark = pytest.mark.e2e
A, KEY, OTHER = "a" * 64, "key-of-the-attacker", "key-of-another"
PIECES = ("sk-", "aA/", "eyJaaaaaaaaaaa.", "password: a,", "a@b.c ")
BYTES = 60_000
PROBE_SECONDS = 5
"""as the pod's probes have it."""


class Quoting(Upstream):
    """Answers with what it was asked."""

    def respond(self, body: bytes) -> bytes:
        said = json.loads(body)["messages"][-1]["content"]
        choice = {"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        return json.dumps({"choices": [{"index": 0, **choice}]}).encode()


def ask(running: Running, key: str, model: str, said: str) -> None:
    """Ask, and read the answer."""
    request = urllib.request.Request(
        f"{running.url}/formula/v1/chat/completions",
        json.dumps({"model": model, "messages": [{"role": "user", "content": said}]}).encode(),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        assert json.loads(answer.read())["choices"][0]["message"]["content"] == said


def shed(running: Running) -> float:
    """How many requests were left out of what is kept."""
    head = 'combee_gateway_mirrored_total{outcome="Shed",playbook="formula"} '
    return sum(float(line[len(head) :]) for line in running.metrics().splitlines() if line.startswith(head))


def kept(folder: Path) -> set[str]:
    """The models of the requests that were kept."""
    files = (folder / "traffic/formula/traffic/formula/requests").glob("*.jsonl")
    return {json.loads(line)["request"]["model"] for file in files for line in file.read_text().splitlines()}


def attack(running: Running, folder: Path, name: str, said: str) -> None:
    """Send a message until one was read: a busy gateway leaves some out."""
    while name not in kept(folder):
        before = shed(running)
        ask(running, KEY, name, said)
        wait_until(f"an end of {name}", lambda: name in kept(folder) or shed(running) > before)  # noqa: B023


def test_messages_of_60_kb_stall_neither_probes_nor_another_key(tmp_path: Path) -> None:
    secret(tmp_path, "keys", "formula", first=KEY, second=OTHER)
    seen: Counter[str] = Counter()
    with ApiServer() as api, Quoting() as upstream:
        capture, keys = {"enabled": True, "percent": 100}, {"secretRef": {"name": "keys"}}
        api.put("playbooks", playbook("formula", upstream.url, active=A, keys=keys, capture=capture))
        api.put("playbookversions", version("formula", A))
        api.put("configmaps", content("formula", A, "- [r-1] the rule of A"))
        with cold_gateway(api, tmp_path) as running:

            def probe() -> None:
                for path in ("/healthz", "/readyz"):
                    try:
                        with urllib.request.urlopen(running.probes + path, timeout=PROBE_SECONDS) as answer:
                            seen[f"probe {answer.status}"] += 1
                    except OSError as error:
                        seen[f"probe {error}"] += 1

            def be_another() -> None:
                try:
                    ask(running, OTHER, "of another", "what?")
                    seen["served"] += 1
                except (OSError, AssertionError) as error:
                    seen[f"not served: {error!r}"] += 1

            with looking(probe, 0.1), looking(be_another, 0.1):
                for number, piece in enumerate(PIECES):
                    attack(running, tmp_path, f"attack-{number}", piece * (BYTES // len(piece)))
            print(dict(seen))
            assert set(seen) == {"probe 200", "served"}
            assert running.stop() == 0


PLACES, OF_ONE_KEY = 9, 8
"""Of nine places, one key has eight at most."""


def told(
    running: Running, key: str, body: bytes = b"x" * 10**6, protocol: str = "HTTP/1.1"
) -> tuple[str, str]:
    """(status, error's code) that a client reads whose connection is to close, once it has sent all."""
    parts = urlsplit(running.url)
    lines = (
        f"POST /formula/v1/chat/completions {protocol}",
        "Host: x",
        f"Authorization: Bearer {key}",
        "Connection: close",
        f"Content-Length: {len(body)}",
    )
    with socket.create_connection((parts.hostname, parts.port), PATIENCE_SECONDS) as link:
        link.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        answer = b""
        while piece := link.recv(65_536):
            answer += piece
    head, _, said = answer.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
    return status[1].decode() if status else "none", json.loads(said).get("error", {}).get("code", "")


def test_who_is_refused_reads_why_though_a_megabyte_is_on_its_way(tmp_path: Path) -> None:
    secret(tmp_path, "keys", "formula", first=KEY, second=OTHER)
    hold = threading.Event()
    with ApiServer() as api, Upstream(hold=hold) as upstream, ThreadPoolExecutor(PLACES) as others:
        parts = {"keys": {"secretRef": {"name": "keys"}}, "limits": {"maxInFlight": PLACES}}
        api.put("playbooks", playbook("formula", upstream.url, **parts))
        with gateway(api, tmp_path) as running:
            try:
                assert told(running, "guess") == ("401", "invalid_api_key")
                assert told(running, "guess", protocol="HTTP/1.0") == ("401", "invalid_api_key")
                assert told(running, KEY, b"x" * 20 * 2**20) == ("413", "too_large")
                asked = [others.submit(told, running, KEY, b"{}") for _ in range(OF_ONE_KEY)]
                wait_until("eight at the upstream", lambda: len(upstream.seen) == OF_ONE_KEY)
                assert told(running, KEY) == ("429", "share_taken")
                asked.append(others.submit(told, running, OTHER, b"{}"))
                wait_until("nine at the upstream", lambda: len(upstream.seen) == PLACES)
                assert told(running, OTHER) == ("503", "overloaded")
            finally:
                hold.set()
            assert [one.result() for one in asked] == [("200", "")] * PLACES
            assert running.stop() == 0
