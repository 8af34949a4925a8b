"""An OpenAI-compatible endpoint in front of a ``ChatClient``: the requests of a user's agent go through the
run's memo, limits and budget, and the agent never sees the model's key.

Each rollout is a visit with its own key, which is valid until the rollout ends. An error that ends the whole
step (a spent budget, a refused key) becomes the visit's ``fatal``. An error that may pass becomes its
``lost``: such a rollout says nothing about the artifact, whatever the agent did afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from combee.api.sampling import DEFAULT, Sampling
from combee.clients.model.agents import AgentRequestError, agent_prompt
from combee.clients.model.chat import ChatClient, ChatRequest, Completion
from combee.clients.server import Server
from combee.errors import BudgetExhaustedError, CombeeError, ContextLengthError, TransientError
from combee.jsonread import read_json

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_AT_ONCE = 16
"""The most requests of one rollout that may be in flight."""
STOP_SECONDS = 1


@dataclass(slots=True, eq=False)
class Visit:
    """One rollout's access to the model, and the tokens and calls it used."""

    key: str
    ordinal: int
    sampling: Sampling
    fatal: asyncio.Future[CombeeError]
    lost: TransientError | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    lost_tokens: int = 0
    calls: int = 0
    asking: set[asyncio.Task[Completion]] = field(default_factory=set)

    def used(self, completion: Completion) -> None:
        """Add an answer's tokens to the visit's totals."""
        self.calls += 1
        self.prompt_tokens += completion.prompt_tokens
        self.completion_tokens += completion.completion_tokens
        self.cached_tokens += completion.cached_tokens
        self.lost_tokens += completion.lost_tokens

    def unanswered(self, tokens: int) -> None:
        """Add what a call may have used that was not answered."""
        self.lost_tokens += tokens


def new_key() -> str:
    """Return a random key that nobody can guess."""
    return secrets.token_urlsafe(24)


