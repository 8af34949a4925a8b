"""A chat request as the simulated model sees it: text, tokens, seed, and the form of its answer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

V = TypeVar("V")

SEPARATOR = "\n\n"


def tokens(text: str) -> int:
    """Return the tokens of a text: its UTF-8 bytes over 4, rounded up."""
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


@dataclass(frozen=True, slots=True)
class Prompt:
    """``whole`` is all messages in order; ``text`` leaves out the assistant's."""

    whole: str
    text: str
    tokens: int
    ordinal: int
    """the request's seed: the number of this repeat of the same item."""
    schema: Mapping[str, Any] | None
    model: str


def read(body: Mapping[str, Any]) -> Prompt:
    """Return a chat completion request's prompt. Raises ValueError for malformed messages."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a non-empty list")
    contents, given_contents = [], []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ValueError("every message needs a role")
        content = _content(message.get("content"))
        contents.append(content)
        if message["role"] != "assistant":
            given_contents.append(content)
    whole = SEPARATOR.join(contents)
    text = whole if len(contents) == len(given_contents) else SEPARATOR.join(given_contents)
    seed = body.get("seed")
    ordinal = seed if isinstance(seed, int) else 0
    return Prompt(whole, text, tokens(whole), ordinal, _schema(body), str(body.get("model", "")))


def _content(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    raise ValueError("a message's content must be text or a list of text parts")


def _schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    response_format = body.get("response_format")
    if isinstance(response_format, dict) and isinstance(response_format.get("json_schema"), dict):
        schema = response_format["json_schema"].get("schema")
        return schema if isinstance(schema, dict) else None
    guided_schema = body.get("guided_json")
    return guided_schema if isinstance(guided_schema, dict) else None


class TextCache(Generic[V]):
    """Caches what was computed from recent texts; holds at most ``limit`` characters of them."""

    def __init__(self, make: Callable[[str], V], limit: int = 16_000_000) -> None:
        self._make, self._limit, self._characters = make, limit, 0
        self._values: OrderedDict[str, V] = OrderedDict()

    def __call__(self, text: str) -> V:
        """Return the value for a text, computed once while it is remembered."""
        if text in self._values:
            self._values.move_to_end(text)
            return self._values[text]
        value = self._make(text)
        if len(text) <= self._limit // 4:
            self._values[text] = value
            self._characters += len(text) + 200
            while self._characters > self._limit:
                oldest, _ = self._values.popitem(last=False)
                self._characters -= len(oldest) + 200
        return value
