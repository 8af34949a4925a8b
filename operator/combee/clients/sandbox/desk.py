"""The desk where pods of a user's image fetch rollouts and hand in their results: three small HTTP requests.

A pod, which holds no secrets, asks for a rollout with ``claim`` and the run's token, reports with ``beat``
that it is still at work, and hands in its result with ``left``. Each claimed rollout has its own key, which
becomes void once the rollout ends: a pod that comes too late, or twice, gets 401 and changes nothing.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from combee.clients.sandbox.deskwire import BEAT, CLAIM, KILLED, LEFT, LOST_SECONDS
from combee.clients.sandbox.sandbox import SAID_BYTES, Run

WAIT_SECONDS = 1.0
"""How long a pod's claim waits for a rollout: other desks may have one."""
LOOK_SECONDS = 1.0
WHY = ("", "timeout", "disk")
"""Why a rollout was ended, as in ``sandbox.Run``; empty when it ended by itself."""
_LOST = "its pod was lost"


@dataclass(slots=True, eq=False)
class _Work:
    """A rollout that waits for a pod, or is under way."""

    task: Mapping[str, Any]
    outputs: Mapping[str, int]
    ended: asyncio.Future[Run]
    key: str = ""
    last_beat: float = 0.0
    started: bool = False
    """Whether the user's container was started."""


@dataclass(slots=True, eq=False)
class RolloutDesk:
    """Serve its ``routes``, and call ``run`` for each rollout. ``token``: the run's token, which its pods
    send; ``seconds`` and ``scratch_bytes``: the limits of one rollout."""

    token: str
    seconds: float
    scratch_bytes: int
    clock: Callable[[], float] = time.monotonic
    _waiting: deque[_Work] = field(default_factory=deque)
    _claimed: dict[str, _Work] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def routes(self) -> tuple[Route, ...]:
        """The routes to serve."""
        return (
            Route(CLAIM, self._claim, methods=["POST"]),
            Route(BEAT, self._beat, methods=["POST"]),
            Route(LEFT, self._hand_in, methods=["POST"]),
        )

    async def run(
        self,
        files: Mapping[str, bytes],
        env: Mapping[str, str],
        outputs: Mapping[str, int],
        stop: asyncio.Future[Any],
    ) -> Run:
        """Have a pod run a rollout, and return how it ended; ``why`` is ``stopped`` when ``stop`` is done
        first.

        ``outputs`` maps the name of each file to bring back to its most bytes. When a pod is lost before it
        starts the rollout, another pod gets it.
        """
        task = {
            "files": {name: _text(data) for name, data in files.items()},
            "env": dict(env),
            "left": dict(outputs),
            "seconds": self.seconds,
            "scratchBytes": self.scratch_bytes,
        }
        work = _Work(task, outputs, asyncio.get_running_loop().create_future())
        self._offer(work)
        began = self.clock()
        try:
            while not work.ended.done():
                await asyncio.wait(
                    {work.ended, stop}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if stop.done() and not work.ended.done():
                    return Run(KILLED, "stopped", self.clock() - began, {}, "")
                self._look(work)
            return work.ended.result()
        finally:
            self._forget(work)

    def _offer(self, work: _Work) -> None:
        work.key, work.started = "", False
        self._waiting.append(work)
        self._news.set()

    def _look(self, work: _Work) -> None:
        """Offer the rollout again, or end it, when its pod has been silent for too long."""
        silent = self.clock() - work.last_beat
        if not work.key or work.ended.done() or silent < LOST_SECONDS:
            return
        if work.started:
            work.ended.set_result(Run(KILLED, "", silent, {}, _LOST))
            return
        del self._claimed[work.key]
        self._offer(work)

    def _forget(self, work: _Work) -> None:
        self._claimed.pop(work.key, None)
        with contextlib.suppress(ValueError):
            self._waiting.remove(work)

    async def _claim(self, request: Request) -> Response:
        if not hmac.compare_digest(_bearer(request).encode(), self.token.encode()):
            return Response(status_code=401)
        work = await self._next()
        if work is None:
            return Response(status_code=204)
        if await request.is_disconnected():
            self._offer(work)
            return Response(status_code=204)
        work.key, work.last_beat = secrets.token_urlsafe(24), self.clock()
        self._claimed[work.key] = work
        # The pod needs this desk's own address: the address that it asked may lead to any of several desks.
        return JSONResponse({**work.task, "key": work.key, "desk": _address(request)})

    async def _next(self) -> _Work | None:
        until = self.clock() + WAIT_SECONDS
        while not self._waiting:
            remaining = until - self.clock()
            if remaining <= 0:
                return None
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), remaining)
        return self._waiting.popleft()

    async def _beat(self, request: Request) -> Response:
        work = self._claimed.get(_bearer(request))
        if work is None:
            return Response(status_code=401)
        work.last_beat, work.started = self.clock(), request.query_params.get("begun") == "1"
        return Response(status_code=204)

    async def _hand_in(self, request: Request) -> Response:
        work = self._claimed.get(_bearer(request))
        if work is None:
            return Response(status_code=401)
        most = 64 * 1024 + 2 * (sum(work.outputs.values()) + SAID_BYTES)
        try:
            report = json.loads(await _read(request, most))
            run = _run(report, work.outputs)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ClientDisconnect):
            return Response(status_code=400)
        if not work.ended.done():
            work.ended.set_result(run)
        return Response(status_code=204)


def _run(report: Mapping[str, Any], outputs: Mapping[str, int]) -> Run:
    """Return the run that a pod handed in. Raises ValueError, KeyError or TypeError for anything else."""
    code, why, seconds, words = report["code"], report["why"], report["seconds"], report["said"]
    if not isinstance(code, int) or not isinstance(seconds, int | float) or why not in WHY:
        raise ValueError("not how a rollout ended")
    files = {
        name: base64.b64decode(report["files"][name], validate=True)
        for name in outputs
        if name in report["files"]
    }
    cut = {name: data[: outputs[name] + 1] for name, data in files.items()}
    return Run(code, why, float(seconds), cut, str(words)[-SAID_BYTES:])


async def _read(request: Request, most: int) -> bytes:
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > most:
            raise ValueError("too long")
    return bytes(data)


def _bearer(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _address(request: Request) -> str:
    """Return this desk's own address: the one that the connection came to."""
    host, port = request.scope["server"]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
