"""Doors through which a stranger's bytes come in, each as a function of bytes for a fuzzer led by coverage.

``python tests/fuzz/doors.py DOOR FOLDER -max_total_time=60`` looks for inputs that break a door: what follows
the folder are libFuzzer's arguments, and the folder keeps what the search learns.
``python tests/fuzz/doors.py DOOR FILE`` gives one input again, which needs no atheris. An exception that the
callers of a door do not take is a defect, and so are seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import itertools
import json
import logging
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("operator", "tests/unit/clients", "tests")]

try:
    import atheris
except ModuleNotFoundError:
    atheris = None

with (
    contextlib.redirect_stderr(io.StringIO()),  # it names each module
    atheris.instrument_imports(include=["combee", "json_repair"]) if atheris else contextlib.nullcontext(),
):
    import httpcore2._async.connection_pool as pools
    import test_hostile_replies as replies
    from at_gateway import GatewayAlone
    from httpcore2 import AsyncMockBackend
    from read_back import READERS

    from combee.clients import energy
    from combee.clients.model.memo import Memo
    from combee.clients.model.wire import Completion
    from combee.errors import CombeeError
    from combee.jsonread import read_json
    from combee.methods.protocol import ParseError
    from combee.methods.replies import MAX_MENDED_CHARS
    from combee.plan.playbook.queries import Query, read_answer

LOOP = asyncio.Runner()


@dataclass(frozen=True, slots=True)
class Door:
    """``one`` takes an input; ``seeds`` are those to begin with, and ``words`` what inputs are made of."""

    one: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    words: Iterable[str] = ()


class Kept(dict[str, bytes]):
    """A store in memory, without the threads of a real one."""

    async def aget(self, path: str) -> bytes | None:
        return self.get(path)

    async def aput_new(self, path: str, data: bytes) -> bool:
        return self.setdefault(path, data) is data

    async def aput(self, path: str, data: bytes) -> None:
        self[path] = data


@dataclass
class Wire:
    """Where an endpoint would be: the client's own HTTP reads ``raw`` from it, without a socket."""

    url: str = "http://127.0.0.1:1/v1"
    raw: bytes = b""
    asked: list[bytes] = field(default_factory=list)
    connections: int = 0

    def __call__(self) -> AsyncMockBackend:
        return Connecting([self.raw])


class Connecting(AsyncMockBackend):
    """Counts the connections that read what stands on the wire."""

    async def connect_tcp(self, *where: Any, **how: Any) -> Any:
        WIRE.connections += 1
        return await super().connect_tcp(*where, **how)


WIRE: Any = Wire()
ROLES = (*replies.PROMPTS, "models", "metrics", "replay", "energy", "prometheus")


def reply(data: bytes) -> Completion | CombeeError | None:
    """What an endpoint sends: to a call of each role, with status and headers, and beside calls. Returns what
    a call came to."""
    role, raw = ROLES[data[0] % len(ROLES)] if data else "task", data[1:]
    WIRE.raw = raw
    with mock.patch.object(pools, "AutoBackend", WIRE):
        return LOOP.run(_answered(role, raw))


async def _answered(role: str, raw: bytes) -> Completion | CombeeError | None:
    if role in replies.PROMPTS:
        return await replies.asked(WIRE, role, Memo(Kept()))  # type: ignore[arg-type]
    elif role == "energy":  # clients of these two read certificates, which takes longer than all else
        with contextlib.suppress(energy.UnreadableError):
            energy._counters(raw)
    elif role == "prometheus":
        read_answer(Query("latency", "candidate", "up"), raw, {0: 0, 60: 1})
    else:
        await replies._read_beside(role, WIRE, raw)
    return None


def reply_seeds() -> Iterable[bytes]:
    """Each case of the tests and each shape of an answer, in each role."""
    for number, role in enumerate(ROLES):
        bodies = [*map(replies.body, replies.SHAPES.get(role, replies.CHAT)), EVENTS, replies.PAGE]
        cases = [raw for raw in replies.CASES_BY_NAME.values() if isinstance(raw, bytes) and len(raw) < 4096]
        for raw in [*bodies, *map(replies.http, bodies), *(cases if role in replies.PROMPTS else ())]:
            yield bytes([number]) + raw


EVENTS = (
    b'data: {"choices": [{"index": 0, "delta": {"content": "4"}}]}\n\n'
    b'data: {"choices": [{"delta": {"tool_calls": [{"index": 1, "function": {"name": "f"}}]}}]}\n\n'
    b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}\n\n'
    b"data: [DONE]\n\n"
)


def text(data: bytes) -> None:
    """What a model says, to one of its parsers."""
    if data:
        with contextlib.suppress(ParseError):
            read = replies.READERS[data[0] % len(replies.READERS)]
            repr(read(data[1:].decode(errors="replace"))).encode()


def text_seeds() -> Iterable[bytes]:
    """Whole answers, answers that are broken as models break them, and some that take long to mend, to each
    parser."""
    yield from (bytes([n]) + one for one in _answers() for n in range(len(replies.READERS)))


