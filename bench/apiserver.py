"""As much of a Kubernetes API server as a gateway asks of one: list, watch, get, review. In a thread of its
own.

It stands in where what is measured or tested is the gateway and no cluster is needed; that the gateway works
with a real API server is shown on a real cluster.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from aiohttp import web

Object = dict[str, Any]
T = TypeVar("T")
NAMESPACE = "team-a"
OURS = f"/apis/combee.dev/v1alpha1/namespaces/{NAMESPACE}"


@dataclass
class ApiServer:
    """``with ApiServer() as api``: serves until the block ends. ``put`` and ``drop`` change what it holds."""

    port: int = 0
    tokens: dict[str, Object] = field(default_factory=dict)
    """token -> the status of its review."""
    reviews: int = 0
    _objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    _events: list[tuple[str, str, Object]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _runner: web.AppRunner | None = None

    def __enter__(self) -> Self:
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def start(self) -> None:
        """Take connections (again)."""
        self._do(self._start())

    def stop(self) -> None:
        """Drop all connections and take none: an API server that is away."""
        self._do(self._stop())

    def put(self, plural: str, body: Object, *, kind: str = "MODIFIED") -> None:
        """Make or change an object; watches hear of it."""
        self._do(self._put(plural, body, kind))

    def drop(self, plural: str, name: str) -> None:
        """Delete an object."""
        self._do(self._put(plural, self._objects[plural, name], "DELETED"))

    def get(self, plural: str, name: str) -> Object:
        """A copy of what it holds."""
        copied: Object = json.loads(json.dumps(self._objects[plural, name]))
        return copied

    def edit(self, plural: str, name: str, change: Callable[[Object], object]) -> None:
        """Change a copy of an object and put it back."""
        body = self.get(plural, name)
        change(body)
        self.put(plural, body)

    def kubeconfig(self, folder: Path) -> Path:
        """A KUBECONFIG that leads here."""
        path = folder / "kubeconfig"
        context = {"name": "it", "context": {"cluster": "it", "user": "it", "namespace": NAMESPACE}}
        cluster = {"name": "it", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        user = {"name": "it", "user": {"token": "gateway"}}
        document = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "it"}
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **document}))
        return path

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _start(self) -> None:
        app = web.Application()
        for plural in ("playbooks", "playbookversions"):
            app.router.add_get(f"{OURS}/{plural}", self._listed)
        app.router.add_get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{{name}}", self._config_map)
        app.router.add_post("/apis/authentication.k8s.io/v1/tokenreviews", self._review)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _put(self, plural: str, body: Object, kind: str) -> None:
        body["metadata"] = {**body["metadata"], "resourceVersion": str(len(self._events) + 1)}
        key = plural, str(body["metadata"]["name"])
        if kind == "DELETED":
            self._objects.pop(key, None)
        else:
            self._objects[key] = body
        self._events.append((plural, kind, body))
        self._changed.set()
        self._changed = asyncio.Event()

    async def _listed(self, request: web.Request) -> web.StreamResponse:
        plural = request.path.rsplit("/", 1)[1]
        if request.query.get("watch"):
            return await self._watched(request, plural, int(request.query["resourceVersion"]))
        items = [body for (of, _), body in self._objects.items() if of == plural]
        return web.json_response({"metadata": {"resourceVersion": str(len(self._events))}, "items": items})

    async def _watched(self, request: web.Request, plural: str, seen: int) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            changed = self._changed
            for of, kind, body in self._events[seen:]:
                if of != plural:
                    continue
                try:
                    await response.write(json.dumps({"type": kind, "object": body}).encode() + b"\n")
                except ConnectionError:
                    return response  # whoever watched is gone, or we were stopped meanwhile
            seen = len(self._events)
            await changed.wait()

    async def _config_map(self, request: web.Request) -> web.Response:
        body = self._objects.get(("configmaps", request.match_info["name"]))
        return web.json_response(body) if body is not None else web.json_response({}, status=404)

    async def _review(self, request: web.Request) -> web.Response:
        self.reviews += 1
        asked = await request.json()
        status = self.tokens.get(asked["spec"]["token"], {"authenticated": False})
        return web.json_response({"status": status}, status=201)


def playbook(name: str, upstream: str, *, active: str = "", **gateway: Any) -> Object:
    """A Playbook that the gateway serves, as the API server holds it."""
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"delivery": {"gateway": {"enabled": True, "upstream": {"url": upstream}, **gateway}}},
        "status": {"activeDigest": active} if active else {},
    }


def version(of: str, digest: str, *, decision: str = "Auto", created: int = 0) -> Object:
    """One of its versions; its content is in the ConfigMap ``<of>-<digest12>``."""
    name = f"{of}-{digest[:12]}"
    return {
        "metadata": {"name": name, "creationTimestamp": f"2026-01-01T00:00:{created:02d}Z"},
        "spec": {"playbookRef": {"name": of}, "digest": digest, "decision": decision, "configMapName": name},
    }


def under_test(body: Object, against: str, *, percent: float = 100.0, test: str = "test-1") -> Object:
    """A version that is compared with another one on traffic."""
    told = {"id": test, "kind": "Promotion", "mode": "Shadow", "against": against, "trafficPercent": percent}
    return {**body, "status": {"test": {**told, "until": "2999-01-01T00:00:00Z"}}}


def content(of: str, digest: str, text: str) -> Object:
    """The content of a version."""
    meta = {"name": f"{of}-{digest[:12]}", "annotations": {"combee.dev/digest": digest}}
    return {"metadata": meta, "data": {"prompt.md": text}}
