"""The port of an operator or a gateway that Prometheus and the kubelet ask: /metrics, /healthz, /readyz."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app


class _Quiet(WSGIRequestHandler):
    """Probes come every few seconds; they are no news."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Counted(Protocol):
    """Whatever has a registry."""

    @property
    def registry(self) -> CollectorRegistry:
        """Its metrics."""


def serve(metrics: Counted, port: int, *, alive: Callable[[], bool], ready: Callable[[], bool]) -> None:
    """Answer on ``port``; blocks, to be run on a thread of its own."""
    exposition = make_wsgi_app(metrics.registry)

    def app(environ, start_response):  # type: ignore[no-untyped-def]
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return exposition(environ, start_response)
        good = {"/healthz": alive, "/readyz": ready}.get(path)
        if good is None:
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"see /metrics, /healthz, /readyz\n"]
        fine = good()
        start_response("200 OK" if fine else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"ok\n" if fine else b"not ok\n"]

    make_server("", port, app, handler_class=_Quiet).serve_forever()
