"""What no learned text may hold: private things, orders to its reader, passages of the data.

All look at a text alone and say why without repeating it. They are filters with known limits (patterns are
English; a paraphrased passage is not found), which is why verification on examples comes after them.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from combee.methods.protocol import LeakCorpus, Refusal

SHINGLE_WORDS = 8
"""Words in a row that make a passage."""
COMMON_FROM_ROWS = 3
"""Rows from which a passage is common wording (an instruction, a definition) and no leak."""
_CACHED_WORDS = 20_000

_WORD = re.compile(r"\w+")
_POWERS = np.array([pow(0x9E3779B97F4A7C15, k, 1 << 64) for k in range(SHINGLE_WORDS)], dtype=np.uint64)

_PRIVATE = (
    ("an e-mail address", re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]{1,63}(?:\.[\w-]{1,63})+")),
    (
        "an access key",
        re.compile(
            r"\b(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9]{16,}|\bAKIA[0-9A-Z]{12,}|\bgh[pousr]_[A-Za-z0-9]{20,}"
            r"|\bxox[abprs]-[\w-]{10,}|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}|\beyJ[\w-]{10,}\.[\w-]{10,}"
            r"|-----BEGIN [A-Z ]*PRIVATE KEY|\bglpat-[\w-]{16,}"
        ),
    ),
    (
        "a secret",
        re.compile(r"(?i)\b(?:password|passwd|secret|api[ _-]?key|token)\b\s{0,3}[:=]\s{0,3}\S{6,}"),
    ),
    (
        "a random string",
        re.compile(
            r"\b(?=(?:[A-Za-z+/]*[0-9]){4})(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*[A-Z])[A-Za-z0-9+/]{36,}={0,2}"
        ),
    ),
    ("a hexadecimal string", re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{32,}\b")),
    ("a social security number", re.compile(r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])")),
    ("a card number", re.compile(r"(?<![\d.])\d{4}([ -])\d{4}\1\d{4}\1\d{1,7}(?!\d)")),
    ("a bank account", re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b")),
    (
        "a telephone number",
        re.compile(
            r"(?<![\w.])\+\d{1,3}[ -]?(?:\(?\d{1,4}\)?[ -]?){2,5}\d{2,4}(?!\w)|\(\d{3}\) ?\d{3}-\d{4}\b"
        ),
    ),
    ("a long number", re.compile(r"(?<![\d.,])(?!\d*0{6}(?!\d))\d{9,}(?![\d%])(?!\.\d)")),
)

_REDACTED = (
    # What a learned text may well hold, and kept traffic must not: wider than _PRIVATE, since here a mistake
    # costs little.
    (
        "?[a query]",
        re.compile(
            r"(?i)\?[^\s\"'<>#?]*(?:sig|signature|token|secret|passw(?:or)?d|key|keyid|credential|auth|jwt|session)="
            r"[^\s\"'<>#]*"
        ),
    ),
    ("://[a secret]@", re.compile(r"://[^\s/@:]{1,100}:[^\s/@]{1,200}@")),
    (
        "[a secret]",
        re.compile(
            r"(?i)\b(?:authorization\b[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:(?:bearer|basic|token)\s+)?[^\s\"']{6,}"
            r"|(?:bearer|basic)\s+(?=[^\s\"']*[\d=]|[^\s\"']{24})[\w.~+/-]{12,}=*)"
        ),
    ),
    (
        "[a secret]",
        re.compile(
            r"(?i)(?<![\w-])[\w-]{0,40}(?:password|passwd|secret|(?:api|access)[ _-]?key(?:[ _-]?id)?|token)"
            r"(?:[_-]\w{1,40})?[\"']?\s{0,3}[:=]\s{0,3}[\"']?[^\s\"',;}]{6,}"
        ),
    ),
)
_REDACTED_AFTER = (
    (
        "[an access key]",
        re.compile(
            r"(?<![A-Za-z0-9/+=])(?=[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))"
            r"(?=[A-Za-z0-9/+]*[a-z])(?=[A-Za-z0-9/+]*[A-Z])(?=[A-Za-z0-9/+]*[0-9])[A-Za-z0-9/+]{40}"
        ),
    ),
    (
        "[a telephone number]",
        re.compile(
            r"(?<![\w.,/-])(?!\d{1,2}[./-]\d{1,2}[./-]\d{2,4}(?!\d))(?=(?:[ ()./-]{0,2}\d){7,15}(?![\d]))"
            r"\(?0\d{1,5}\)?(?:[ ./-]{0,2}\(?\d{2,8}\)?){1,6}(?!\w)"
            r"|(?<![\w.,-])(?:\+?1[ .-]?)?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[ .-])\d{3}[ .-]\d{4}(?![\w-])"
        ),
    ),
)
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)

_ABOUT_PROMPT = (
    r"(?:instruction|prompt|rule|guideline|playbook|bullet|direction|command|task|polic)(?:s|ies|y)?"
)
_INJECTION = (
    (
        "it tells the reader to drop its instructions",
        re.compile(
            r"\b(?:ignor|disregard|forget|overrid|bypass|discard|skip)\w*\b[^.;]{0,40}"
            r"\b(?:all|any|every|previous|prior|above|earlier|preceding|other|your|system|these|those)\b[^.;]{0,30}"
            rf"\b{_ABOUT_PROMPT}\b"
        ),
    ),
    (
        "it asks for the prompt or a secret",
        re.compile(
            r"\b(?:reveal|print|output|repeat|show|leak|disclose|send|expose|exfiltrate)\w*\b[^.;]{0,40}"
            r"\b(?:system prompt|your (?:instructions|prompt)|the prompt|api key|password|credential|secret)"
            r"s?\b"
        ),
    ),
    (
        "it gives the reader another role",
        re.compile(
            r"\byou are (?:now|no longer) |\bact as (?:if you|an? (?:unrestricted|different))"
            r"|\bdeveloper mode\b|\bjailbreak"
        ),
    ),
    (
        "it has the marks of a chat message",
        re.compile(
            r"<\|[a-z_]+\|>|</?(?:system|assistant|user|instructions?)>|\[/?inst\]"
            r"|^(?:system|assistant|user) ?:|<<sys>>"
        ),
    ),
    (
        "it fixes the answer whatever the task",
        re.compile(
            r"\b(?:regardless of|no matter|whatever|irrespective of)\b"
            r"[^.;]{0,20}\b(?:question|task|input|problem|asked?|user)\b"
            r"[^.;]{0,40}\b(?:answer|reply|respond|output|return|say|write)\b"
            r"|\b(?:answer|reply|respond|output|return|say)\b"
            r"[^.;]{0,40}\b(?:regardless of|no matter|whatever|irrespective of)\b"
            r"[^.;]{0,20}\b(?:question|task|input|problem|asked?|user)\b"
        ),
    ),
    (
        "it sends the reader to an address",
        re.compile(r"\b(?:https?|ftp|file|data|javascript):/{0,2}\S|\bwww\.\w"),
    ),
    (
        "it has the reader run a command",
        re.compile(r"\b(?:curl|wget|rm -rf|sudo|eval\(|exec\(|os\.system|subprocess)(?=\W|$)|\$\(|&& "),
    ),
)


def leak_reason(text: str) -> str:
    """Return what private thing ``text`` seems to hold, or empty."""
    plain = as_read(text)
    return next((what for what, pattern in _PRIVATE if pattern.search(plain)), "")


def without_private(text: str) -> str:
    """Return ``text`` with every private thing replaced by its kind, such as [an e-mail address].

    Where there is one, characters are as they are read; a text without any is unchanged.

    >>> without_private("mail \uff4aane@example\u200b.com, or 030 1234567")
    'mail [an e-mail address], or [a telephone number]'
    >>> without_private("\u00bd of 2019-12-31")
    '½ of 2019-12-31'
    """
    plain = public = as_read(text)
    named = [(f"[{what}]", pattern) for what, pattern in _PRIVATE]
    for shown, pattern in (*_REDACTED, *named, *_REDACTED_AFTER):
        public = pattern.sub(shown, public)
    return text if public == plain else public


def injection_reason(text: str) -> str:
    """Return in what way ``text`` gives orders beyond its trade, or empty."""
    # What is not seen may stand between words or in them.
    read = {" ".join(as_read(text, unseen).casefold().split()) for unseen in ("", " ")}
    return next((what for what, pattern in _INJECTION if any(map(pattern.search, read))), "")


def as_read(text: str, unseen: str = "") -> str:
    """Return ``text`` in plain characters (NFKC), with ``unseen`` for each one that shows nothing.

    >>> as_read("ig\u200bnore \uff41ll")
    'ignore all'
    """
    if text.isascii():
        return text
    shown = (unseen if unicodedata.category(one) == "Cf" else one for one in _UNSEEN.sub(unseen, text))
    return unicodedata.normalize("NFKC", "".join(shown))


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
