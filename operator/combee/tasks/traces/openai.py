"""OpenAI's chat format: ``{"messages": [{"role", "content", "tool_calls", "tool_call_id"}, ...]}``."""

from __future__ import annotations

from collections import Counter
from typing import Any

from combee.tasks.traces.conversation import (
    Call,
    Row,
    Turn,
    UnreadableError,
    as_json,
    attach,
    text_of,
    whole,
    with_thoughts,
)

_SPEAKERS = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}


def turns_of(row: Row, counts: Counter[str]) -> list[Turn]:
    """Return the turns of a row. Raises UnreadableError when ``messages`` is not a list of messages."""
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise UnreadableError("has no messages")
    turns: list[Turn] = []
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise UnreadableError(f"message {number} has no role")
        _add(turns, message, number, counts)
    return turns


def _add(turns: list[Turn], message: Row, number: int, counts: Counter[str]) -> None:
    role, text = message["role"], text_of(message.get("content"), counts)
    if role in ("tool", "function"):
        attach(turns, message.get("tool_call_id"), text)
        return
    speaker = _SPEAKERS.get(role)
    if speaker is None:
        raise UnreadableError(f"message {number} has the unknown role {role[:40]!r}")
    if speaker != "agent":
        turns.append(Turn(speaker, text))
        return
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    turns.append(Turn(speaker, with_thoughts(text, thoughts), _calls(message, number)))


def _calls(message: Row, number: int) -> list[Call]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise UnreadableError(f"message {number} has tool_calls that are no list")
    if isinstance(legacy_call := message.get("function_call"), dict):
        calls = [*calls, {"function": legacy_call}]
    return [_call(call, number) for call in calls]


def _call(call: Any, number: int) -> Call:
    function = call.get("function", call.get("custom")) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise UnreadableError(f"message {number} has a tool call without a name")
    arguments = function.get("arguments", function.get("input", ""))
    return Call(str(call.get("id") or ""), whole(function["name"]), as_json(arguments))
