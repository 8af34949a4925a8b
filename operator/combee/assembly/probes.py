"""The port that Prometheus and the kubelet ask of an operator or a gateway: /metrics, /healthz, /readyz."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

MOST_CONNECTIONS = 16
"""connections at once. The oldest gives way to a new one."""
IDLE_SECONDS = 5


class _Quiet(WSGIRequestHandler):
    """Logs no requests, since probes come every few seconds."""

    timeout = IDLE_SECONDS

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    """Has a thread for each connection, so that one that says nothing holds up no probe."""

    daemon_threads = True

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._open: dict[Any, None] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own."""
        if len(self._open) >= MOST_CONNECTIONS:
            with suppress(OSError, StopIteration, RuntimeError):
                oldest = next(iter(self._open))
                self._open.pop(oldest, None)
                oldest.shutdown(socket.SHUT_RDWR)
        self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing of a client that said nothing or left."""


class Counted(Protocol):
    """Any object with a registry of metrics."""

    @property
    def registry(self) -> CollectorRegistry:
        """The registry of its metrics."""


def serve(metrics: Counted, port: int, *, alive: Callable[[], bool], ready: Callable[[], bool]) -> None:
    """Answer requests on ``port``. It blocks, so run it on its own thread."""
    exposition = make_wsgi_app(metrics.registry)

    def app(environ, start_response):  # type: ignore[no-untyped-def]
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return exposition(environ, start_response)
        probe = {"/healthz": alive, "/readyz": ready}.get(path)
        if probe is None:
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"see /metrics, /healthz, /readyz\n"]
        healthy = probe()
        start_response("200 OK" if healthy else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"ok\n" if healthy else b"not ok\n"]

    make_server("", port, app, _Server, _Quiet).serve_forever()
