"""ATIF, the format of Harbor's agents: ``{"schema_version": "ATIF-v1.x", "steps": [...]}``, on one line."""

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

_SPEAKERS = {"system": "system", "user": "user", "agent": "agent"}


def turns_of(row: Row, counts: Counter[str]) -> list[Turn]:
    """Return the turns of a row. Raises UnreadableError when ``steps`` is not a list of steps."""
    steps = row.get("steps")
    if not isinstance(steps, list) or not steps:
        raise UnreadableError("has no steps")
    turns: list[Turn] = []
    for number, step in enumerate(steps, start=1):
        if not isinstance(step, dict):
            raise UnreadableError(f"step {number} is not an object")
        speaker = _SPEAKERS.get(str(step.get("source")))
        if speaker is None:
            raise UnreadableError(f"step {number} has the unknown source {str(step.get('source'))[:40]!r}")
        text = with_thoughts(text_of(step.get("message"), counts), step.get("reasoning_content"))
        turns.append(Turn(speaker, text, _calls(step, number)))
        for result in _results(step, number):
            attach(turns, result.get("source_call_id"), text_of(result.get("content"), counts))
    return turns


def _calls(step: Row, number: int) -> list[Call]:
    calls = step.get("tool_calls") or []
    if not isinstance(calls, list):
        raise UnreadableError(f"step {number} has tool_calls that are no list")
    return [_call(call, number) for call in calls]


def _call(call: Any, number: int) -> Call:
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
