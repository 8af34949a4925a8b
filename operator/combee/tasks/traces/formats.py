"""The formats of traces: OpenAI's chats, and ATIF, which Harbor's agents write.

OpenAI: ``{"messages": [{"role", "content", "tool_calls", "tool_call_id"}, ...]}``.
ATIF: ``{"schema_version": "ATIF-v1.x", "steps": [...]}``, on one line.
"""

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

_OPENAI_SPEAKERS = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
_ATIF_SPEAKERS = {"system": "system", "user": "user", "agent": "agent"}


def openai_turns(row: Row, counts: Counter[str]) -> list[Turn]:
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
    speaker = _OPENAI_SPEAKERS.get(role)
    if speaker is None:
        raise UnreadableError(f"message {number} has the unknown role {role[:40]!r}")
    if speaker != "agent":
        turns.append(Turn(speaker, text))
        return
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    turns.append(Turn(speaker, with_thoughts(text, thoughts), _openai_calls(message, number)))


def _openai_calls(message: Row, number: int) -> list[Call]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise UnreadableError(f"message {number} has tool_calls that are no list")
    if isinstance(legacy_call := message.get("function_call"), dict):
        calls = [*calls, {"function": legacy_call}]
    return [_openai_call(call, number) for call in calls]


def _openai_call(call: Any, number: int) -> Call:
    function = call.get("function", call.get("custom")) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise UnreadableError(f"message {number} has a tool call without a name")
    arguments = function.get("arguments", function.get("input", ""))
    return Call(str(call.get("id") or ""), whole(function["name"]), as_json(arguments))


def atif_turns(row: Row, counts: Counter[str]) -> list[Turn]:
    """Return the turns of a row. Raises UnreadableError when ``steps`` is not a list of steps."""
    steps = row.get("steps")
    if not isinstance(steps, list) or not steps:
        raise UnreadableError("has no steps")
    turns: list[Turn] = []
    for number, step in enumerate(steps, start=1):
        if not isinstance(step, dict):
            raise UnreadableError(f"step {number} is not an object")
        speaker = _ATIF_SPEAKERS.get(str(step.get("source")))
        if speaker is None:
            raise UnreadableError(f"step {number} has the unknown source {str(step.get('source'))[:40]!r}")
        text = with_thoughts(text_of(step.get("message"), counts), step.get("reasoning_content"))
        turns.append(Turn(speaker, text, _atif_calls(step, number)))
        for result in _results(step, number):
            attach(turns, result.get("source_call_id"), text_of(result.get("content"), counts))
    return turns


def _atif_calls(step: Row, number: int) -> list[Call]:
    calls = step.get("tool_calls") or []
    if not isinstance(calls, list):
        raise UnreadableError(f"step {number} has tool_calls that are no list")
    return [_atif_call(call, number) for call in calls]


def _atif_call(call: Any, number: int) -> Call:
    if not isinstance(call, dict) or not isinstance(call.get("function_name"), str):
        raise UnreadableError(f"step {number} has a tool call without a function_name")
    return Call(
        str(call.get("tool_call_id") or ""),
        whole(call["function_name"]),
        as_json(call.get("arguments", "")),
    )


def _results(step: Row, number: int) -> list[Row]:
    observation = step.get("observation")
    if observation is None:
        return []
    results = observation.get("results") if isinstance(observation, dict) else None
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise UnreadableError(f"step {number} has an observation without a list of results")
    return results
