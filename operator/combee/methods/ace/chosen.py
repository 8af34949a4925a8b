"""The entries of a playbook that are shown for one question: a stable core, and what is most alike to it.

The core comes first and is the same for every question, so that a prefix cache serves it: the lines that are
no entries, then the entries with the most votes in their favour. The tail follows: of the other entries those
that share the most words with the question. A word counts by its rarity among the entries, and twice where it
is an anchor of the entry (a number, an identifier, a name). No model is asked.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache

from combee.algo.linear import normalized, pattern
from combee.algo.text import anchors, token_set
from combee.algo.tokens import BYTES_PER_TOKEN
from combee.methods.ace.parse import Line, parse_playbook

MAX_ASKED_CHARS = 4_000
"""How much of a question is compared: its first and its last words. It bounds what a request costs."""
ANCHOR_WEIGHT = 2
PAGES = 4
"""Playbooks that are remembered taken apart besides those that somebody holds: a batch is shown few."""
TEXTS = 2048
"""Entries whose words are remembered: pages of a run share most of them."""
_JOINED = pattern(r"[\pL\pN]+(?:[-/._][\pL\pN]+)+")
_BETWEEN = "\n\n"


@lru_cache(maxsize=PAGES)
def choosing(text: str, *, core_tokens: int, tail_tokens: int) -> Callable[[str], str]:
    """Return what chooses the part of a playbook that is shown for a question; all of it where it fits.

    The core takes at most ``core_tokens`` and the tail at most ``tail_tokens``, by estimate; lines that are
    no entries are kept whatever they take, since nobody can say what they are about. Both parts keep the
    order of the page, and entries stand below their section's heading. Cost: linear in the playbook, and for
    each question in the entries that share a word with it, once for each such word.

    >>> page = "\\n".join(f"[b-{k}] helpful=0 harmful=0 :: For F-{k} add {k}" for k in range(10, 90))
    >>> choosing(page, core_tokens=0, tail_tokens=12)("What is F-42?")
    '[b-42] helpful=0 harmful=0 :: For F-42 add 42'
    """
    if _bytes(text) <= (core_tokens + tail_tokens) * BYTES_PER_TOKEN:
        return lambda question: text
    lines = parse_playbook(text).lines
    above: list[tuple[int, ...]] = []
    for index, line in enumerate(lines):
        above.append((index,) if line.kind == "heading" else above[-1] if above else ())
    remarks = [index for index, line in enumerate(lines) if line.kind == "prose" and line.raw.strip()]
    entries = [index for index, line in enumerate(lines) if line.kind == "bullet"]
    entries.sort(key=lambda index: (lines[index].harmful - lines[index].helpful, index))
    core = _Part(lines, above, core_tokens * BYTES_PER_TOKEN)
    for index in remarks:
        core.take(index, anyway=True)
    for index in entries:
        core.take(index)
    rest = [index for index in entries if index not in core.taken]
    held, room = _held(lines, entries, rest), tail_tokens * BYTES_PER_TOKEN

    def chosen(question: str) -> str:
        tail = _Part(lines, above, room - _bytes(core.text and _BETWEEN))
        for rank in _alike(question, held):
            tail.take(rest[rank])
        return _BETWEEN.join(filter(None, (core.text, tail.text)))

    return chosen


_Held = Mapping[str, Sequence[tuple[int, int]]]
"""word -> (rank, weight) of the entries outside the core that hold it; the best have the lowest ranks."""


def _alike(question: str, held: _Held) -> list[int]:
    """Return the ranks of the entries that share a word with a question, those that share the most first."""
    shared: Counter[int] = Counter()
    for word in words_of(_ends(question)):
        for rank, weight in held.get(word, ()):
            shared[rank] += weight
    return sorted(shared, key=lambda rank: (-shared[rank], rank))


class _Part:
    """Lines of a page below their headings, as many as there is room for."""

    def __init__(self, lines: Sequence[Line], above: Sequence[tuple[int, ...]], room: int) -> None:
        """``above``: for each line the place of the heading that it stands below, if there is one."""
        self._lines, self._above = lines, above
        self._room = room + 1  # each line costs a line end, and the last one has none
        self.taken: set[int] = set()

    def take(self, index: int, *, anyway: bool = False) -> None:
        """Take a line with the heading above it where there is room for them, or ``anyway``."""
        wanted = {index, *self._above[index]} - self.taken
        # a blank line comes before each heading
        cost = sum(_bytes(self._lines[one].raw) + 1 + (self._lines[one].kind == "heading") for one in wanted)
        if cost <= self._room or anyway:
            self._room -= cost
            self.taken |= wanted

    @cached_property
    def text(self) -> str:
        """What was taken, from top to bottom."""
        shown = (self._lines[index] for index in sorted(self.taken))
        return "\n".join(f"\n{one.raw}" if one.kind == "heading" else one.raw for one in shown).strip("\n")


def _held(lines: Sequence[Line], entries: Iterable[int], rest: Iterable[int]) -> _Held:
    """Return who of ``rest`` holds each word, and what it weighs there: whole numbers, whose sums depend on
    no order."""
    words = {index: _words(lines[index].body) for index in entries}
    holders = Counter(word for held, _ in words.values() for word in held)
    held: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for rank, index in enumerate(rest):
        all_words, marked = words[index]
        for word in all_words:
            weight = round(1000 * math.log(1 + len(words) / holders[word]))
            held[word].append((rank, ANCHOR_WEIGHT * weight if word in marked else weight))
    return held


@lru_cache(maxsize=TEXTS)
def _words(entry: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words of an entry, and those of them that are in its anchors."""
    known = anchors(entry)
    names = (words_of(identifier) for identifier in known.identifiers)
    words = words_of(entry)
    return words, words & known.numbers.union(*names)


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that are compared; those joined by marks also as one.

    >>> sorted(words_of("Procedure P-0092"))
    ['92', 'p', 'p-0092', 'procedure']
    """
    joined = (match.group() or "" for match in _JOINED.finditer(normalized("NFC", text)))
    return token_set(text) | frozenset(word.casefold() for word in joined)


def _ends(question: str) -> str:
    if len(question) <= MAX_ASKED_CHARS:
        return question
    half = MAX_ASKED_CHARS // 2
    return f"{question[:half]}\n{question[-half:]}"


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
