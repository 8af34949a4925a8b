"""The gateway's work: it serves the Playbooks of its namespace until told to stop. ``program`` starts it."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import uvloop

from combee import __version__
from combee.assembly.logs import to_stderr
from combee.assembly.probes import serve
from combee.clients.kubernetes.kube import Kube
from combee.clients.server import Server
from combee.errors import CombeeError, UserError
from combee.gateway.directing import Director, Secrets
from combee.gateway.door import KEEP_ALIVE_SECONDS, Connection, Door
from combee.gateway.metrics import Metrics
from combee.gateway.page.app import Page
from combee.gateway.proxy import Gateway
from combee.gateway.room import EACH, Room
from combee.gateway.shadow import Shadow
from combee.gateway.spool import Spool
from combee.gateway.upstream import Upstreams
from combee.settings import GatewaySettings, read_settings

log = logging.getLogger(__name__)
STOP_SECONDS = 60
"""Requests under way may take so long to end after SIGTERM."""
BEAT_SECONDS, STALE_SECONDS = 0.25, 30.0
PRESSED_SECONDS = 0.05
"""A loop that runs later than this has no time for mirrored requests."""
UNREAD_BYTES = 24 * 1024
"""What a client can send before anything is read. The kernel doubles it, and one read may bring most of
that: with what a connection takes besides, it comes to EACH at most."""
ACCEPTED_AT_ONCE = 32
"""Connections that are accepted in one turn of the loop. uvloop accepts one of each listening socket, a busy
loop has few turns a second, and the kernel resets connections that wait too long."""


def start() -> None:
    """Serve as the environment says; the process ends with an error's exit code."""
    try:
        settings = read_settings(GatewaySettings, "combee-gateway")
        to_stderr(settings.log_level)
        # A request that breaks off is logged once, by us; the server's own log would add its stack.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(settings))
    except CombeeError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2 if isinstance(error, UserError) else 1)


@dataclass(slots=True)
class Life:
    """Whether the event loop is running, and whether there is something to serve."""

    beat: float
    director: Director
    stopping: bool = False
    late: float = 0.0
    """how late the loop's last beat was, in seconds."""

    def alive(self) -> bool:
        """Return whether the loop has run lately."""
        return time.monotonic() - self.beat < STALE_SECONDS

    def pressed(self) -> bool:
        """Return whether the loop runs late, so that active requests need all of its time."""
        return self.late > PRESSED_SECONDS

    def ready(self) -> bool:
        """Return whether the API server has answered once; it may be unreachable now."""
        return self.director.table.known and not self.stopping


async def run(settings: GatewaySettings) -> None:
    """Serve until SIGTERM or SIGINT, then let requests under way end."""
    _raise_files_limit()
    metrics, room = Metrics(), Room.of(settings.memory)
    metrics.look_at(room)
    kube = await Kube.connect()
    director = Director(kube, settings.namespace, Secrets(settings.secrets), metrics, settings.traffic)
    life = Life(time.monotonic(), director)
    spool = Spool(lost=lambda playbook, lines: metrics.mirrored.labels(playbook, "Failed").inc(lines))
    with listening(settings.host, settings.port) as sockets:
        async with Upstreams() as upstreams, Upstreams() as mirrored:
            shadow = Shadow(mirrored, spool, metrics, room, life.pressed)
            page = Page(lambda: director.table, director.seen, director.content, metrics, settings.namespace)
            door = Door(room.most // EACH, settings.connections_per_client, metrics.turned_away)
            metrics.look_through(door)
            gateway = Gateway(lambda: director.table, upstreams, metrics, room, shadow, page)
            server = server_of(gateway, door)
            _stop_on_signals(server, life, door)
            _serve_probes(metrics, settings.metrics_port, life)
            log.info("at work", extra={"version": __version__, "namespace": settings.namespace})
            background = [
                asyncio.create_task(work)
                for work in (director.run(), _beat(life, gateway), spool.run(director.places))
            ]
            try:
                await _until_done(server, sockets, background)
            finally:
                await shadow.aclose()
                for task in background:
                    task.cancel()
                await asyncio.gather(*background, return_exceptions=True)
                await kube.aclose()


async def _until_done(
    server: Server, sockets: list[socket.socket], background: list[asyncio.Task[None]]
) -> None:
    """Serve until told to stop, or until a background task ends, which none should."""
    serving = asyncio.create_task(server.serve(sockets=sockets))
    await asyncio.wait({serving, *background}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    for task in background:
        if task.done():
            task.result()


def server_of(app: Gateway, door: Door) -> Server:
    """Return the server of the gateway's clients."""
    return Server(
        app,
        interface="asgi3",
        http=partial(Connection, door=door),
        date_header=False,
        backlog=door.most,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


def _raise_files_limit() -> None:
    """Allow as many open files as the system does: a request takes two, and some runtimes begin at 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def listening(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Yield the gateway's socket, as often as connections are accepted in one turn."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack:
        # The protocol is named because asyncio turns Nagle's delay off only then.
        bound = stack.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNREAD_BYTES)
        bound.bind((host, port))
        yield [bound, *(stack.enter_context(bound.dup()) for _ in range(ACCEPTED_AT_ONCE - 1))]


def _stop_on_signals(server: Server, life: Life, door: Door) -> None:
    def stop() -> None:
        life.stopping = door.stopping = True
        server.should_exit = True

    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop)


def _serve_probes(metrics: Metrics, port: int, life: Life) -> None:
    threading.Thread(
        target=serve, args=(metrics, port), kwargs={"alive": life.alive, "ready": life.ready}, daemon=True
    ).start()


async def _beat(life: Life, gateway: Gateway) -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        now = time.monotonic()
        life.late, life.beat = max(0.0, now - life.beat - BEAT_SECONDS), now
        gateway.beat(life.late)
