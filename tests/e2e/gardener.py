"""A model that waters plants: it feels the soil and follows its playbook. It is the proposer, too."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from desk import _distil, _merge

FEEL = {"id": "c1", "type": "function", "function": {"name": "feel_soil", "arguments": "{}"}}


def _water(body: dict[str, Any]) -> dict[str, Any]:
    """Feel first, then water as the playbook says, or guess."""
    system, asked = body["messages"][0]["content"], body["messages"][1]["content"]
    felt = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    if not felt:
        return {"role": "assistant", "content": None, "tool_calls": [FEEL]}
    plant = re.search(r"a (\w+)\.", asked)
    assert plant is not None
    told = re.search(rf"A {plant.group(1)} in {felt[0]} soil needs (\d+) ml", system)
    return {"role": "assistant", "content": f"WATER {told.group(1) if told else 100} ml"}


def _reflect(_: str, user: str) -> dict[str, Any]:
    right = re.search(r"A \w+ in \w+ soil needs \d+ ml", user)
    lessons = [f"{right.group(0)}."] if right else []
    return {"diagnosis": "It was a guess." if right else "It was right.", "lessons": lessons, "tags": []}


ROLES = {"reflection": _reflect, "playbook_entries": _distil, "merged_entries": _merge}


@dataclass
class Gardener:
    """A running model; ``asked`` counts requests by role, an agent's as ``water``."""

    url: str
    asked: Counter[str] = field(default_factory=Counter)
    keys: set[str] = field(default_factory=set)

    def answer(self, body: dict[str, Any], key: str) -> dict[str, Any]:
        if "response_format" not in body:
            self.asked["water"] += 1
            self.keys.add(key)
            return _water(body)
        role = body["response_format"]["json_schema"]["name"]
        self.asked[role] += 1
        said = ROLES[role](body["messages"][0]["content"], body["messages"][1]["content"])
        return {"role": "assistant", "content": json.dumps(said)}


@contextmanager
def gardener(host: str = "127.0.0.1") -> Iterator[Gardener]:
    """Serve it on a port of its own of ``host``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _send(self, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self._send({"data": [{"id": "openai/gpt-oss-20b", "object": "model", "owned_by": "garden"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = served.answer(body, self.headers.get("Authorization", ""))
            finish = "tool_calls" if message.get("tool_calls") else "stop"
            choice = {"index": 0, "finish_reason": finish, "message": message}
            self._send({"choices": [choice], "usage": {"prompt_tokens": 40, "completion_tokens": 10}})

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer((host, 0), Handler)
    served = Gardener(f"http://{host}:{server.server_port}/v1")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
