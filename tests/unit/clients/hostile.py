"""A server that answers with whatever bytes it is told to, HTTP or not, on a socket of this event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

Raw = bytes | Iterator[bytes]


class Hostile:
    """``raw`` is the whole answer to each request, its head included; an iterator is sent piece by piece
    until the client has had enough. ``asked`` are the heads of the requests."""

    def __init__(self) -> None:
        self.raw: Raw = b""
        self.asked: list[bytes] = []
        self.sent = 0
        """bytes of answers that the sockets took."""
        self.url = ""

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(head)
            length = next(
                (
                    int(line[15:])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                ),
                0,
            )
            await reader.readexactly(length)
            for piece in [self.raw] if isinstance(self.raw, bytes) else self.raw:
                writer.write(piece)
                await writer.drain()
                self.sent += len(piece)
        writer.close()


@asynccontextmanager
async def hostile_server() -> AsyncIterator[Hostile]:
    """Serve one meanwhile."""
    hostile = Hostile()
    listening = await asyncio.start_server(hostile._handle, "127.0.0.1", 0)
    hostile.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield hostile
    finally:
        listening.close()


def http(
    body: bytes, *headers: bytes, status: bytes = b"200 OK", content_type: bytes = b"application/json"
) -> bytes:
    """A well-formed answer with that body."""
    head = [b"HTTP/1.1 " + status, b"content-type: " + content_type, b"content-length: %d" % len(body)]
    return b"\r\n".join([*head, *headers, b"connection: close", b"", body])


def chat(text: Any = "42", *, usage: Any = None, **message: Any) -> dict[str, Any]:
    """A chat completion."""
    choice = {"index": 0, "message": {"content": text, **message}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": usage or {"prompt_tokens": 11, "completion_tokens": 7}}


def body(value: Any) -> bytes:
    """JSON as Python writes it, NaN and lone surrogates included."""
    return json.dumps(value).encode()
