"""A copy of all objects of one kind in a namespace, kept true by list and watch.

It outlives outages: the copy stays as it was while the API server is away, and is made anew from a
list when the watch cannot go on where it stopped.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Generic, TypeVar, cast

from combee.clients.kubernetes.kube import PAGE, Kube, Object, place
from combee.errors import ClusterError

log = logging.getLogger(__name__)
T = TypeVar("T")
WATCH_SECONDS = 290
"""The server ends a watch after it; the next one goes on there."""
SILENCE_SECONDS = 90.0
"""The server sends a bookmark every minute: after a longer silence nobody is there."""
LONGEST_WAIT_SECONDS = 5.0
LEAST_SECONDS = 0.5
"""A server that ends watches at once is not asked faster."""


class Mirror(Generic[T]):
    """``keep`` makes of an object what is kept of it; ``changed`` is called after every change."""

    def __init__(
        self, kube: Kube, kind: str, namespace: str, keep: Callable[[Object], T], changed: Callable[[], None]
    ) -> None:
        self._kube, self._kind, self._namespace = kube, kind, namespace
        self._keep, self._changed = keep, changed
        self._version = ""
        self.objects: dict[str, T] = {}
        """by name"""
        self.known = False
        """whether a first list has come"""
        self.watching = False
        """whether changes come in at the moment"""

    async def run(self) -> None:
        """For ever; every ClusterError is logged once and tried again."""
        wait, failed = 0.1, ""
        while True:
            try:
                if not self._version:
                    await self._list()
                began = time.monotonic()
                await self._watch()
                wait, failed = 0.1, ""
                if time.monotonic() - began < LEAST_SECONDS:
                    await asyncio.sleep(LEAST_SECONDS)
            except ClusterError as error:
                self._version = "" if error.status == 410 else self._version
                if error.status == 410:
                    continue
                if str(error) != failed:
                    log.warning("no watch", extra={"kind": self._kind, "error": str(error)})
                failed = str(error)
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads, guards nothing
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
            finally:
                self.watching = False

    async def _list(self) -> None:
        query = {"limit": str(PAGE)}
        objects: dict[str, T] = {}
        while True:
            body = (await self._kube.request("GET", place(self._kind, self._namespace), query=query)).body
            objects |= {one["metadata"]["name"]: self._keep(one) for one in body.get("items") or ()}
            meta = body.get("metadata") or {}
            if not meta.get("continue"):
                break
            query["continue"] = meta["continue"]
        self.objects, self._version, self.known = objects, str(meta["resourceVersion"]), True
        self._changed()

    async def _watch(self) -> None:
        query = {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        pieces = self._kube.stream(
            place(self._kind, self._namespace), query=query, silence_seconds=SILENCE_SECONDS
        )
        async with aclosing(_lines(pieces)) as lines:
            self.watching = True
            async for line in lines:
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        changed, kind = event["object"], event["type"]
        if kind == "ERROR":
            raise ClusterError(
                str(changed.get("message", "")), where="watch", status=int(changed.get("code") or 0)
            )
        self._version = str(changed["metadata"]["resourceVersion"])
        if kind == "BOOKMARK":
            return
        if kind == "DELETED":
            self.objects.pop(changed["metadata"]["name"], None)
        else:
            self.objects[changed["metadata"]["name"]] = self._keep(changed)
        self._changed()


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    held = b""
    async with aclosing(cast(AsyncGenerator[bytes, None], pieces)):
        async for piece in pieces:
            *whole, held = (held + piece).split(b"\n")
            for line in whole:
                if line.strip():
                    yield line
