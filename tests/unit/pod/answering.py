"""A plain HTTP server on this machine that answers what a test says, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tls_server import Reply, Request


@dataclass
class Answering:
    """Where it is, and what came."""

    answer: Callable[[Request], Reply]
    port: int = 0
    asked: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def answering(answer: Callable[[Request], Reply]) -> Iterator[Answering]:
    server = Answering(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
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
            try:
                self.wfile.write(body)
            except ConnectionError:
                pass  # whoever asked had read enough

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    server.port = listener.server_address[1]
    threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
