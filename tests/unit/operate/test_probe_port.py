"""The port of probes and metrics answers whatever else is connected to it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading

from prometheus_client import CollectorRegistry

from combee.assembly.probes import MOST_CONNECTIONS, serve
from waiting import PATIENCE_SECONDS


class Counts:
    registry = CollectorRegistry()


def asked(port: int, path: str) -> int:
    """The status of the answer; the port may not be open yet."""
    for _ in range(int(PATIENCE_SECONDS * 10)):
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        try:
            link.request("GET", path)
            return link.getresponse().status
        except ConnectionRefusedError:
            threading.Event().wait(0.1)
        finally:
            link.close()
    raise AssertionError("the port does not open")


def test_connections_that_say_nothing_hold_up_no_probe() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    threading.Thread(
        target=serve,
        args=(Counts(), port),
        kwargs={"alive": lambda: True, "ready": lambda: False},
        daemon=True,
    ).start()
    assert asked(port, "/healthz") == 200
    with contextlib.ExitStack() as opened:
        for _ in range(3 * MOST_CONNECTIONS):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert [asked(port, path) for path in ("/healthz", "/readyz", "/metrics")] == [200, 503, 200]
