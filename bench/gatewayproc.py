"""A gateway in a process of its own, with what it is given mounted in a folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.apiserver import NAMESPACE, ApiServer

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Running:
    """A gateway that runs."""

    url: str
    probes: str
    process: subprocess.Popen[bytes]
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


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def gateway(api: ApiServer, folder: Path, **environment: str) -> Iterator[Running]:
    """A gateway of the namespace, ready."""
    port, probes = free_port(), free_port()
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
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "combee.gateway.program"], env=variables, stdout=errors, stderr=errors
        )
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
