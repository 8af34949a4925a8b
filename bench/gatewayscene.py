"""Starts all processes of the gateway's row: a compiled upstream, a bare proxy, an API server, the
gateway."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.apiserver import ApiServer, content, playbook, version
from bench.gatewayproc import ROOT, Running, gateway, secret
from bench.harness import environment
from bench.ports import free_ports

NO_GO = "go builds the load and the upstream; it is not installed"
RATE, CHUNKS, GAP_MS = 200, 20, 2
PATH = "/v1/chat/completions"
KEY, OTHER_KEY = "key-of-the-bench", "another-key-of-the-bench"
A, B, HANG = "a" * 64, "b" * 64, "c" * 64
NAMES = ",".join(f"{digest[:12]}={name}" for digest, name in ((A, "A"), (B, "B"), (HANG, "hang")))


@dataclass
class Scene:
    """All processes, up."""

    binary: Path
    upstream: str
    bare: str
    bare_process: subprocess.Popen[bytes]
    api: ApiServer
    gateway: Running

    def load(self, url: str, **flags: float | str) -> dict[str, Any]:
        """What a load saw."""
        return load(self.binary, url, **flags)

    @property
    def url(self) -> str:
        """Of the gateway's chat completions."""
        return f"{self.gateway.url}/formula{PATH}"

    def active(self, digest: str, previous: str = "") -> None:
        """Record another active version, as the operator does."""
        told = {"activeDigest": digest, "previousDigest": previous}
        self.api.edit("playbooks", "formula", lambda body: body["status"].update(told))


def built(folder: Path) -> Path | None:
    """The load and the upstream, compiled; None where Go is not installed."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not Path(go).exists():
        return None
    binary = folder / "gatewayload"
    subprocess.run(
        [go, "build", "-o", str(binary), "."],
        cwd=ROOT / "bench" / "gatewayload",
        check=True,
        capture_output=True,
    )
    return binary


@contextmanager
def scene(folder: Path, binary: Path) -> Iterator[Scene]:
    """Upstream, bare proxy, API server and gateway."""
    (bare_port,) = free_ports(1)
    with behind(folder, binary) as (upstream, api):
        command = [sys.executable, "-m", "bench.bare", str(bare_port), upstream]
        process = subprocess.Popen(command, cwd=ROOT, env=environment())
        with ended(process) as bare, gateway(api, folder) as running:
            wait_for(lambda: answers(f"http://127.0.0.1:{bare_port}"))
            yield Scene(binary, upstream, f"http://127.0.0.1:{bare_port}", bare, api, running)


@contextmanager
def behind(folder: Path, binary: Path) -> Iterator[tuple[str, ApiServer]]:
    """What a gateway stands before: the upstream's address, and an API server with a Playbook's versions."""
    port_file = folder / "port"
    secret(folder, "keys", "formula", key=KEY, other=OTHER_KEY)
    process = subprocess.Popen([str(binary), "upstream", str(port_file)], stderr=subprocess.DEVNULL)
    with ended(process), ApiServer() as api:
        wait_for(port_file.exists)
        upstream = f"http://127.0.0.1:{port_file.read_text()}"
        keys = {"secretRef": {"name": "keys"}}
        body = playbook("formula", f"{upstream}/v1", active=A, keys=keys)
        body["spec"]["canary"] = {"mode": "Shadow"}
        api.put("playbooks", body)
        for digest, rule in ((A, "A"), (B, "B"), (HANG, "hang")):
            text = "\n".join(
                ["- [r-1] the rule of " + rule, *(f"- [r-{n}] another rule" for n in range(2, 200))]
            )
            api.put("configmaps", content("formula", digest, text))
            api.put("playbookversions", version("formula", digest))
        yield upstream, api


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """End the process with the block."""
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


def load(binary: Path, url: str, **flags: float | str) -> dict[str, Any]:
    """What a load saw of what is at ``url``; ``flags`` are the load's."""
    command = [str(binary), "load", "-url", url, "-names", NAMES]
    command += [
        f"-{flag}={value}" for flag, value in {"key": KEY, "rate": RATE, "gap": GAP_MS, **flags}.items()
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def digest_served(it: Scene) -> str:
    """Of one request to the gateway."""
    parts = urlsplit(it.gateway.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    body = json.dumps(
        {"model": "m", "user": "probe", "gap": 0, "messages": [{"role": "user", "content": "?"}]}
    )
    try:
        connection.request("POST", f"/formula{PATH}", body, {"Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        answer.read()
        return answer.getheader("x-combee-digest") or ""
    finally:
        connection.close()


def answers(url: str) -> bool:
    """Whether somebody takes connections there."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    try:
        connection.connect()
    except OSError:
        return False
    finally:
        connection.close()
    return True


def wait_for(true: Any) -> None:
    """Until it is; RuntimeError after a minute."""
    deadline = time.monotonic() + 60
    while not true():
        if time.monotonic() > deadline:
            raise RuntimeError("a part of the bench did not come up")
        time.sleep(0.05)


def cpu_seconds(pid: int) -> float:
    """That a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
