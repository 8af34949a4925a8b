"""What is kept of a request and its answer: the parts that an evaluator needs, without what looks private.

Pure. Only fields of a list are kept; every text in them is redacted before it is written anywhere.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from combee.jsonread import MALFORMED, read_json
from combee.methods.content import without_private

VERSION = 1
TIMEOUT, TOO_LONG, NO_ANSWER = "timeout", "too long", "no answer"
"""Why there is no answer, besides a status."""
PASSING = frozenset({408, 409, 425, 429, 503})
"""Statuses that are no version's fault: the upstream has no room now."""
KEPT = (
    "model",
    "messages",
    "tools",
    "tool_choice",
    "response_format",
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "seed",
    "stop",
    "reasoning_effort",
)
"""The fields kept of a request; ``user``, ``metadata`` and others that name people or accounts are not."""
CLUSTER = "cluster"
"""The field of a kept request that tells which others it belongs to; no model is sent it."""
_SETTINGS = frozenset(
    {"temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "tools", "response_format"}
)
"""Fields whose numbers are settings or bounds, and nobody's account."""
MOST_TOKENS = 2**53
"""The largest count of tokens that is kept: an upstream may say anything, and larger ones are no floats."""
_NAMED = ("tool", "function")
"""Roles whose ``name`` is a function's; that of another role is a person's."""
MAX_DEPTH = 32


def redacted(value: Any, depth: int = 0, *, numbers: bool = True) -> Any:
    """Return ``value`` with every text in it redacted, and with ``numbers`` also every number that would be
    redacted as a text; what is nested deeper than MAX_DEPTH is left out.

    >>> redacted({"content": "write to jane@example.com"})
    {'content': 'write to [an e-mail address]'}
    """
    if isinstance(value, str):
        return without_private(value)
    if depth >= MAX_DEPTH:
        return None
    if isinstance(value, list):
        return [redacted(one, depth + 1, numbers=numbers) for one in value]
    if isinstance(value, Mapping):
        return {
            redacted(name, depth + 1): redacted(one, depth + 1, numbers=numbers)
            for name, one in value.items()
        }
    return _number(value) if numbers and isinstance(value, int | float) else value


def _number(value: float) -> Any:
    """Return a number, or what it seems to be where that looks private."""
    text = f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
    public = without_private(text)
    return value if public == text else public


def request_record(body: bytes, cluster: str = "") -> dict[str, Any] | None:
    """Return the redacted request as the client sent it, without a playbook; None if it cannot be read.
    ``cluster``: what its client said that it belongs to; only a digest of that is kept."""
    try:
        raw = read_json(body)
    except ValueError:
        return None
    if not isinstance(raw, dict):
        return None
    kept = {name: redacted(raw[name], numbers=name not in _SETTINGS) for name in KEPT if name in raw}
    if isinstance(messages := kept.get("messages"), list):
        kept["messages"] = [_nameless(one) for one in messages]
    if cluster:
        kept[CLUSTER] = hashlib.sha256(f"{CLUSTER}\n{cluster}".encode("utf-8", "replace")).hexdigest()[:16]
    return kept


def _nameless(message: Any) -> Any:
    """Return a message without the name of the person who wrote it."""
    if not isinstance(message, Mapping) or message.get("role") in _NAMED:
        return message
    return {field: value for field, value in message.items() if field != "name"}


def answer_record(body: bytes, *, streamed: bool) -> dict[str, Any] | None:
    """Return the first choice of a whole answer, redacted: content, tool calls, why it ended, tokens used.
    Returns None for an error, or an answer that broke off."""
    try:
        choice, usage = _from_events(body) if streamed else _from_object(read_json(body))
    except MALFORMED:
        return None
    if choice.get("finish_reason") is None:
        return None
    return {**redacted(choice), **({"usage": usage} if usage else {})}


def _from_object(raw: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    first = raw["choices"][0]
    message = first["message"]
    kept = {name: message[name] for name in ("content", "refusal", "tool_calls") if message.get(name)}
    return {"content": "", **kept, "finish_reason": first.get("finish_reason")}, _usage(raw)


def _from_events(body: bytes) -> tuple[dict[str, Any], Any]:
    """Put the pieces of the first choice together from server-sent events.

    It is whole where it says why it ended: some servers end a stream without ``[DONE]``.
    """
    content, refusal, finish, usage = [], [], None, None
    calls: dict[int, dict[str, Any]] = {}
    for event in re.split(rb"\r?\n\r?\n", body):
        data = b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
        if data == b"[DONE]":
            break
        if not data:
            continue
        raw = read_json(data)
        usage = _usage(raw) or usage
        for choice in raw.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta") or {}
            content.append(delta.get("content") or "")
            refusal.append(delta.get("refusal") or "")
            _add_calls(calls, delta.get("tool_calls") or ())
            finish = choice.get("finish_reason") or finish
    message: dict[str, Any] = {"content": "".join(content), "finish_reason": finish}
    message |= {"refusal": "".join(refusal)} if any(refusal) else {}
    message |= {"tool_calls": [calls[index] for index in sorted(calls)]} if calls else {}
    return message, usage


def _add_calls(calls: dict[int, dict[str, Any]], pieces: Any) -> None:
    for piece in pieces:
        call = calls.setdefault(int(piece.get("index", 0)), {"function": {"name": "", "arguments": ""}})
        call |= {name: piece[name] for name in ("id", "type") if piece.get(name)}
        function = piece.get("function") or {}
        for name in ("name", "arguments"):
            call["function"][name] += function.get(name) or ""


def _usage(raw: Mapping[str, Any]) -> dict[str, int]:
    usage = raw.get("usage") or {}
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    counts = {name: usage.get(name) for name in names}
    return {name: count for name, count in counts.items() if type(count) is int and 0 <= count <= MOST_TOKENS}
