"""Where pods of a user's image fetch a rollout and hand in what it left: three requests of a small HTTP protocol.

A pod beside nobody's secrets asks ``claim`` with the run's token, tells by ``beat`` that it is still at it, and hands
in by ``left``. What is claimed has a key of its own, which is void once the rollout is over: a pod that comes too late,
or twice, is told so (401) and changes nothing.
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
"""How long a pod that asks is kept waiting for something to do: there may be other desks that have it."""
LOOK_SECONDS = 1.0
WHY = ("", "timeout", "disk")
"""why a rollout was ended, as ``sandbox.Run`` says it; empty: by itself."""
_LOST = "its pod was lost"


@dataclass(slots=True, eq=False)
class _Work:
    """A rollout that is to be done, or is under way."""

    task: Mapping[str, Any]
    left: Mapping[str, int]
    done: asyncio.Future[Run]
    key: str = ""
    heard: float = 0.0
    begun: bool = False
    """whether the user's container was started."""


@dataclass(slots=True, eq=False)
class RolloutDesk:
    """Serve its ``routes``, and ``run`` each rollout. ``token`` is what a pod of the run shows; ``seconds`` and
    ``scratch_bytes`` what one rollout may take."""

    token: str
    seconds: float
    scratch_bytes: int
    clock: Callable[[], float] = time.monotonic
    _waiting: deque[_Work] = field(default_factory=deque)
    _claimed: dict[str, _Work] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def routes(self) -> tuple[Route, ...]:
        """To be served."""
        return (
            Route(CLAIM, self._claim, methods=["POST"]),
            Route(BEAT, self._beat, methods=["POST"]),
            Route(LEFT, self._left, methods=["POST"]),
        )

    async def run(
        self,
        files: Mapping[str, bytes],
        env: Mapping[str, str],
        left: Mapping[str, int],
        stop: asyncio.Future[Any],
    ) -> Run:
        """Have a pod run it, and say how it ended; ``why`` is ``stopped`` when ``stop`` is done first.

        A pod that was lost before it began costs nothing: another one gets the rollout.
        """
        task = {
            "files": {name: _text(data) for name, data in files.items()},
            "env": dict(env),
            "left": dict(left),
            "seconds": self.seconds,
            "scratchBytes": self.scratch_bytes,
        }
        work = _Work(task, left, asyncio.get_running_loop().create_future())
        self._offer(work)
        began = self.clock()
        try:
            while not work.done.done():
                await asyncio.wait(
                    {work.done, stop}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if stop.done() and not work.done.done():
                    return Run(KILLED, "stopped", self.clock() - began, {}, "")
                self._look(work)
            return work.done.result()
        finally:
            self._forget(work)

    def _offer(self, work: _Work) -> None:
        work.key, work.begun = "", False
        self._waiting.append(work)
        self._news.set()

    def _look(self, work: _Work) -> None:
        """See whether the pod that has it is still there."""
        silent = self.clock() - work.heard
        if not work.key or work.done.done() or silent < LOST_SECONDS:
            return
        if work.begun:
            work.done.set_result(Run(KILLED, "", silent, {}, _LOST))
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
        work.key, work.heard = secrets.token_urlsafe(24), self.clock()
        self._claimed[work.key] = work
        # Which of several desks it is: the one address that is asked for work may lead to any.
        return JSONResponse({**work.task, "key": work.key, "desk": _address(request)})

    async def _next(self) -> _Work | None:
        until = self.clock() + WAIT_SECONDS
        while not self._waiting:
            rest = until - self.clock()
            if rest <= 0:
                return None
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), rest)
        return self._waiting.popleft()

    async def _beat(self, request: Request) -> Response:
        work = self._claimed.get(_bearer(request))
        if work is None:
            return Response(status_code=401)
        work.heard, work.begun = self.clock(), request.query_params.get("begun") == "1"
        return Response(status_code=204)

    async def _left(self, request: Request) -> Response:
        work = self._claimed.get(_bearer(request))
        if work is None:
            return Response(status_code=401)
        most = 64 * 1024 + 2 * (sum(work.left.values()) + SAID_BYTES)
        try:
            told = json.loads(await _read(request, most))
            found = _run(told, work.left)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ClientDisconnect):
            return Response(status_code=400)
        if not work.done.done():
            work.done.set_result(found)
        return Response(status_code=204)


def _run(told: Mapping[str, Any], left: Mapping[str, int]) -> Run:
    """What a pod handed in. ValueError and its like for what is none."""
    code, why, seconds, said = told["code"], told["why"], told["seconds"], told["said"]
    if not isinstance(code, int) or not isinstance(seconds, int | float) or why not in WHY:
        raise ValueError("not how a rollout ended")
    files = {
        name: base64.b64decode(told["files"][name], validate=True) for name in left if name in told["files"]
    }
    cut = {name: data[: left[name] + 1] for name, data in files.items()}
    return Run(code, why, float(seconds), cut, str(said)[-SAID_BYTES:])


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
    """This very desk's: the address that the connection came to."""
    host, port = request.scope["server"]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