def _answers() -> Iterable[bytes]:
    whole = '{"answer": "42", "lessons": [{"text": "a", "records": ["r-1"]}], "quality": 1, "correct": true}'
    entries = '{"entries": [{"op": "ADD", "section": "s", "text": "If a, do b.", "reflections": ["r-1.1"]}]}'
    for good in (whole, entries, '{"keep": [["u-1", "u-2"]], "entries": []}'):
        broken = (good[:-9], good.replace('"', "'"), good.replace(":", " =", 1), good.replace(",", "", 1))
        for one in (good, f"Here:\n```json\n{good}\n```", f"So {good} it is", *broken):
            yield one.encode()
    slow_ones = (
        '["' + '{"a":"b"' * 250,
        "{" * 60 + '"' * 1900,
        '{"' * 20 + '("' * 960,
        "{(" * 60 + '\\"' * 900,
    )
    for slow in slow_ones:
        yield f'{{"a": {slow}'[:MAX_MENDED_CHARS].encode()
    yield b"1. If the badge is red, ask at the desk.\n- Else go on."


def json_value(data: bytes) -> None:
    """JSON of a stranger is a value that can be written down again, or a ValueError."""
    try:
        value = read_json(data)
    except ValueError:
        return
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def json_seeds() -> Iterable[bytes]:
    """Each kind of value, and what a parser of Python's takes besides."""
    yield from (b'{"a": [1, -2.5e3, true, null, "\\u00e9\\n"]}', b"1e999", b"NaN", b'"\\ud800"', b"[" * 99)
    yield from (b"\xef\xbb\xbf{}", b"\xff\xfe[\x00]\x00", b"1" * 5000, b"{" * 99, b'{"a": 1, "a": 2}')


GATEWAY = GatewayAlone()


def gateway(data: bytes) -> None:
    """What a client sends to the gateway, in one piece or two."""
    LOOP.run(GATEWAY.heard(data))


def upstream(data: bytes) -> None:
    """What an upstream of the gateway answers, in one piece or two."""
    LOOP.run(GATEWAY.passed(data))


def upstream_seeds() -> Iterable[bytes]:
    """Answers and streams, whole and cut, and each case of the tests."""
    bodies = [*map(replies.body, replies.CHAT), EVENTS]
    cases = [raw for raw in replies.CASES_BY_NAME.values() if isinstance(raw, bytes) and len(raw) < 4096]
    odd = replies.http(b"{}", b"x-odd: a\x05b"), replies.http(b"{}", status=b"999 No")
    for raw in [*map(replies.http, bodies), *cases, *odd]:
        yield b"\xff" + raw
        yield b"\x28" + raw[: len(raw) // 2]


def stored(data: bytes) -> None:
    """A file that another process left, or that a user gave, to the reader of its kind."""
    if data:
        READERS[data[0] % len(READERS)].read(data[1:])


NAMES = tuple(replies.NAMES)
JSON = (
    "{",
    "}",
    "[",
    "]",
    '":',
    '","',
    "null",
    "true",
    "1e999",
    "NaN",
    "\\ud800",
    "10000000000",
    "-1",
    "```",
)
HTTP = (
    *("HTTP/1.1 200 OK", "HTTP/1.1 429 x", "\r\n\r\n", "content-length: ", "transfer-encoding: chunked"),
    *(
        "content-encoding: gzip",
        "retry-after: ",
        "charset=",
        "0\r\n\r\n",
        "connection: close",
        "data: ",
        "[DONE]",
    ),
)
REQUEST = (
    "POST /formula/v1/chat/completions HTTP/1.1",
    "Authorization: Bearer good",
    "messages",
    "..;/",
    "%2e",
)
DOORS = {
    "reply": Door(reply, reply_seeds, (*NAMES, *JSON, *HTTP)),
    "text": Door(text, text_seeds, (*NAMES, *JSON, "op", "section", "keep", "reflections", "u-1", "bullets")),
    "json": Door(json_value, json_seeds, JSON),
    "gateway": Door(gateway, GATEWAY.seeds, (*HTTP, *REQUEST)),
    "upstream": Door(upstream, upstream_seeds, HTTP),
    "stored": Door(
        stored,
        lambda: (bytes([n]) + seed for n, row in enumerate(READERS) for seed in row.seeds),
        (*NAMES, *JSON, *{word for row in READERS for word in row.words}),
    ),
}


SPOILERS = (b"1e999", b"1" + b"0" * 400, b'"\\ud800"', b"NaN", b"[" * 1500 + b"]" * 1500)
"""Values of JSON that no search comes upon by itself: they are long, or one of a kind."""


def variants(seed: bytes) -> Iterable[bytes]:
    """Yield a seed, and the same with one of its numbers spoiled."""
    yield seed
    for number in itertools.islice(re.finditer(rb"(?<=[:\[, ])\d[\d.]*(?=[\],}])", seed), 12):
        for spoiler in SPOILERS:
            yield seed[: number.start()] + spoiler + seed[number.end() :]


def main(name: str, place: str, *arguments: str) -> None:
    """Give one input again, or search from the seeds on."""
    door, path = DOORS[name], Path(place)
    if path.is_file():
        door.one(path.read_bytes())
        return
    logging.disable()
    path.mkdir(parents=True, exist_ok=True)
    for seed in [spoiled for whole in door.seeds() for spoiled in variants(whole)]:
        (path / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    with tempfile.NamedTemporaryFile("w", suffix=".dict") as words:
        for word in door.words:
            words.write('"' + "".join(f"\\x{byte:02x}" for byte in word.encode()) + '"\n')
        words.flush()
        atheris.Setup([sys.argv[0], f"-dict={words.name}", place, *arguments], door.one)
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
