"""Where the playbook goes in a request: before everything else that the request says to the model.

Pure. The body is not parsed and written anew but spliced: every byte of the client's stays as it was,
in its order, and one piece is put in. So numbers keep their digits and unknown fields their form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from combee.algo.tokens import BYTES_PER_TOKEN
from combee.api.method_options import Retrieval
from combee.errors import UserError
from combee.methods.registry import served_text, serving
from combee.names import RETRIEVAL_KEY

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
INSTRUCTING = ("system", "developer")
"""Roles whose content instructs the model; OpenAI's newer models call it developer."""


def encoded(preface: str) -> str:
    """Return a text as it stands inside a JSON string, without the quotes.

    >>> encoded('say "yes"')
    'say \\\\"yes\\\\"'
    """
    return json.dumps(preface, ensure_ascii=False)[1:-1]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A preface of which each request gets what its question asks for."""

    serve: Callable[[str], str]
    """takes a question and returns what is put in front of it."""
    most: int
    """the most characters of it."""

    @classmethod
    def of(cls, playbook: str, retrieval: Retrieval, method: str = "") -> Chosen:
        """Return that of a version. Cost: linear in the playbook."""
        serve = serving(playbook, retrieval, method)
        # All characters of a tail may have to be escaped.
        return cls(serve, len(encoded(serve(""))) + 2 * retrieval.tail_tokens * BYTES_PER_TOKEN)

    def __len__(self) -> int:
        return self.most

    def before(self, messages: Sequence[Any]) -> str:
        """Return what is put in front of these messages, as ``encoded`` gives it."""
        return encoded(self.serve(question_of(messages)))


Preface = str | Chosen
"""What is put in front of a request: the same text for all, as ``encoded`` gives it, or one for each."""


def question_of(messages: Sequence[Any]) -> str:
    """Return the question of a request: the words of the last message of a user; empty where there is none.

    >>> question_of([{"role": "user", "content": [{"type": "text", "text": "2+2"}]}, {"role": "tool"}])
    '2+2'
    """
    users = (one for one in reversed(messages) if isinstance(one, dict) and one.get("role") == "user")
    content = next(users, {}).get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def preface_of(playbook: str, method: str = "", retrieval: str = "") -> Preface:
    """Return what ``with_preface`` puts in front for a text of ``method``; nothing for an empty text.
    ``retrieval``: how much of it one question is shown, as it was published; empty: all.

    Raises UserError when that cannot be read.
    """
    if not playbook.strip():
        return ""
    if not retrieval:
        return encoded(served_text(playbook, method))
    try:
        return Chosen.of(playbook, Retrieval.model_validate_json(retrieval), method)
    except ValidationError as error:
        what = error.errors(include_url=False, include_input=False)[0]["msg"]
        fix = "Let a run publish it again; a newer release may say more: then update this one"
        raise UserError(f"the version's {RETRIEVAL_KEY}: {what}", where=RETRIEVAL_KEY, fix=fix) from None


def with_preface(body: bytes, preface: Preface) -> bytes:
    """Return ``body`` with ``preface`` as its first instruction.

    A first message of role system or developer begins with it and a blank line, then the client's own
    words; otherwise a system message is put before all others. A body without messages is returned as
    it is, for the upstream to judge. Raises ValueError when the body is no JSON object.

    >>> with_preface(b'{"messages": [{"role": "user", "content": "2+2"}]}', "Be brief.")
    b'{"messages": [{"role":"system","content":"Be brief."},{"role": "user", "content": "2+2"}]}'
    """
    if not preface:
        return body
    try:
        text = body.decode("utf-8")
        at, piece = _place(text, preface)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not piece:
        return body
    # The bytes are spliced, not the text: a large body is not copied more often than it must be.
    cut, whole = len(text[:at].encode()), memoryview(body)
    return b"".join((whole[:cut], piece.encode(), whole[cut:]))


def model_of(body: bytes) -> str:
    """Return the model that a request names; empty where it names none. Raises ValueError when the body is no
    JSON object.

    >>> model_of(b'{"model": "small", "messages": []}')
    'small'
    """
    try:
        text = body.decode("utf-8")
        named = _last(text, _after_blank(text, 0), "model", alone=True)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return named[1] if named is not None and isinstance(named[1], str) else ""


def _place(text: str, preface: Preface) -> tuple[int, str]:
    """Return where something is put in, and what: an empty string where there are no messages."""
    member = _last(text, _after_blank(text, 0), "messages", alone=True)
    if member is None or not isinstance(member[1], list) or not member[1]:
        return 0, ""
    start, messages = member
    words = preface if isinstance(preface, str) else preface.before(messages)
    first_at = _after_blank(text, start + 1)
    first = messages[0]
    if isinstance(first, dict) and first.get("role") in INSTRUCTING:
        content = _last(text, first_at, "content")
        if content is not None and isinstance(content[1], str):
            return content[0] + 1, words + r"\n\n"
        if content is not None and isinstance(content[1], list):
            more = "," if content[1] else ""
            return content[0] + 1, f'{{"type":"text","text":"{words}\\n\\n"}}{more}'
    return first_at, f'{{"role":"system","content":"{words}"}},'


def _last(text: str, at: int, key: str, *, alone: bool = False) -> tuple[int, Any] | None:
    """Return where the value of ``key`` begins in the object at ``at``, and the value. Of two members of
    that name the last counts, as parsers read it. ``alone``: nothing may follow the object."""
    member = None
    for name, start, value in _members(text, at, alone):
        if name == key:
            member = start, value
    return member


def _members(text: str, at: int, alone: bool) -> Iterator[tuple[str, int, Any]]:
    """Yield the members of the object at ``at``: name, where the value begins, the value. Raises
    ValueError where there is no object, or a broken one, or one that is to be alone and is not."""
    if text[at : at + 1] != "{":
        raise ValueError("not a JSON object")
    at = _after_blank(text, at + 1)
    more = text[at : at + 1] != "}"
    while more:
        if text[at : at + 1] != '"':
            raise ValueError("a member has no name")
        name, at = _DECODER.raw_decode(text, at)
        at = _after_blank(text, at)
        if text[at : at + 1] != ":":
            raise ValueError("a member has no value")
        start = _after_blank(text, at + 1)
        value, at = _DECODER.raw_decode(text, start)
        yield name, start, value
        at = _after_blank(text, at)
        more = text[at : at + 1] == ","
        if more:
            at = _after_blank(text, at + 1)
        elif text[at : at + 1] != "}":
            raise ValueError("members are not separated")
    if alone and _after_blank(text, at + 1) != len(text):
        raise ValueError("something follows the object")


def _after_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
