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

_WHO = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}


def turns_of(row: Row, counts: Counter[str]) -> list[Turn]:
    """The turns of a row. UnreadableError when ``messages`` is no list of messages."""
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
    who = _WHO.get(role)
    if who is None:
        raise UnreadableError(f"message {number} has the unknown role {role[:40]!r}")
    if who != "agent":
        turns.append(Turn(who, text))
        return
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    turns.append(Turn(who, with_thoughts(text, thoughts), _calls(message, number)))


def _calls(message: Row, number: int) -> list[Call]:
    given = message.get("tool_calls") or []
    if not isinstance(given, list):
        raise UnreadableError(f"message {number} has tool_calls that are no list")
    if isinstance(old := message.get("function_call"), dict):
        given = [*given, {"function": old}]
    return [_call(one, number) for one in given]


def _call(given: Any, number: int) -> Call:
    function = given.get("function", given.get("custom")) if isinstance(given, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise UnreadableError(f"message {number} has a tool call without a name")
    arguments = function.get("arguments", function.get("input", ""))
    return Call(str(given.get("id") or ""), whole(function["name"]), as_json(arguments))
