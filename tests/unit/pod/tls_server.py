"""What a test's TLS server is asked, and what it answers."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

Reply = tuple[int, dict[str, str], bytes]


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class TlsServer:
    """Answers with what ``answer`` says; remembers what it was asked."""

    ca_file: Path
    port: int = 0
    asked: list[Request] = field(default_factory=list)
    answer: Callable[[Request], Reply] = lambda request: (404, {}, b"")

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
    server = TlsServer(ca_file)

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            asked = self.rfile.read(length)
            if len(asked) < length:
                return  # whoever asked went before it had asked
            request = Request(self.command, self.path, dict(self.headers), asked)
            server.asked.append(request)
            status, headers, body = server.answer(request)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_POST = handle_one

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca_file, key)
    listener.socket = context.wrap_socket(listener.socket, server_side=True)
    server.port = listener.server_address[1]
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
