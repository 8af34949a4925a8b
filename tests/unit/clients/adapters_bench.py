"""A real HTTP server that behaves, or misbehaves as told, on a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from combee.clients.model.chat import ChatClient, Endpoint
from combee.clients.model.limits import RunLimits
from combee.clients.model.memo import Memo
from combee.clients.model.wire import CallRecord, ChatRequest
from combee.clients.store.store import Store
from combee.records import Message, Prompt

KEY = "sk-very-secret-0123456789"
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
LATE = 600.0
"""seconds: an answer that comes so late comes after any test, however slow its machine."""
Behaviour = Callable[[Request, dict[str, Any]], Awaitable[Response]]


def answer(text: str = "42", **changes: Any) -> dict[str, Any]:
    """A well-formed chat completion."""
    return {
        "id": "x",
        "object": "chat.completion",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"} | changes
        ],
        "usage": {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 5},
        },
    }


def embedded(vectors: list[Any], **usage: int) -> dict[str, Any]:
    """A well-formed embeddings response."""
    data = [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(vectors)]
    return {"object": "list", "data": data, "usage": usage or {"prompt_tokens": 5, "total_tokens": 5}}


def refuse(
    status: int, message: str = "no", headers: dict[str, str] | None = None, **fields: Any
) -> Behaviour:
    """An error in OpenAI's shape."""

    async def behave(_: Request, __: dict[str, Any]) -> Response:
        return JSONResponse({"error": {"message": message, **fields}}, status, headers)

    return behave


def reply(content: dict[str, Any] | bytes | str) -> Behaviour:
    """A 200 with exactly this body."""

    async def behave(_: Request, __: dict[str, Any]) -> Response:
        body = content if isinstance(content, bytes | str) else json.dumps(content)
        return Response(body, 200, media_type="application/json")

    return behave


def slow(seconds: float) -> Behaviour:
    """The usual answer, later."""

    async def behave(_: Request, body: dict[str, Any]) -> Response:
        await asyncio.sleep(seconds)
        return JSONResponse(answer(body["messages"][-1]["content"]))

    return behave


def held(go: threading.Event) -> Behaviour:
    """The usual answer, once the test says so."""

    async def behave(_: Request, body: dict[str, Any]) -> Response:
        while not go.is_set():  # noqa: ASYNC110 - it is set in another thread
            await asyncio.sleep(0.005)
        return JSONResponse(answer(body["messages"][-1]["content"]))

    return behave


async def truncated(_: Request, __: dict[str, Any]) -> Response:
    """Promises more bytes than it sends."""
    return Response(b'{"choices": [', 200, {"content-length": "4000"}, "application/json")


class Server:
    """Answers with the prompt's last message; ``script`` says what to do with the next requests."""

    def __init__(self) -> None:
        self.script: list[Behaviour] = []
        self.always: Behaviour | None = None
        self.models: Any = {
            "data": [{"id": "m", "owned_by": "tests", "max_model_len": 4096}, {"id": "other"}]
        }
        self.models_script: list[Behaviour] = []
        self.asked: list[dict[str, Any]] = []
        self.authorization: list[str | None] = []
        self.headers: list[dict[str, str]] = []
        self.models_asked = 0
        self.metrics: bytes | None = None
        self.metrics_asked = 0
        self._there: list[None] = []
        self.most_in_flight = 0
        self.url = ""

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        self.authorization.append(request.headers.get("authorization"))
        self.headers.append(dict(request.headers))
        there = self._there  # of this test: what it leaves behind is not counted in the next one
        there.append(None)
        self.most_in_flight = max(self.most_in_flight, len(there))
        try:
            if self.script:
                return await self.script.pop(0)(request, body)
            if self.always is not None:
                return await self.always(request, body)
            return JSONResponse(answer(body["messages"][-1]["content"]))
        finally:
            there.pop()

    async def embeddings(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        if self.script:
            return await self.script.pop(0)(request, body)
        if self.always is not None:
            return await self.always(request, body)
        return JSONResponse(embedded([[float(len(text)), 1.0] for text in body["input"]]))

    async def list_models(self, request: Request) -> Response:
        self.models_asked += 1
        if self.models_script:
            return await self.models_script.pop(0)(request, {})
        return JSONResponse(self.models)

    async def show_metrics(self, _: Request) -> Response:
        self.metrics_asked += 1
        return Response(self.metrics or b"", 404 if self.metrics is None else 200)

    def forget(self) -> None:
        url = self.url
        self.__init__()  # type: ignore[misc]
        self.url = url


class FakeTime:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def ask(text: str = "what is six times seven", *, schema: bool = False, **fields: Any) -> ChatRequest:
    """A request whose last message is ``text``."""
    prompt = Prompt(
        (Message("system", "Answer the question put by the user."), Message("user", text)),
        "answer" if schema else "",
        SCHEMA if schema else None,
    )
    return ChatRequest(prompt, **fields)


class Bench:
    """A client on the server with everything injected that tests look at."""

    def __init__(self, server: Server, store: Store) -> None:
        self.server = server
        self.store = store
        self.memo = Memo(store)
        self.time = FakeTime()
        self.calls: list[CallRecord] = []
        self.clients: list[ChatClient] = []

    def client(self, role: str = "task", **options: Any) -> ChatClient:
        endpoint = options.pop("endpoint", None) or self.endpoint()
        limits = options.pop("limits", None) or RunLimits(8)
        options.setdefault("sleep", self.time.sleep)
        memo = options.pop("memo", self.memo)
        made = ChatClient(endpoint, role, memo, limits, on_call=self.calls.append, **options)
        self.clients.append(made)
        return made

    def endpoint(self, **fields: Any) -> Endpoint:
        fields.setdefault("url", self.server.url)
        fields.setdefault("model", "m")
        fields.setdefault("api_key", SecretStr(KEY))
        fields.setdefault("key_source", "--secret vendor/token=env:VAR")
        return Endpoint(**fields)
