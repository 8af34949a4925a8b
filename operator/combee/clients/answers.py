"""Reading what an HTTP server answers: as it was sent, and to a bound. Who asks a stranger reads by it."""

from __future__ import annotations

import httpx2

UNENCODED = {"Accept-Encoding": "identity"}
"""The header of a request whose answer ``body_of`` reads."""


class TooLongError(httpx2.ReadError):
    """The answer has more bytes than its reader wants."""


class EncodedError(httpx2.DecodingError):
    """The answer is compressed, though that was not accepted."""


async def body_of(response: httpx2.Response, most_bytes: int) -> bytes:
    """Return the bytes of a body that was not read yet.

    They are never decoded: 1 MB of gzip can be 3 GB of text. Of a compressed refusal, whose status says
    enough, nothing is returned. Raises TooLongError, EncodedError, and httpx2's errors.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        if response.is_success:
            raise EncodedError(f"the answer comes in {encoding[:20]!r}, and not as it is")
        return b""
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > most_bytes:
            raise TooLongError(f"the answer is longer than {most_bytes:,} bytes")
    return bytes(body)
