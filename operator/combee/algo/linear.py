"""Reading text that somebody else wrote in linear time, whatever it is.

A pattern of ``re`` may try again from every character and in every way; one of RE2 reads each character
once. RE2 has no look-around and no back-references, ``\\b``, ``\\d``, ``\\s`` and ``\\w`` are ASCII's, and
the end of a text is ``\\z``. https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Literal, Protocol, cast

import re2  # type: ignore[import-untyped]

_MOST_MARKS = 30
"""Marks on one character that are read: the bound of Unicode's Stream-Safe Text Format (UAX 15)."""
_MOST_BYTES = 2 << 20
"""What a pattern may keep of its automaton: a hostile text makes it large, and all of them must fit a pod."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class Match(Protocol):
    """What a pattern found; as in ``re``."""

    def start(self, group: int = 0) -> int: ...
    def end(self, group: int = 0) -> int: ...
    def group(self, group: int = 0) -> str | None: ...


class Pattern(Protocol):
    """A pattern that reads each character once; as in ``re``."""

    @property
    def groups(self) -> int: ...
    @property
    def pattern(self) -> str: ...
    def search(self, text: str) -> Match | None: ...
    def finditer(self, text: str) -> Iterator[Match]: ...
    def sub(self, repl: str | Callable[[Match], str], text: str) -> str: ...


def pattern(form: str, *, fold: bool = False) -> Pattern:
    """Return the compiled pattern; with ``fold`` upper and lower case are the same.

    It takes no text with lone surrogates; ``normalized`` returns none with them.

    >>> [match.group() for match in pattern("a+b", fold=True).finditer("aab ac Ab")]
    ['aab', 'Ab']
    """
    options = re2.Options()
    options.case_sensitive, options.log_errors, options.max_mem = not fold, False, _MOST_BYTES
    return cast(Pattern, re2.compile(form, options))


_MARKS = pattern(rf"(\pM{{{_MOST_MARKS}}})\pM+")


def normalized(form: Literal["NFC", "NFKC", "NFKD"], text: str) -> str:
    """Return ``text`` in a Unicode form, with at most thirty marks in a row and U+FFFD for lone surrogates.

    Python sorts marks in quadratic time: 60 KB of them take ten seconds.

    >>> normalized("NFC", "e\u0301") == "\u00e9", len(normalized("NFC", "e" + "\u0301\u0316" * 1000))
    (True, 30)
    """
    if text.isascii():
        return text
    return unicodedata.normalize(form, _MARKS.sub(r"\1", _SURROGATE.sub("\ufffd", text)))
