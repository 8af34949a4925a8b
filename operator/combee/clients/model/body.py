"""The bodies of a chat call: how a request is written and how its answer is read. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from combee.algo.tokens import estimate_tokens
from combee.api.sampling import Sampling
from combee.clients.model.wire import ChatRequest
from combee.jsonread import MALFORMED, read_json
from combee.records import Prompt

RESPONSE_FORMAT = "response_format"
MAX_TOKENS = "max_tokens"
SEED = "seed"
EFFORT = "reasoning_effort"
THINKING = "thinking_token_budget"
BOUNDS = "maxLength"
LEFT_OUT = frozenset({SEED, EFFORT, THINKING})
QUIRKS = (RESPONSE_FORMAT, BOUNDS, MAX_TOKENS, *sorted(LEFT_OUT))
"""Parameters that some servers refuse, or ignore. Without ``response_format`` the schema goes into the last
message; without ``maxLength`` it has no bounds; ``max_tokens`` becomes ``max_completion_tokens``; the others
are left out: repeats without ``seed`` still have their own keys, and thinking without a budget of its own is
held by the reply's."""

_ABORTED = frozenset({"abort", "error"})
"""The finish reasons of a server that stopped in the middle (vLLM sends abort when it is stopped)."""
MOST_TOKENS = 10_000_000
"""No model has so long a context: a server that counts more does not count."""
_REASON_CHARS = 40


@dataclass(frozen=True, slots=True)
class Reply:
    """The content and the token counts of one successful response."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    finish_reason: str


def prompt_tokens(prompt: Prompt) -> int:
    """Return the estimated tokens of the messages. The schema is not counted: only some servers add it."""
    return sum(estimate_tokens(message.content) for message in prompt.messages)


def request_body(model: str, request: ChatRequest, quirks: Collection[str]) -> bytes:
    """Return the JSON to send to a server with these quirks."""
    prompt = request.prompt
    messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
    limit = "max_completion_tokens" if MAX_TOKENS in quirks else "max_tokens"
    body: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        limit: request.output_tokens,
    }
    optional = {SEED: request.ordinal, **thinking(request.sampling)}
    body |= {name: value for name, value in optional.items() if name not in quirks}
    if prompt.schema is not None:
        if RESPONSE_FORMAT in quirks:
            messages[-1]["content"] += _in_words(prompt.schema)
        else:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": prompt.schema_name or "answer",
                    "schema": _unbounded(prompt.schema) if BOUNDS in quirks else prompt.schema,
                    "strict": True,
                },
            }
    return json.dumps(body, separators=(",", ":")).encode("ascii")


def _unbounded(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without the bounds of its texts and lists."""
    parts = {name: part for name, part in schema.items() if name not in ("maxLength", "maxItems")}
    if isinstance(items := parts.get("items"), dict):
        parts["items"] = _unbounded(items)
    if isinstance(fields := parts.get("properties"), dict):
        parts["properties"] = {name: _unbounded(field) for name, field in fields.items()}
    return parts


def thinking(sampling: Sampling) -> dict[str, Any]:
    """Return the fields of a request that are about thinking; none where the manifest says nothing of it."""
    fields = {EFFORT: sampling.reasoning_effort, THINKING: sampling.reasoning_tokens}
    return {name: value for name, value in fields.items() if value is not None}


def read_reply(content: bytes, prompt: Prompt) -> Reply | str:
    """Return the reply, or one word for why this body holds none: ``malformed`` or ``aborted``."""
    try:
        data = read_json(content)
        choice = data["choices"][0]
        text = _text_of(choice["message"].get("content"))
        finish = choice.get("finish_reason")
        finish = finish[:_REASON_CHARS] if isinstance(finish, str) else ""
        usage = data.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"), details.get("cached_tokens"))
    except MALFORMED:
        return "malformed"
    if finish in _ABORTED:
        return "aborted"
    return Reply(
        text=text,
        prompt_tokens=counted(counts[0], prompt_tokens(prompt)),
        completion_tokens=counted(counts[1], estimate_tokens(text)),
        cached_tokens=counted(counts[2], 0),
        finish_reason=finish,
    )


_OBJECT = re.compile(r'\{\s*["}]')


def follows_schema(reply: Reply, prompt: Prompt) -> bool | None:
    """Return whether the reply shows that the server held the model to the prompt's schema; None where it
    shows neither.

    A reply that the model itself ended has an object where a schema is enforced, and prose has none.
    """
    if prompt.schema is None or prompt.schema.get("type") != "object":
        return None
    if _OBJECT.search(reply.text):
        return True
    return False if reply.text.strip() and reply.finish_reason == "stop" else None


def _in_words(schema: dict[str, Any]) -> str:
    shape = json.dumps(schema, separators=(",", ":"))
    return f"\n\nAnswer with one JSON object and nothing else. It must follow this JSON schema:\n{shape}"


def _text_of(content: object) -> str:
    """Return a message's text: parts are joined, None becomes ""."""
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content)
    if content is None:
        return ""
    if not isinstance(content, str):
        raise TypeError("content is not text")
    return content


def counted(value: object, otherwise: int) -> int:
    """Return the server's count, or ``otherwise`` where ``value`` is no count of tokens."""
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else otherwise
