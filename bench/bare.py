"""The least that a reverse proxy in Python does, on the same server and client libraries as the gateway: read
the body, send it on, pass back what comes. `python -m bench.bare PORT UPSTREAM`."""

from __future__ import annotations

import sys
from typing import Any

import aiohttp
import uvicorn

KEPT = {b"content-type", b"x-told"}


class Bare:
    """The ASGI application."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        if self.session is None:
            self.session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(),
            )
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        url = self.upstream + scope["path"]
        async with self.session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
            headers = [(name, value) for name, value in answer.raw_headers if name.lower() in KEPT]
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            while piece := await answer.content.readany():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


if __name__ == "__main__":
    uvicorn.run(
        Bare(sys.argv[2]),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="error",
    )
