"""What a client's request must be: a path that is passed on, a body in time, of a size there is memory for.
And how it is told what is not so."""

from __future__ import annotations

import asyncio
import json
import random
import re
from urllib.parse import unquote

from combee.gateway.asgi import Receive, Send
from combee.gateway.room import COPIES, EACH, Hold, Room, working
from combee.work.traffic.rewrite import Preface, model_of, with_preface

CHAT = "/v1/chat/completions"
PASSED = {CHAT: "POST", "/v1/completions": "POST", "/v1/embeddings": "POST", "/v1/models": "GET"}
"""path below a Playbook -> method. Nothing else is passed on, since the upstream's key may allow more."""
MOST_RETRY_SECONDS = 3
"""Requests that are shed are told to come again in one to three seconds, so that not all come at once."""
BODY_SECONDS = 60.0
"""A client has so long to send its whole body, and a second more for each SLOWEST_BYTES that came."""
SLOWEST_BYTES = 32 * 1024
"""What waits unread is bounded, so a large body is slow over a long round trip, as it is over a thin line."""


class Refusal(Exception):
    """An error answer of the gateway itself, in OpenAI's form."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(code)
        self.status, self.code, self.message, self.headers = status, code, message, headers


class Gone(Exception):
    """The client went away; nobody reads an answer."""


RETRY = {"retry_after": "1"}
NO_MEMORY = "no_memory"


OVERLOADED, SHARE_TAKEN = "overloaded", "share_taken"
SHED = frozenset({OVERLOADED, SHARE_TAKEN})
"""codes of requests told to come again because too many are under way."""


def shed(places: Room) -> Refusal:
    """Return the refusal of a request for which no place is left, or none for its key."""
    later = str(random.randint(1, MOST_RETRY_SECONDS))  # noqa: S311 - no secret
    if places.taken >= places.most:
        return Refusal(503, OVERLOADED, "Too many requests at once.", retry_after=later)
    message = "This key has its share of the requests at once; the rest is left for other keys."
    return Refusal(429, SHARE_TAKEN, message, retry_after=later)


def take(hold: Hold, size: int) -> None:
    """Take memory. Raises Refusal when so much is not free, or exceeds the whole budget."""
    if hold.taken + size > hold.room.most:
        raise Refusal(413, "too_large", "This gateway has too little memory for such a body.")
    if not hold.take(size):
        raise Refusal(503, NO_MEMORY, "Too much is under way at once.", **RETRY)


def changed(body: bytes, preface: Preface, hold: Hold, model: str = "") -> bytes:
    """Return the body with the playbook in front of its messages. Raises Refusal where it names another model
    than ``model``; an empty one allows any."""
    working_bytes = working(body) if (preface or model) and len(body) > EACH else 0
    take(hold, len(preface) + working_bytes)
    try:
        if model and model_of(body) != model:
            raise Refusal(400, "another_model", f"This Playbook is served with the model {model}.")
        return with_preface(body, preface)
    except ValueError:
        raise Refusal(400, "invalid_json", "The body is not a JSON object.") from None
    finally:
        hold.give(working_bytes)


CLUSTER_HEADER = b"x-combee-cluster"
_CLUSTER = re.compile(rb"[A-Za-z0-9._:@/+=-]{1,128}")


def cluster_of(headers: list[tuple[bytes, bytes]]) -> str:
    """Return what a client says that its request belongs to; empty where it says nothing. Raises Refusal."""
    values = [value for name, value in headers if name == CLUSTER_HEADER]
    if len(values) > 1 or not all(map(_CLUSTER.fullmatch, values)):
        what = "Send x-combee-cluster once, with 1 to 128 letters, digits and ._:@/+=-"
        raise Refusal(400, "invalid_cluster", what)
    return values[0].decode("ascii") if values else ""


_SEGMENT = re.compile(r"(?!\.+$)[A-Za-z0-9._:@+~ -]+")
"""A part of a model's name, without percent encoding; dots alone are none."""


def kind(path: str) -> str:
    """Return the key of PASSED for a path: ``/v1/models/org/name`` is one of the models. A name is a list of
    known characters: some servers read ``..;``, ``%252e`` or a backslash as a way up."""
    name = unquote(path.removeprefix("/v1/models/"))
    plain = path.startswith("/v1/models/") and all(map(_SEGMENT.fullmatch, name.split("/")))
    return "/v1/models" if plain else path


async def body_of(headers: list[tuple[bytes, bytes]], receive: Receive, limit: int, hold: Hold) -> bytes:
    """Return the whole body. Raises Refusal when it is too large, encoded, late or without memory; raises
    Gone."""
    declared, size = 0, 0
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() != b"identity":
            raise Refusal(415, "content_encoding", "Send the body as it is, without Content-Encoding.")
        if name == b"content-length" and (declared := int(value)) > limit:
            raise _too_large(limit)
    # Take the declared size before the body comes: no memory goes to bodies that then lack the rest.
    take(hold, COPIES * declared)
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(BODY_SECONDS) as limited:
            latest = limited.when() or 0.0
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > limit:
                    raise _too_large(limit)
                limited.reschedule(latest + size / SLOWEST_BYTES)
                if size > declared:
                    take(hold, COPIES * (size - declared))
                    declared = size
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise Refusal(408, "body_late", "The request did not come in time.") from None


def _too_large(limit: int) -> Refusal:
    return Refusal(413, "too_large", f"The body is larger than {limit} bytes.", connection="close")


async def refuse(send: Send, refusal: Refusal) -> None:
    """Answer with a refusal."""
    kind = "authentication_error" if refusal.status == 401 else "gateway_error"
    body = error_body(refusal.code, refusal.message, kind)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.replace("_", "-").encode(), value.encode()) for name, value in refusal.headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def error_body(code: str, message: str, kind: str = "gateway_error") -> bytes:
    """Return an error as OpenAI's clients read it."""
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()
