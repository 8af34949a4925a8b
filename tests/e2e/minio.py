"""A real S3 server: MinIO, found or built once from its public Go module."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bench.ports import free_ports
from e2e_support import ROOT

USER, PASSWORD = "combee-test", "combee-test-secret"
SETTINGS = ROOT / "tests" / "cluster" / "node" / "settings.sh"


def program() -> Path:
    """The server's program: the cluster's, PATH's, or built. Skips, saying why, where there can be none."""
    version = re.search(r"^MINIO=(\S+)", SETTINGS.read_text(), re.MULTILINE)
    assert version is not None
    cache = Path(os.environ.get("COMBEE_CLUSTER_CACHE", "/var/cache/combee-cluster"))
    own = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "combee" / f"minio-{version[1]}"
    on_path = shutil.which("minio")
    for found in (cache / f"minio-{version[1]}" / "minio", Path(on_path) if on_path else own, own / "minio"):
        if found.is_file():
            return found
    if shutil.which("go") is None:
        pytest.skip("no minio and no go to build it with: S3 is NOT tested here")
    command = [
        "go",
        "install",
        "-ldflags",
        "-s -w",
        f"github.com/minio/minio@v{version[1].removeprefix('v')}",
    ]
    built = subprocess.run(
        command,
        env={**os.environ, "GOBIN": str(own), "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        pytest.skip(f"minio cannot be built: S3 is NOT tested here: {built.stderr[-300:]}")
    return own / "minio"


@dataclass
class Minio:
    """A running server with one bucket; ``stop`` and ``start`` keep what it holds."""

    folder: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None)

    def __post_init__(self) -> None:
        (self.port,) = free_ports(1)
        (self.folder / "data" / "combee").mkdir(parents=True)  # a folder is a bucket
        self.start()

    @property
    def secret(self) -> dict[str, str]:
        """The keys of a Secret for it."""
        return {
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": PASSWORD,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
        }

    def start(self) -> None:
        command = [program(), "server", "--quiet", "--config-dir", self.folder / "config"]
        command += ["--address", f"127.0.0.1:{self.port}", self.folder / "data"]
        variables = {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": PASSWORD, "MINIO_BROWSER": "off"}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=log, stderr=log)
        until = time.monotonic() + 240
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self.process.poll() is None and time.monotonic() < until, (
                    self.folder / "log"
                ).read_text()
                time.sleep(0.1)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
