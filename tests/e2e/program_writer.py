"""A model that writes programs: it asks another one, and puts what that distils into tested functions."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from answering import Reply, Request, answering
from combee.methods.ace.program import SECTION

HOSTILE = {
    "loops": "    while True:\n        pass",
    "forks": "    import os\n    os.fork()",
    "connects": "    import socket\n    socket.create_connection(('127.0.0.1', 1))",
}
"""Bodies that no test may let in."""


def program(rule: str, number: int, body: str = "") -> str:
    """A rule as a program: its docstring says what the model distilled."""
    name = f"rule_{number}"
    body = body or "    scale = 100"
    return (
        f"def {name}(share):\n    '''{rule}'''\n{body}\n    return share * scale\n\n\n"
        f"def test_{name}():\n    assert {name}(0.5) == 50\n"
    )


@dataclass
class Writer:
    """What it wrote: every text of an entry, by the name of its body, empty for one that is well-behaved."""

    url: str
    written: dict[str, list[str]] = field(default_factory=dict)

    def answer(self, request: Request) -> Reply:
        status, body = self._passed_on(request)
        asked = json.loads(request.body or b"{}")
        form = asked.get("response_format", {}).get("json_schema", {}).get("name")
        if status == 200 and form == "playbook_entries":
            body = self._with_programs(json.loads(body))
        return status, {"Content-Type": "application/json"}, body

    def _passed_on(self, request: Request) -> tuple[int, bytes]:
        url = self.url.removesuffix("/v1") + request.path
        names = {"content-type", "authorization"}
        headers = {name: value for name, value in request.headers.items() if name.lower() in names}
        data = request.body if request.method == "POST" else None
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def _with_programs(self, reply: dict[str, Any]) -> bytes:
        message = reply["choices"][0]["message"]
        entries = json.loads(message["content"])["entries"]
        kinds = [*HOSTILE, *[""] * 6]
        for entry in (one for one in entries if one["op"] == "ADD"):
            number = zlib.crc32(entry["text"].encode())
            kind = kinds[number % len(kinds)]
            text = program(entry["text"], number, HOSTILE.get(kind, ""))
            entry |= {"section": SECTION, "text": text}
            self.written.setdefault(kind, []).append(text.strip())
        message["content"] = json.dumps({"entries": entries})
        return json.dumps(reply).encode()


@contextmanager
def writing(url: str) -> Iterator[tuple[Writer, str]]:
    """A writer in front of the model at ``url``, and where it is."""
    writer = Writer(url)
    with answering(writer.answer) as server:
        yield writer, f"{server.url}/v1"
