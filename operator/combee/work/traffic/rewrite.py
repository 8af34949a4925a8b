"""Where the playbook goes in a request: before everything else that the request says to the model.

Pure. The body is not parsed and written anew but spliced: every byte of the client's stays as it was,
in its order, and one piece is put in. So numbers keep their digits and unknown fields their form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from combee.methods.registry import served_text

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


def preface_of(playbook: str, method: str = "") -> str:
    """Return what ``with_preface`` puts in front for a text of ``method``; nothing for an empty text."""
    return encoded(served_text(playbook, method)) if playbook.strip() else ""


def with_preface(body: bytes, preface: str) -> bytes:
    """Return ``body`` with ``preface`` (as ``encoded`` gives it) as its first instruction.

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


def _place(text: str, preface: str) -> tuple[int, str]:
    """Return where something is put in, and what: an empty string where there are no messages."""
    member = _last(text, _after_blank(text, 0), "messages", alone=True)
    if member is None or not isinstance(member[1], list) or not member[1]:
        return 0, ""
    start, messages = member
    first_at = _after_blank(text, start + 1)
    first = messages[0]
    if isinstance(first, dict) and first.get("role") in INSTRUCTING:
        content = _last(text, first_at, "content")
        if content is not None and isinstance(content[1], str):
            return content[0] + 1, preface + r"\n\n"
        if content is not None and isinstance(content[1], list):
            more = "," if content[1] else ""
            return content[0] + 1, f'{{"type":"text","text":"{preface}\\n\\n"}}{more}'
    return first_at, f'{{"role":"system","content":"{preface}"}},'


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
