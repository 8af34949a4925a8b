"""A server in front of another that keeps what was asked: what a model is really shown."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from answering import Answering, Reply, Request, answering


@dataclass
class Heard:
    """``url`` is what to ask instead of the server behind it."""

    server: Answering

    @property
    def url(self) -> str:
        return f"{self.server.url}/v1"

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The bodies of all chat requests, in the order in which they came."""
        return [json.loads(one.body) for one in self.server.asked if one.path.endswith("/chat/completions")]

    @property
    def systems(self) -> list[str]:
        """The system message of each chat request; empty where it had none."""
        return [
            "".join(m["content"] for m in one["messages"] if m["role"] == "system") for one in self.requests
        ]


@contextmanager
def heard(url: str) -> Iterator[Heard]:
    """Stand in front of the server at ``url`` (with its ``/v1``)."""

    def passed_on(request: Request) -> Reply:
        headers = {
            "Authorization": request.headers.get("Authorization", ""),
            "Content-Type": "application/json",
        }
        body = request.body if request.method == "POST" else None
        asked = urllib.request.Request(url.removesuffix("/v1") + request.path, body, headers)
        try:
            with urllib.request.urlopen(asked) as answer:
                return answer.status, {"Content-Type": answer.headers["Content-Type"]}, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, {}, refused.read()

    with answering(passed_on) as server:
        yield Heard(server)
