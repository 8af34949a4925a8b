"""What no learned text may hold: private things, orders to its reader, passages of the data.

All look at a text alone and say why without repeating it. They are filters with known limits (patterns are
English; a paraphrased passage is not found), which is why verification on examples comes after them.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from combee.algo.linear import normalized
from combee.methods.patterns import ORDERS, PRIVATE, Private
from combee.methods.protocol import LeakCorpus, Refusal

SHINGLE_WORDS = 8
"""Words in a row that make a passage."""
COMMON_FROM_ROWS = 3
"""Rows from which a passage is common wording (an instruction, a definition) and no leak."""
_CACHED_WORDS = 20_000

_WORD = re.compile(r"\w+")
_POWERS = np.array([pow(0x9E3779B97F4A7C15, k, 1 << 64) for k in range(SHINGLE_WORDS)], dtype=np.uint64)

_UNSEEN = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufdfa\ufdfb"
    + "".join(map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
"""Letters that show nothing, and two that stand for a whole sentence: in plain characters a text of them
would be eighteen times as long."""
_ALIKE = str.maketrans(
    "\x0b\x1c\x1d\x1e\x1f\x85\u1680\u2028\u2029авеёзкмнорстухіјѕһԁԛԝѵүАВЕЗКМНОРСТУХІЈЅҮαβεικνορτυχωΑΒΕΖΗΙΚΜΝΟΡΤΥΧօսհոɑɡı",
    "         abee3kmhopctyxijshdqwvyABE3KMHOPCTYXIJSYabeiknoptuxwABEZHIKMNOPTYXouhnagi",
)
"""Blanks that RE2 knows not as such, letters of other scripts, and what they are taken for."""
_ACCENTS = dict.fromkeys(range(0x300, 0x370))


def leak_reason(text: str) -> str:
    """Return what private thing ``text`` seems to hold, or empty."""
    read = as_read(text).translate(_ALIKE)
    return next((kind.what for kind in PRIVATE if kind.learned and any(_places(kind, read))), "")


def without_private(text: str) -> str:
    """Return ``text`` with every private thing replaced by its kind, such as [an e-mail address].

    Where there is one, characters are as they are read; a text without any is unchanged.

    >>> without_private("mail \uff4aane@example\u200b.com, or 030 1234567")
    'mail [an e-mail address], or [a telephone number]'
    >>> without_private("\u00bd of 2019-12-31")
    '½ of 2019-12-31'
    """
    plain = as_read(text)
    read = plain.translate(_ALIKE)
    places = sorted(
        (start, end, order) for order, kind in enumerate(PRIVATE) for start, end in _places(kind, read)
    )
    if not places:
        return text
    public, shown = [], 0
    for start, end, order in _joined(places):
        public += [plain[shown:start], f"[{PRIVATE[order].what}]"]
        shown = end
    return "".join([*public, plain[shown:]])


def _places(kind: Private, read: str) -> Iterator[tuple[int, int]]:
    for match in kind.pattern.finditer(read):
        group = 1 if kind.pattern.groups else 0
        if kind.fits(read, match.start(group), match.end(group)):
            yield match.start(group), match.end(group)


def _joined(places: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield sorted places, those that overlap as one of the first kind of the table."""
    last: tuple[int, int, int] | None = None
    for start, end, order in places:
        if last is not None and start < last[1]:
            last = last[0], max(end, last[1]), min(order, last[2])
            continue
        if last is not None:
            yield last
        last = start, end, order
    if last is not None:
        yield last


def injection_reason(text: str) -> str:
    """Return in what way ``text`` gives orders beyond its trade, or empty."""
    # What is not seen may stand between words or in them; letters may be other scripts' or have marks.
    plain = {as_read(text, unseen).casefold() for unseen in ("", " ")}
    bare = {normalized("NFKD", one).translate(_ACCENTS).translate(_ALIKE).casefold() for one in plain}
    read = {" ".join(one.split()) for one in plain | bare}
    return next((order.what for order in ORDERS if any(map(order.pattern.search, read))), "")


def as_read(text: str, unseen: str = "") -> str:
    """Return ``text`` in plain characters (NFKC), with ``unseen`` for each one that shows nothing.

    Tags, which some models read as the letters they stand for, become those letters.

    >>> as_read("ig\u200bnore \uff41ll \u0661 \U000e0061")
    'ignore all 1 a'
    """
    if text.isascii():
        return text
    return normalized("NFKC", "".join(_shown(one, unseen) for one in text))


