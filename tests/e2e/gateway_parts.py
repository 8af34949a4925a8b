"""A gateway in its own process, between a stand-in for an API server and an upstream that keeps its
requests."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bench.apiserver import NAMESPACE, ApiServer, content, playbook, under_test, version
from bench.gatewayproc import Running, secret
from bench.gatewayproc import gateway as cold_gateway

from waiting import PATIENCE_SECONDS
from warm import Program

__all__ = [
    "NAMESPACE",
    "ApiServer",
    "Running",
    "Upstream",
    "cold_gateway",
    "content",
    "gateway",
    "playbook",
    "secret",
    "under_test",
    "version",
]

gateway = partial(cold_gateway, start=lambda variables, log: Program(["combee-gateway"], variables, log, log))


@dataclass
class Upstream:
    """An OpenAI-like server that answers what it is told to and keeps what it was asked."""

    seen: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    """path, headers, body of each request."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    answer: bytes = b'{"object": "chat.completion"}'
    pieces: list[bytes] = field(default_factory=list)
    """sent one by one where given, chunked."""
    pause: float = 0.0
    onward: threading.Event | None = None
    """send what follows the first piece once it is set."""
    cut: bool = False
    """drop the connection before the end."""
    hold: threading.Event | None = None
    """answer once it is set."""
    gone: threading.Event = field(default_factory=threading.Event)
    """set when the other side went away while pieces were sent."""
    url: str = ""

    def __enter__(self) -> Upstream:
        told = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                told.seen.append((self.path, dict(self.headers.items()), self.rfile.read(length)))
                try:
                    self._answer()
                except OSError:
                    told.gone.set()
                    self.close_connection = True

            do_GET = do_POST

            def _answer(self) -> None:
                if told.hold is not None:
                    told.hold.wait(PATIENCE_SECONDS)
                self.send_response(told.status)
                for name, value in told.headers.items():
                    self.send_header(name, value)
                if not told.pieces:
                    answer = told.respond(told.seen[-1][2])
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                    return
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in told.pieces:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.flush()
                    if told.onward is not None:
                        told.onward.wait(PATIENCE_SECONDS)
                    time.sleep(told.pause)
                if told.cut:
                    self.close_connection = True
                    return
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def respond(self, body: bytes) -> bytes:
        """The answer to a body."""
        return self.answer

    def messages(self, index: int = -1) -> list[dict[str, Any]]:
        """The messages of a request that it was sent."""
        found: list[dict[str, Any]] = json.loads(self.seen[index][2])["messages"]
        return found
