"""A chat request as the simulated model sees it: text, tokens, seed, and the form it must answer in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

V = TypeVar("V")

SEPARATOR = "\n\n"


def tokens(text: str) -> int:
    """Tokens of a text: its UTF-8 bytes over 4, rounded up."""
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


@dataclass(frozen=True, slots=True)
class Prompt:
    """``whole`` is all that was sent, in order; ``text`` leaves out what an assistant said."""

    whole: str
    text: str
    tokens: int
    ordinal: int
    """the request's seed: which repeat of the same item this is."""
    schema: Mapping[str, Any] | None
    model: str


def read(body: Mapping[str, Any]) -> Prompt:
    """A chat completion request's prompt. Raises ValueError on messages of another form."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a non-empty list")
    said, others = [], []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ValueError("every message needs a role")
        content = _content(message.get("content"))
        said.append(content)
        if message["role"] != "assistant":
            others.append(content)
    whole = SEPARATOR.join(said)
    text = whole if len(said) == len(others) else SEPARATOR.join(others)
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
    asked = body.get("response_format")
    if isinstance(asked, dict) and isinstance(asked.get("json_schema"), dict):
        schema = asked["json_schema"].get("schema")
        return schema if isinstance(schema, dict) else None
    guided = body.get("guided_json")
    return guided if isinstance(guided, dict) else None


class TextCache(Generic[V]):
    """What was found in recent texts; holds at most ``limit`` characters of them."""

    def __init__(self, make: Callable[[str], V], limit: int = 16_000_000) -> None:
        self._make, self._limit, self._held = make, limit, 0
        self._values: OrderedDict[str, V] = OrderedDict()

    def __call__(self, text: str) -> V:
        """The value for a text, made once while it is remembered."""
        if text in self._values:
            self._values.move_to_end(text)
            return self._values[text]
        value = self._make(text)
        if len(text) <= self._limit // 4:
            self._values[text] = value
            self._held += len(text) + 200
            while self._held > self._limit:
                old, _ = self._values.popitem(last=False)
                self._held -= len(old) + 200
        return value
