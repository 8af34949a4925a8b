"""The simulated model behind an OpenAI-compatible server with ``vllm serve``'s surface."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from combee.sim import embedding, latency, prompts, roles, wire
from combee.sim.faults import Fault, FaultLuck, spoil
from combee.sim.metrics import Metrics
from combee.sim.model import Model, Reply, from_config, request_digest
from combee.sim.params import SimConfig

KEEP_ALIVE_SECONDS = 30
"""How long an idle connection is kept: long enough that a slow client does not meet a closed one."""


class Server:
    """The endpoints' state: one model, one engine clock, counters, the log of answers."""

    def __init__(self, config: SimConfig) -> None:
        self.config = config
        self.model: Model = from_config(config)
        self.engine = latency.Engine(config.time_scale, config.max_num_seqs)
        self.prefixes = latency.PrefixCache(config.prefix_cache_tokens)
        self.metrics = Metrics(config.names[0])
        self.luck = FaultLuck(config.faults, config.seed)
        self.log = AnswerLog(config.log)

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        body, refusal = await self._body(request)
        if refusal is not None:
            return refusal
        try:
            reply = self.model.respond(body)
            limit = self._limit(body)
        except ValueError as error:
            return wire.error(400, str(error), "BadRequestError")
        digest = request_digest(body)
        needed = reply.prompt.tokens + (limit if limit is not None else 1)
        if needed > self.config.max_model_len:
            self.log.write(digest, reply.role, 400)
            return wire.too_long(self.config.max_model_len, reply.prompt.tokens, limit or 0)
        fault = self.luck.meet(digest)
        if (fault_response := await self._broken(request, fault, digest, reply.role)) is not None:
            return fault_response
        return await self._answer(body, reply, digest, fault, limit)

    async def _answer(
        self, body: dict[str, Any], reply: Reply, digest: str, fault: Fault, limit: int | None
    ) -> Response:
        limit_tokens = limit if limit is not None else self.config.max_model_len - reply.prompt.tokens
        thought = min(reply.thought_tokens, limit_tokens)
        text, finish = wire.shortened(spoil(reply.text, fault.kind), limit_tokens - thought)
        count = reply.prompt.tokens
        cached = self.prefixes.cached(reply.prompt.whole, count)
        out = thought + max(1, prompts.tokens(text))
        completion = wire.Completion(
            f"chatcmpl-{digest[:24]}", str(body["model"]), text, finish, count, cached, out
        )
        if body.get("stream"):
            events = self._stream(completion, fault.slow, digest, reply.role, bool(_usage_asked(body)))
            return StreamingResponse(events, media_type="text/event-stream")
        began = asyncio.get_running_loop().time()
        start = await self.engine.admit(count - cached)
        try:
            await self.engine.decoded(start, out * fault.slow)
            self._count(completion, began, fault.slow)
        finally:
            self.engine.leave()
        self.log.write(digest, reply.role, 200, asyncio.get_running_loop().time() - began)
        return JSONResponse(completion.whole())

    async def _stream(
        self, completion: wire.Completion, slow: float, digest: str, role: str, with_usage: bool
    ) -> AsyncIterator[bytes]:
        began = asyncio.get_running_loop().time()
        start = await self.engine.admit(completion.prompt_tokens - completion.cached_tokens)
        try:
            yield completion.chunk({"role": "assistant", "content": ""}, None, with_usage=with_usage)
            pieces = completion.pieces()
            for index, piece in enumerate(pieces, 1):
                await self.engine.decoded(start, completion.out_tokens * slow * index / len(pieces))
                yield completion.chunk({"content": piece}, None, with_usage=with_usage)
            self._count(completion, began, slow)
            yield completion.chunk({}, completion.finish, with_usage=with_usage)
            if with_usage:
                yield completion.usage_chunk()
            self.log.write(digest, role, 200, asyncio.get_running_loop().time() - began)
            yield b"data: [DONE]\n\n"
        finally:
            self.engine.leave()

    def _count(self, completion: wire.Completion, began: float, slow: float) -> None:
        uncached, running = completion.prompt_tokens - completion.cached_tokens, self.engine.running
        latency_seconds = latency.seconds(completion.out_tokens * slow, running, uncached)
        if self.config.time_scale > 0:
            latency_seconds = (asyncio.get_running_loop().time() - began) / self.config.time_scale
        first = min(latency_seconds, latency.PREFILL_SECONDS_PER_TOKEN * uncached + latency.step(running))
        self.metrics.done(
            prompt=completion.prompt_tokens,
            cached=completion.cached_tokens,
            out=completion.out_tokens,
            reason=completion.finish,
            latency=latency_seconds,
            first=first,
        )

    async def _body(self, request: Request) -> tuple[dict[str, Any], Response | None]:
        if (refusal := self._unauthorised(request)) is not None:
            return {}, refusal
        try:
            body = json.loads(await request.body())
        except ClientDisconnect:
            return {}, wire.error(400, "The request broke off.", "BadRequestError")
        except ValueError as error:
            return {}, wire.error(400, f"The body is no JSON: {error}", "BadRequestError")
        if not isinstance(body, dict):
            return {}, wire.error(400, "The body must be a JSON object", "BadRequestError")
        if (name := body.get("model")) not in self.config.names:
            return {}, wire.error(404, f"The model `{name}` does not exist.", "NotFoundError", param="model")
        if body.get("n", 1) not in (None, 1):
            return {}, wire.error(400, "n > 1 is not modelled.", "BadRequestError", param="n")
        return body, None

    def _unauthorised(self, request: Request) -> Response | None:
        if not self.config.api_keys:
            return None
        token = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
        if any(hmac.compare_digest(token, key.encode()) for key in self.config.api_keys):
            return None
        return wire.error(401, "Unauthorized", "AuthenticationError", code="invalid_api_key")

    @staticmethod
    def _limit(body: dict[str, Any]) -> int | None:
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        if limit is None:
            return None
        if not isinstance(limit, int) or limit < 1:
            raise ValueError("max_tokens must be a positive integer")
        return limit

    async def _broken(self, request: Request, fault: Fault, digest: str, role: str) -> Response | None:
        """Return the response to a fault that withholds the answer, or None."""
        if fault.kind == "error":
            self.log.write(digest, role, 500)
            return wire.error(500, "The engine failed (a fault on request).", "InternalServerError")
        if fault.kind == "rate_limit":
            self.log.write(digest, role, 429)
            headers = {"Retry-After": f"{self.config.faults.retry_after_seconds:g}"}
            return wire.error(
                429, "Too many requests (a fault on request).", "RateLimitError", headers=headers
            )
        if fault.kind == "hang":
            while (await request.receive())["type"] != "http.disconnect":
                pass
            self.log.write(digest, role, 0)
            return Response(status_code=499)
        if fault.kind == "reset":
            self.log.write(digest, role, 0)
            return _reset(request)
        return None

    async def embeddings(self, request: Request) -> Response:
        """POST /v1/embeddings."""
        body, refusal = await self._body(request)
        if refusal is not None:
            return refusal
        value = body.get("input")
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            return wire.error(400, "input must be text or a list of texts", "BadRequestError", param="input")
        size = body.get("dimensions") or embedding.DIMENSIONS
        if not isinstance(size, int) or not 1 <= size <= 4096:
            return wire.error(400, "dimensions must be 1 to 4096", "BadRequestError", param="dimensions")
        form = str(body.get("encoding_format") or "float")
        digest, counts = request_digest(body), [prompts.tokens(text) for text in texts]
        if max(counts, default=0) > self.config.max_model_len:
            self.log.write(digest, roles.EMBED, 400)
            return wire.too_long(self.config.max_model_len, max(counts), 0)
        fault = self.luck.meet(digest)
        if (fault_response := await self._broken(request, fault, digest, roles.EMBED)) is not None:
            return fault_response
        start = await self.engine.admit(sum(counts))
        try:
            await self.engine.decoded(start, fault.slow)
        finally:
            self.engine.leave()
        data = [
            {
                "object": "embedding",
                "index": i,
                "embedding": embedding.encoded(embedding.embed(text, size), form),
            }
            for i, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": sum(counts), "total_tokens": sum(counts)}
        self.log.write(digest, roles.EMBED, 200)
        return JSONResponse({"object": "list", "data": data, "model": body["model"], "usage": usage})

    async def models(self, request: Request) -> Response:
        """GET /v1/models: states plainly that the model is simulated."""
        if (refused := self._unauthorised(request)) is not None:
            return refused
        data = [
            {
                "id": name,
                "object": "model",
                "created": wire.CREATED,
                "owned_by": "combee sim, a simulated model",
                "root": "simulated model",
                "parent": None,
                "max_model_len": self.config.max_model_len,
            }
            for name in self.config.names
        ]
        return JSONResponse({"object": "list", "data": data})

    async def health(self, request: Request) -> Response:
        """GET /health."""
        return Response(status_code=200)

    async def version(self, request: Request) -> Response:
        """GET /version."""
        return JSONResponse({"version": "combee-sim"})

    async def metrics_text(self, request: Request) -> Response:
        """GET /metrics."""
        text = self.metrics.text(self.engine.running, self.engine.waiting)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def _usage_asked(body: dict[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))


def _reset(request: Request) -> Response:
    """Drop the connection without an answer; in-process callers get ConnectionResetError."""
    cycle = getattr(request.receive, "__self__", None)
    transport = getattr(cycle, "transport", None)
    if transport is None:
        raise ConnectionResetError("a fault on request")
    transport.abort()
    return Response(status_code=499)


def create_app(config: SimConfig) -> Starlette:
    """Return the ASGI application. Raises DataError for unreadable key or plant files."""
    server = Server(config)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", server.chat, methods=["POST"]),
            Route("/v1/embeddings", server.embeddings, methods=["POST"]),
            Route("/v1/models", server.models),
            Route("/health", server.health),
            Route("/ping", server.health),
            Route("/version", server.version),
            Route("/metrics", server.metrics_text),
        ]
    )


