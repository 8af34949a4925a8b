"""A model that knows one thing: it learns which team a ticket belongs to from what it is told, and does as
its playbook says. It plays the proposer and the task model of the examples about tickets."""

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

TOPICS = {
    "login": ("log in", "sign", "password", "account is locked"),
    "broken device": ("screen", "keyboard", "battery", "docking", "charger"),
    "invoice": ("invoice", "charged", "order", "statement"),
    "parcel": ("parcel", "tracking", "where is", "courier"),
    "privacy": ("delete", "want to know", "allowed", "data protection"),
}


def topic(text: str) -> str:
    """What a ticket is about, by its words."""
    ticket = re.search(r"Ticket: (.*)", text)
    said = (ticket.group(1) if ticket else text).casefold()
    hits = {name: [said.find(word) for word in words if word in said] for name, words in TOPICS.items()}
    return min((min(found), name) for name, found in hits.items() if found)[1]


def _answer(system: str, user: str) -> dict[str, Any]:
    about = topic(user)
    told = re.search(rf"\[([\w-]+)\][^\n]*Tickets about {about} go to (\w{{3}}-\d)", system)
    answer, bullets = (told.group(2), [told.group(1)]) if told else (about, [])
    return {"reasoning": "By the playbook.", "bullets": bullets, "answer": answer}


def _reflect(_: str, user: str) -> dict[str, Any]:
    right = re.search(r"belongs? to (\w{3}-\d)", user)
    lessons = [f"Tickets about {topic(user)} go to {right.group(1)}."] if right else []
    return {
        "diagnosis": "The team was not known." if right else "It was right.",
        "lessons": lessons,
        "tags": [],
    }


def _distil(_: str, user: str) -> dict[str, Any]:
    found: dict[str, list[str]] = {}
    for item in re.split(r"\n(?=\[)", user):
        if named := re.match(r"\[([\w-]+)\]", item):
            for lesson in re.findall(r"- lesson: (.*)", item):
                found.setdefault(lesson, []).append(named.group(1))
    return {
        "entries": [
            {"op": "ADD", "section": "Teams", "text": text, "reflections": ids, "bullets": [], "reason": ""}
            for text, ids in found.items()
        ]
    }


def _merge(_: str, user: str) -> dict[str, Any]:
    found: dict[str, list[str]] = {}
    for id_, text in re.findall(r"\[(u-\d+)\] \([^)]*\) (.*)", user):
        found.setdefault(text, []).append(id_)
    return {"keep": list(found.values()), "entries": []}


ROLES = {"rollout": _answer, "reflection": _reflect, "playbook_entries": _distil, "merged_entries": _merge}


@dataclass
class Desk:
    """A running model; ``asked`` counts requests by role."""

    url: str
    asked: Counter[str] = field(default_factory=Counter)
    prompts: list[str] = field(default_factory=list)


@contextmanager
def desk() -> Iterator[Desk]:
    """Serve it on a port of its own."""
    counting = threading.Lock()

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
            self._send(
                {
                    "object": "list",
                    "data": [{"id": "openai/gpt-oss-20b", "object": "model", "owned_by": "desk"}],
                }
            )

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            role = body["response_format"]["json_schema"]["name"]
            system, user = body["messages"][0]["content"], body["messages"][1]["content"]
            with counting:
                served.asked[role] += 1
                served.prompts.append(user)
            text = json.dumps(ROLES[role](system, user))
            self._send(
                {
                    "id": "x",
                    "object": "chat.completion",
                    "created": 0,
                    "model": body["model"],
                    "choices": [
                        {
                            "index": 0,
                            "finish_reason": "stop",
                            "message": {"role": "assistant", "content": text},
                        }
                    ],
                    "usage": {
                        "prompt_tokens": len(system + user) // 4,
                        "completion_tokens": 50,
                        "total_tokens": 50,
                    },
                }
            )

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Desk(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
