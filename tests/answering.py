"""An HTTP server on this machine that answers what a test says, and remembers what it was asked."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = tuple[int, dict[str, str], bytes]


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answering:
    """Where it is, and what came."""

    answer: Callable[[Request], Reply]
    port: int = 0
    host: str = "127.0.0.1"
    asked: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def in_json(body: object, status: int = 200) -> Reply:
    """A reply with a body of JSON."""
    return status, {"Content-Type": "application/json"}, json.dumps(body).encode()


@contextmanager
def answering(answer: Callable[[Request], Reply], host: str = "127.0.0.1") -> Iterator[Answering]:
    server = Answering(answer, host=host)
    with listening(server):
        yield server


@contextmanager
def listening(server: Answering, tls: ssl.SSLContext | None = None) -> Iterator[None]:
    """Take connections for a server, with TLS where a context is given."""

    class Handler(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            if len(body) < length:
                return  # the client went away before its request was whole
            request = Request(self.command, self.path, dict(self.headers), body)
            server.asked.append(request)
            status, headers, answer = server.answer(request)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # the client had read enough
                self.wfile.write(b"" if self.command == "HEAD" else answer)

        do_GET = do_HEAD = do_POST = handle_one

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    listener = ThreadingHTTPServer((server.host, 0), Handler)
    listener.daemon_threads = True
    if tls is not None:
        listener.socket = tls.wrap_socket(listener.socket, server_side=True)
    server.port = listener.server_address[1]
    threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield
    finally:
        listener.shutdown()
        listener.server_close()
