"""A model that waters plants: it feels the soil and follows its playbook. It is the proposer, too."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from desk import _distil, _merge

from answering import Reply, Request, answering, in_json

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


def code(body: dict[str, Any]) -> dict[str, Any]:
    """The same by blocks of Python, in AppWorld's world."""
    system, *said = [message["content"] for message in body["messages"]]
    plant, felt = re.search(r"a (\w+)\.", said[0]), re.search(r"It printed:\n(\w+)", said[-1])
    assert plant is not None
    if felt is None:
        return {"role": "assistant", "content": "```python\nprint(apis.greenhouse.feel_soil())\n```"}
    told = re.search(rf"A {plant.group(1)} in {felt.group(1)} soil needs (\d+) ml", system)
    done = f"apis.supervisor.complete_task(answer={told.group(1) if told else 100})"
    return {"role": "assistant", "content": f"```python\n{done}\n```"}


def shell(body: dict[str, Any]) -> dict[str, Any]:
    """The same by shell commands, in an environment of Terminal-Bench."""
    system, *said = [message["content"] for message in body["messages"]]
    if "exit code 0" in said[-1]:
        return {"role": "assistant", "content": "DONE"}
    told = re.search(r"a (\w+)\..* in (\w+) soil", said[0])
    assert told is not None
    need = re.search(rf"A {told.group(1)} in {told.group(2)} soil needs (\d+) ml", system)
    water = f"echo {need.group(1) if need else 100} >/tmp/water"
    return {"role": "assistant", "content": f"```sh\n{water}\n```"}


def _reflect(_: str, user: str) -> dict[str, Any]:
    right = re.search(r"A \w+ in \w+ soil needs \d+ ml", user)
    lessons = [f"{right.group(0)}."] if right else []
    return {"diagnosis": "It was a guess." if right else "It was right.", "lessons": lessons, "tags": []}


ROLES = {"reflection": _reflect, "playbook_entries": _distil, "merged_entries": _merge}


@dataclass
class Gardener:
    """A running model; ``asked`` counts requests by role, an agent's as ``water``."""

    url: str
    agent: Callable[[dict[str, Any]], dict[str, Any]] = _water
    asked: Counter[str] = field(default_factory=Counter)
    keys: set[str] = field(default_factory=set)

    def answer(self, body: dict[str, Any], key: str) -> dict[str, Any]:
        if "response_format" not in body:
            self.asked["water"] += 1
            self.keys.add(key)
            return self.agent(body)
        role = body["response_format"]["json_schema"]["name"]
        self.asked[role] += 1
        said = ROLES[role](body["messages"][0]["content"], body["messages"][1]["content"])
        return {"role": "assistant", "content": json.dumps(said)}


@contextmanager
def gardener(
    host: str = "127.0.0.1", agent: Callable[[dict[str, Any]], dict[str, Any]] = _water
) -> Iterator[Gardener]:
    """Serve it on a port of its own of ``host``. ``agent``: how it answers agents."""

    def answer(request: Request) -> Reply:
        if request.method == "GET":
            return in_json({"data": [{"id": "openai/gpt-oss-20b", "object": "model", "owned_by": "garden"}]})
        message = served.answer(json.loads(request.body), request.headers.get("Authorization", ""))
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "finish_reason": finish, "message": message}
        return in_json({"choices": [choice], "usage": {"prompt_tokens": 40, "completion_tokens": 10}})

    with answering(answer, host) as server:
        served = Gardener(f"{server.url}/v1", agent)
        yield served