def serve(config: SimConfig) -> None:
    """Serve until stopped. Once connections are taken, print the address and write the port file."""
    app = create_app(config)
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's delay off only then.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, config.port))
        listener.listen(2048)
        port = listener.getsockname()[1]
        if config.port_file is not None:
            _write_whole(config.port_file, f"{port}\n")
        sys.stdout.write(f"simulated model {config.names[0]} on http://{config.host}:{port}/v1\n")
        sys.stdout.flush()
        settings = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            backlog=2048,
            lifespan="off",
        )
        uvicorn.Server(settings).run(sockets=[listener])


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


class AnswerLog:
    """Appends ``{"n", "request", "role", "status", "time", "seconds"}``; digests only, never prompts.

    Status 0 means that no answer was sent. ``time`` (seconds since 1970) and ``seconds`` show which requests
    were in flight when something was killed.
    """

    def __init__(self, path: Path | None) -> None:
        self._count = 0
        self._file: IO[str] | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")

    def write(self, digest: str, role: str, status: int, seconds: float = 0.0) -> None:
        """Append one line and flush it."""
        self._count += 1
        if self._file is not None:
            line = {"n": self._count, "request": digest, "role": role, "status": status}
            line |= {"time": round(time.time(), 3), "seconds": round(seconds, 3)}
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
