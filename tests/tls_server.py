"""What a test's TLS server is asked, and what it answers."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from answering import Answering, Reply, Request, listening


@dataclass
class TlsServer(Answering):
    """The same with TLS, known by a certificate that it made itself."""

    answer: Callable[[Request], Reply] = lambda request: (404, {}, b"")
    ca_file: Path = Path()

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A key and a certificate for this machine's own names."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with: TLS is NOT tested here")
    key, certificate = folder / "key.pem", folder / "ca.crt"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return key, certificate


@contextmanager
def serving(certificate: tuple[Path, Path]) -> Iterator[TlsServer]:
    """A server that answers what it is told to."""
    key, ca_file = certificate
    server = TlsServer(ca_file=ca_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca_file, key)
    with listening(server, context):
        yield server
