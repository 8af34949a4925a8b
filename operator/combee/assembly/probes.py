"""The port that Prometheus and the kubelet ask of an operator or a gateway: /metrics, /healthz, /readyz."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app


class _Quiet(WSGIRequestHandler):
    """Logs no requests, since probes come every few seconds."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


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

    make_server("", port, app, handler_class=_Quiet).serve_forever()
