"""Splits a conversation into parts that a model can read, by four rules.

1. Every word is in exactly one part, in order: joined, the parts are the whole conversation.
2. A turn stays whole: what an agent said, the tools it then called, and their results.
3. A turn that is too large is split between its calls, each with its result; a call that is too large
   with its result is split between the two.
4. Only a text that is too large by itself is cut, at the end of a line where one is near.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from combee.algo.tokens import BYTES_PER_TOKEN
from combee.tasks.traces.conversation import Call, Turn

Node = str | tuple["Node", ...]
"""texts that belong together, and nested texts that belong together more closely."""
_NEAR = 4
"""A line's end counts as near in the last quarter of what fits."""


@dataclass(frozen=True, slots=True)
class Parts:
    """``texts``: the parts; ``cut``: the number of texts that rule 4 cut."""

    texts: tuple[str, ...]
    cut: int = 0


def parts_of(turns: Sequence[Turn], part_tokens: int) -> Parts:
    """Return the conversation in parts of at most ``part_tokens`` (of four bytes); at least one. Linear."""
    packing = _Packing(part_tokens * BYTES_PER_TOKEN)
    for turn in turns:
        packing.place(node_of(turn))
    packing.close()
    return Parts(tuple(packing.done) or ("",), packing.cut)


def node_of(turn: Turn) -> Node:
    """Return a turn as texts that belong together."""
    message = f"## {turn.who.upper()}\n\n{turn.text}\n\n"
    if not turn.calls:
        return message
    return (*([message] if turn.text.strip() else []), *(_call(call) for call in turn.calls))


def _call(call: Call) -> Node:
    call_text = f"## AGENT CALLS {call.name}\n\n{call.arguments}\n\n"
    if call.result is None:
        return call_text
    return call_text, f"## RESULT OF {call.name}\n\n{call.result}\n\n"


def texts_in(node: Node) -> Iterator[str]:
    """Yield the texts of a node, in order."""
    if isinstance(node, str):
        yield node
        return
    for inner in node:
        yield from texts_in(inner)


@dataclass(slots=True)
class _Packing:
    """Fills parts of at most ``limit`` bytes, one after the other."""

    limit: int
    done: list[str] = field(default_factory=list)
    cut: int = 0
    _open: list[str] = field(default_factory=list)
    _size: int = 0

    def place(self, node: Node) -> None:
        """Add a node: whole, in this part or the next, or else in its pieces."""
        texts = list(texts_in(node))
        size = _bytes(texts)
        if self._size + size <= self.limit:
            self._add(texts, size)
        elif size <= self.limit:
            self.close()
            self._add(texts, size)
        elif isinstance(node, str):
            self._cut(node)
        else:
            for inner in node:
                self.place(inner)

    def close(self) -> None:
        """End the open part, if it holds anything."""
        if self._open:
            self.done.append("".join(self._open))
        self._open, self._size = [], 0

    def _add(self, texts: list[str], size: int) -> None:
        self._open += texts
        self._size += size

    def _cut(self, text: str) -> None:
        self.cut += 1
        self.close()
        for piece in _pieces(text, self.limit):
            self.close()
            self._add([piece], _bytes([piece]))


def _bytes(texts: Iterable[str]) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _pieces(text: str, limit: int) -> Iterator[str]:
    """Yield ``text`` in pieces of at most ``limit`` bytes (at least one character each)."""
    data, start = text.encode("utf-8", "surrogatepass"), 0
    while start < len(data):
        end = min(len(data), start + limit)
        while end < len(data) and end > start + 1 and data[end] & 0xC0 == 0x80:
            end -= 1
        if end < len(data):
            line = data.rfind(b"\n", start + (end - start) * (_NEAR - 1) // _NEAR, end)
            end = line + 1 if line >= 0 else end
        yield data[start:end].decode("utf-8", "surrogatepass")
        start = end
