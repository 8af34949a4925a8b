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
from typing import Any

from answering import Reply, Request, answering, in_json

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

    def answer(request: Request) -> Reply:
        if request.method == "GET":
            return in_json({"data": [{"id": "openai/gpt-oss-20b", "object": "model", "owned_by": "desk"}]})
        body = json.loads(request.body)
        role = body["response_format"]["json_schema"]["name"]
        system, user = body["messages"][0]["content"], body["messages"][1]["content"]
        with counting:
            served.asked[role] += 1
            served.prompts.append(user)
        text = json.dumps(ROLES[role](system, user))
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": len(system + user) // 4, "completion_tokens": 50, "total_tokens": 50}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        return in_json({"model": body["model"], "choices": choices, "usage": usage})

    with answering(answer) as server:
        served = Desk(f"{server.url}/v1")
        yield served
