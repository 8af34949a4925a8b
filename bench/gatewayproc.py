"""A gateway in a process of its own, with what it is given mounted in a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.apiserver import NAMESPACE, ApiServer
from bench.ports import free_ports

ROOT = Path(__file__).resolve().parents[1]


class Process(Protocol):
    """The part of ``subprocess.Popen`` that a gateway is run by."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...


@dataclass
class Running:
    """A gateway that runs."""

    url: str
    probes: str
    process: Process
    log: Path

    def metrics(self) -> str:
        """Its /metrics."""
        with urllib.request.urlopen(f"{self.probes}/metrics", timeout=60) as answer:
            text: str = answer.read().decode()
            return text

    def stop(self) -> int:
        """Tell it to stop; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(240)


def cold(variables: Mapping[str, str], log: Path) -> Process:
    """Start it as a container does."""
    with log.open("ab") as errors:
        words = [sys.executable, "-m", "combee.gateway.program"]
        return subprocess.Popen(words, env=variables, stdout=errors, stderr=errors)


@contextmanager
def gateway(
    api: ApiServer,
    folder: Path,
    start: Callable[[Mapping[str, str], Path], Process] = cold,
    **environment: str,
) -> Iterator[Running]:
    """A gateway of the namespace, ready."""
    port, probes = free_ports(2)
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "operator"),
        "KUBECONFIG": str(api.kubeconfig(folder)),
        "POD_NAMESPACE": NAMESPACE,
        "COMBEE_GATEWAY_HOST": "127.0.0.1",
        "COMBEE_GATEWAY_PORT": str(port),
        "COMBEE_METRICS_PORT": str(probes),
        "COMBEE_GATEWAY_SECRETS": str(folder / "secrets"),
        "COMBEE_GATEWAY_TRAFFIC": str(folder / "traffic"),
        **environment,
    }
    log = folder / "gateway.log"
    process = start(variables, log)
    running = Running(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{probes}", process, log)
    try:
        _until_ready(running)
        yield running
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(20)


def secret(folder: Path, kind: str, name: str, **values: str) -> None:
    """Mount a Secret: kind upstream or keys."""
    target = folder / "secrets" / kind / name
    target.mkdir(parents=True, exist_ok=True)
    for key, value in values.items():
        (target / key).write_text(value)


def _until_ready(running: Running) -> None:
    deadline = time.monotonic() + 240
    while True:
        if running.process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the gateway did not come up: {running.log.read_text()}")
        try:
            with urllib.request.urlopen(f"{running.probes}/readyz", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
