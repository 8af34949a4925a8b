"""A proxy in front of the API server that refuses some requests with 429 and breaks watches off."""

from __future__ import annotations

import asyncio
import random
import ssl
import tempfile
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

HOP_BY_HOP = {
    "connection",
    "transfer-encoding",
    "content-length",
    "content-encoding",
    "host",
    "accept-encoding",
}


@dataclass
class FailingApi:
    """``refused``: the share of requests that are; ``watch_seconds``: how long a watch lasts at most."""

    admin: Path
    refused: float
    watch_seconds: float
    seed: int
    counts: dict[str, int] = field(default_factory=lambda: {"passed": 0, "refused": 0, "broken": 0})

    @contextmanager
    def serving(self, folder: Path) -> Iterator[Path]:
        """The kubeconfig of whoever goes through it."""
        loop, ports = asyncio.new_event_loop(), list[int]()
        ready, stop = threading.Event(), asyncio.Event()

        async def serve() -> None:
            runner = web.AppRunner(self._application())
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            ports.append(runner.addresses[0][1])
            ready.set()
            await stop.wait()
            await runner.cleanup()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
        thread.start()
        assert ready.wait(30)
        config = yaml.safe_load(self.admin.read_text())
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{ports[0]}"}
        path = folder / "failing.conf"
        path.write_text(yaml.safe_dump(config))
        try:
            yield path
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(30)

    def _application(self) -> web.Application:
        config = yaml.safe_load(self.admin.read_text())
        server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        tls = ssl.create_default_context(cadata=b64decode(server["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as chain:
            chain.write(b64decode(user["client-certificate-data"]) + b64decode(user["client-key-data"]))
            chain.flush()
            tls.load_cert_chain(chain.name)
        luck = random.Random(self.seed)

        async def answer(request: web.Request) -> web.StreamResponse:
            if luck.random() < self.refused:
                self.counts["refused"] += 1
                return web.json_response(
                    {"kind": "Status", "status": "Failure", "reason": "TooManyRequests", "code": 429},
                    status=429,
                    headers={"Retry-After": "1"},
                )
            headers = {
                name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP
            }
            async with (
                aiohttp.ClientSession(auto_decompress=True) as session,
                session.request(
                    request.method,
                    server["server"] + request.path_qs,
                    headers=headers,
                    data=await request.read() or None,
                    ssl=tls,
                ) as upstream,
            ):
                self.counts["passed"] += 1
                kept = {
                    name: value for name, value in upstream.headers.items() if name.lower() not in HOP_BY_HOP
                }
                response = web.StreamResponse(status=upstream.status, headers=kept)
                await response.prepare(request)
                watch = request.query.get("watch") in ("1", "true")
                with suppress(ConnectionError):
                    try:
                        async with asyncio.timeout(self.watch_seconds if watch else None):
                            async for piece in upstream.content.iter_any():
                                await response.write(piece)
                    except TimeoutError:
                        self.counts["broken"] += 1
                        if request.transport is not None:
                            request.transport.abort()
                return response

        application = web.Application(client_max_size=1 << 26)
        application.router.add_route("*", "/{path:.*}", answer)
        return application
