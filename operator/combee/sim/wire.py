"""The OpenAI-compatible wire format: errors, completions, chunks. Nothing here waits or draws."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse

CREATED = 1_700_000_000
"""A constant: answers hold no time, so equal requests get equal bytes."""
PIECES = 16
"""A stream sends a reply in at most this many pieces."""


def error(
    status: int,
    message: str,
    kind: str,
    *,
    param: str | None = None,
    code: Any = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return an error in OpenAI's format."""
    body = {
        "error": {
            "message": message,
            "type": kind,
            "param": param,
            "code": code if code is not None else status,
        }
    }
    return JSONResponse(body, status_code=status, headers=dict(headers or {}))


def too_long(limit: int, prompt: int, completion: int) -> JSONResponse:
    """Return the 400 response to a request that does not fit the context."""
    request_size = (
        f"you requested {prompt + completion} tokens "
        f"({prompt} in the messages, {completion} in the completion)"
    )
    message = (
        f"This model's maximum context length is {limit} tokens. However, {request_size}. "
        "Please reduce the length of the messages or completion."
    )
    return error(400, message, "BadRequestError", param="messages", code="context_length_exceeded")


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished answer and its token counts."""

    id: str
    model: str
    text: str
    finish: str
    prompt_tokens: int
    cached_tokens: int
    out_tokens: int

    def usage(self) -> dict[str, Any]:
        """Return the token counts as vLLM reports them."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.out_tokens,
            "total_tokens": self.prompt_tokens + self.out_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    def whole(self) -> dict[str, Any]:
        """Return the answer without streaming."""
        message = {"role": "assistant", "content": self.text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish}
        return self._frame("chat.completion", [choice]) | {"usage": self.usage()}

    def _frame(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": CREATED, "model": self.model, "choices": choices}

    def pieces(self) -> list[str]:
        """Return the text in at most PIECES parts."""
        size = max(1, -(-len(self.text) // PIECES))
        return [self.text[start : start + size] for start in range(0, len(self.text), size)]

    def chunk(self, delta: Mapping[str, Any], finish: str | None, *, with_usage: bool) -> bytes:
        """Return one server-sent event of a stream."""
        choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish}
        frame = self._frame("chat.completion.chunk", [choice])
        return event(frame | {"usage": None} if with_usage else frame)

    def usage_chunk(self) -> bytes:
        """Return the event that stream_options.include_usage asks for."""
        return event(self._frame("chat.completion.chunk", []) | {"usage": self.usage()})


def event(data: Mapping[str, Any]) -> bytes:
    """Return a server-sent event."""
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "surrogatepass")


def shortened(text: str, limit: int) -> tuple[str, str]:
    """Return (text of at most ``limit`` tokens, finish reason)."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit * 4:
        return text, "stop"
    return data[: limit * 4].decode("utf-8", "ignore"), "length"