def _shown(one: str, unseen: str) -> str:
    if one < "\x80":
        return one
    if one in _UNSEEN:
        return unseen
    category = unicodedata.category(one)
    if category == "Nd":
        return str(unicodedata.decimal(one))
    if category != "Cf":
        return one
    return chr(ord(one) - 0xE0000) if "\U000e0020" <= one <= "\U000e007e" else unseen


def refusals_of(digest: str, text: str, corpus: LeakCorpus) -> list[Refusal]:
    """Return why the text called ``digest`` may not be shown to a model: a leak, an injection, or both."""
    refusals: list[Refusal] = []
    name = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    if private := leak_reason(text):
        refusals.append(Refusal(digest, name, "leak", f"it seems to hold {private}"))
    elif corpus.repeats(text):
        reason = f"it repeats {SHINGLE_WORDS} words in a row that only few rows of the data have"
        refusals.append(Refusal(digest, name, "leak", reason))
    if order := injection_reason(text):
        refusals.append(Refusal(digest, name, "injection", order))
    return refusals


@dataclass(frozen=True, slots=True)
class ShingleCorpus:
    """The passages that fewer than three rows have, as sorted 64-bit hashes: 8 bytes a passage."""

    rare: np.ndarray[tuple[int], np.dtype[np.uint64]] = field(repr=False)

    def repeats(self, text: str) -> bool:
        """Return whether ``text`` has eight words in a row that only very few rows have."""
        passages = _shingles(text, {})
        if not len(passages) or not len(self.rare):
            return False
        places = np.searchsorted(self.rare, passages)
        places[places == len(self.rare)] = 0
        return bool((self.rare[places] == passages).any())


def leak_corpus(texts: Iterable[str]) -> ShingleCorpus:
    """Return the rare passages of the rows ``texts``. Cost: 8 bytes a word, in place; linear, one sort."""
    cache: dict[bytes, int] = {}
    filled, hashes = 0, np.empty(1 << 16, dtype=np.uint64)
    for text in texts:
        row = np.unique(_shingles(text, cache))
        if filled + len(row) > len(hashes):
            hashes.resize(max(filled + len(row), len(hashes) + len(hashes) // 4), refcheck=False)
        hashes[filled : filled + len(row)] = row
        filled += len(row)
    hashes.resize(filled, refcheck=False)
    hashes.sort()
    hashes.resize(_keep_rare(hashes), refcheck=False)
    return ShingleCorpus(hashes)


def _keep_rare(hashes: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> int:
    """Move the values that occur in fewer than ``COMMON_FROM_ROWS`` rows to the front of the sorted
    ``hashes``, once each and in order; return how many. It works block by block, to need no second array."""
    common = np.zeros(len(hashes), dtype=bool)
    reach = COMMON_FROM_ROWS - 1
    repeated = hashes[reach:] == hashes[:-reach]
    for shift in range(COMMON_FROM_ROWS):
        common[shift : shift + len(repeated)] |= repeated
    keep = ~common
    keep[1:] &= hashes[1:] != hashes[:-1]
    kept, block = 0, 1 << 16
    for start in range(0, len(hashes), block):
        part = hashes[start : start + block][keep[start : start + block]]
        hashes[kept : kept + len(part)] = part
        kept += len(part)
    return kept


def _shingles(text: str, cache: dict[bytes, int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return a 64-bit hash of each run of eight words; none for a shorter text. Overflow wraps on purpose."""
    words = [word.encode("utf-8", "surrogatepass") for word in _WORD.findall(text.casefold())]
    count = len(words) - SHINGLE_WORDS + 1
    if count <= 0:
        return np.empty(0, dtype=np.uint64)
    hashes = np.fromiter((_word_hash(word, cache) for word in words), dtype=np.uint64, count=len(words))
    total = np.zeros(count, dtype=np.uint64)
    for k in range(SHINGLE_WORDS):
        total += hashes[k : k + count] * _POWERS[k]
    return total


def _word_hash(word: bytes, cache: dict[bytes, int]) -> int:
    value = cache.get(word)
    if value is None:
        value = int.from_bytes(blake2b(word, digest_size=8).digest(), "big")
        if len(cache) < _CACHED_WORDS:
            cache[word] = value
    return value