class _Refusal(Exception):
    """An error answer of the proxy itself, in OpenAI's form."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


class ModelProxy:
    """Call ``serve`` once and ``admit`` for each rollout. ``client`` must have the role ``AGENT``."""

    def __init__(self, client: ChatClient) -> None:
        self._client = client
        self._visits: dict[str, Visit] = {}
        self.url = ""
        """The base URL, which ends in /v1; empty while the proxy is not served."""

    @property
    def model(self) -> str:
        """The model's name. The proxy answers any other name with the same model."""
        return self._client.endpoint.model

    @contextlib.contextmanager
    def admit(self, ordinal: int, key: str = "", sampling: Sampling = DEFAULT) -> Iterator[Visit]:
        """Yield a visit. At its end its key becomes void and its open requests are cancelled.

        ``key`` belongs to a program that makes one rollout after the other; without it a new one is drawn.
        ``sampling`` is that of the visit's calls that say nothing of it.
        """
        visit = Visit(key or new_key(), ordinal, sampling, asyncio.get_running_loop().create_future())
        self._visits[visit.key] = visit
        try:
            yield visit
        finally:
            del self._visits[visit.key]
            for task in visit.asking:
                task.cancel()
            visit.fatal.cancel()

    @asynccontextmanager
    async def serve(
        self, host: str = "127.0.0.1", port: int = 0, beside: Sequence[Route] = ()
    ) -> AsyncIterator[None]:
        """Serve the proxy on ``port`` of ``host`` meanwhile; 0 takes a free port. ``beside``: further
        routes."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=2048)
        server = Server(self._app(beside), timeout_graceful_shutdown=STOP_SECONDS)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        url_host = f"[{host}]" if ":" in host else host
        self.url = f"http://{url_host}:{listener.getsockname()[1]}/v1"
        try:
            yield
        finally:
            server.should_exit = True
            await serving
            self.url = ""

    def _app(self, beside: Sequence[Route]) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
                *beside,
            ]
        )

    async def _models(self, request: Request) -> Response:
        try:
            self._visit(request)
        except _Refusal as refusal:
            return _error_response(refusal)
        row = {"id": self.model, "object": "model", "created": 0, "owned_by": "combee"}
        return JSONResponse({"object": "list", "data": [row]})

    async def _chat(self, request: Request) -> Response:
        try:
            visit = self._visit(request)
            body = await _body(request)
            completion = await self._answer_to(visit, body)
        except _Refusal as refusal:
            return _error_response(refusal)
        return _answer(self.model, body, completion)

    def _visit(self, request: Request) -> Visit:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        visit = self._visits.get(key.strip()) if scheme.lower() == "bearer" else None
        if visit is None:
            raise _Refusal(401, "invalid_api_key", "The key is not that of a rollout under way.")
        if len(visit.asking) >= MAX_AT_ONCE:
            raise _Refusal(429, "rate_limit_exceeded", f"More than {MAX_AT_ONCE} requests at once.")
        return visit

    async def _answer_to(self, visit: Visit, body: Mapping[str, Any]) -> Completion:
        try:
            prompt = agent_prompt(body, visit.sampling)
        except ValueError as error:
            raise _Refusal(400, "invalid_request_error", f"{error}.") from None
        task = asyncio.create_task(self._ask_model(visit, ChatRequest(prompt, ordinal=visit.ordinal)))
        visit.asking.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            raise _Refusal(503, "rollout_over", "The rollout is over.") from None
        except ContextLengthError as error:
            raise _Refusal(400, "context_length_exceeded", error.what) from None
        except AgentRequestError as error:
            raise _Refusal(400, "invalid_request_error", error.what) from None
        except TransientError as error:
            visit.lost = visit.lost or error
            raise _Refusal(503, "no_answer", "The model gave no answer.") from None
        except CombeeError as error:
            if not visit.fatal.done():
                visit.fatal.set_result(error)
            spent = isinstance(error, BudgetExhaustedError)
            code = "insufficient_quota" if spent else "unavailable"
            raise _Refusal(429 if spent else 503, code, "The run cannot go on.") from None
        finally:
            visit.asking.discard(task)

    async def _ask_model(self, visit: Visit, request: ChatRequest) -> Completion:
        completion = (await self._client.ask(request, visit.unanswered)).completion
        visit.used(completion)
        return completion


async def _body(request: Request) -> dict[str, Any]:
    data = bytearray()
    try:
        async for piece in request.stream():
            data += piece
            if len(data) > MAX_BODY_BYTES:
                raise _Refusal(413, "too_large", f"The request is longer than {MAX_BODY_BYTES:,} bytes.")
        body = read_json(bytes(data))
    except ClientDisconnect:
        raise _Refusal(400, "invalid_request_error", "The request broke off.") from None
    except ValueError:
        raise _Refusal(400, "invalid_request_error", "The request is not valid JSON.") from None
    if not isinstance(body, dict):
        raise _Refusal(400, "invalid_request_error", "The request is not a JSON object.")
    return body


def _error_response(refusal: _Refusal) -> JSONResponse:
    error = {"message": refusal.message, "type": "combee", "param": None, "code": refusal.code}
    return JSONResponse({"error": error}, status_code=refusal.status)


def _answer(model: str, body: Mapping[str, Any], completion: Completion) -> Response:
    """The answer in the form that was asked for; a stream carries all of it in its first chunk."""
    message = {"role": "assistant", "content": None, **json.loads(completion.text)}
    head = {
        "id": f"chatcmpl-{hashlib.sha256(completion.text.encode()).hexdigest()[:24]}",
        "created": 0,
        "model": model,
    }
    usage = {
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "total_tokens": completion.prompt_tokens + completion.completion_tokens,
    }
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": completion.finish_reason}
        return JSONResponse({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    calls = [{"index": at, **call} for at, call in enumerate(message.pop("tool_calls", None) or [])]
    delta = {**message, **({"tool_calls": calls} if calls else {})}
    options = body.get("stream_options")
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": completion.finish_reason}]},
    ]
    if isinstance(options, dict) and options.get("include_usage"):
        chunks.append({"choices": [], "usage": usage})
    lines = [json.dumps({**head, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    return Response(
        "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]), media_type="text/event-stream"
    )
