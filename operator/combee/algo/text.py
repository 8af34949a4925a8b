"""A lesson's essentials: its words and its anchors (numbers, identifiers, condition).

A lesson is carried by an entry when the entry still holds the lesson's anchors (DESIGN section 5, Retention).
Extraction is strict on the lesson and containment lenient on the entry, so that case, number format and
punctuation do not lose a lesson, and ``kept_in(x, x)`` holds for every text that has a word or a number. All
patterns are linear in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set
from dataclasses import dataclass
from functools import lru_cache

from combee.algo.linear import normalized

CONDITION_SHARE = 0.5
"""Share of the condition's content words that an entry must hold."""
OVERLAP_SHARE = 0.5
"""Share of the lesson's content words that an entry must hold when the lesson has no anchors."""
TEXTS, WORDS = 4096, 32768
"""How many texts' anchors and how many words are remembered, which take 12 MB: each level of a tree looks at
the lessons of the one below again, and lessons share their words."""

_LOOKALIKES = str.maketrans(
    "\u2212\u2010\u2011\u2013\u00a0\u202f\u2019\u2018\u201c\u201d\uff05", "----  ''\"\"%"
)
_NUMBER = re.compile(
    r"((?<![\w.)\]])[-+])?(?<!\w)(?<!\d\.)[$€£¥]?"
    r"(\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)*|(?<!\d)\.\d+)"
    r"(?:[eE]([-+]?\d{1,3})(?!\w))?"
    r"([ \t]?%|[ \t]per[ \t]?cent\b)?"
)
_WORD = re.compile(r"\w+(?:[-/]\w+)*")
_TOKEN = re.compile(r"\w+")
_LETTERS = re.compile(r"[^\W\d_]+")
_QUOTED = re.compile(r"`([^`\n]{1,60})`|\"([^\"\n]{1,60})\"|(?<!\w)'([^'\s]{1,60})'(?!\w)")
_CODE = re.compile(r"[A-Z0-9]+(?:[-/_][A-Z0-9]+)*")
_SHORT_CODE = re.compile(r"[a-z]{1,2}-\d+")
_CAMEL = re.compile(r"[a-z0-9][A-Z]")
_SNAKE = re.compile(r"[^\W_]_+[^\W_]")
_STOP = re.compile(r"[,:;!?\n]|\.(?=\s|$)|\bthen\b")
_TRIGGER = re.compile(
    r"\b(?:if|when|whenever|unless|for|where|while|once|until|before|after|during|except)\b"
)
MAX_NAME_WORDS = 5
"""A quotation of more words is a sentence, not a name."""

_COMMON_WORDS = (
    "a about above after all also always an and any are as at be been before being below between both but "
    "by can could did do does doing done during each either else ever every except for from had has have "
    "having he her here his how however if in instead into is it its itself just make may me more most "
    "must my never no nor not now of off on once one only or other our out over own per please rather "
    "same shall she should since so some such sure take than that the their them then there these they "
    "this those to too under unless until up upon use used using very was way we were what when whenever "
    "where whether which while who whose why will with within without would yes you your"
)
_STOPWORDS = frozenset(_COMMON_WORDS.split())


@dataclass(frozen=True, slots=True)
class Anchors:
    """What must survive of a lesson. Numbers and identifiers are normalised; words are stems."""

    numbers: frozenset[str] = frozenset()
    identifiers: frozenset[str] = frozenset()
    condition: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether there are no anchors at all.

        >>> Anchors().empty
        True
        """
        return not (self.numbers or self.identifiers or self.condition)

    def kept_in(self, text: str) -> bool:
        """Return whether ``text`` holds all numbers and identifiers and at least half the condition's words.

        Vacuously true when the anchors are empty (``kept_in`` the function falls back to overlap). Source:
        DESIGN section 5 (Retention). Cost: linear in ``text``; views are cached.

        >>> anchors("If debt is short-term, use 1,500").kept_in("With short-term debt use 1500.")
        True
        """
        view = _view(text)
        return (
            self.numbers <= view.numbers
            and all(view.names(identifier) for identifier in self.identifiers)
            and len(self.condition & view.stems) >= CONDITION_SHARE * len(self.condition)
        )


@dataclass(frozen=True, slots=True)
class _View:
    """An entry as containment sees it: everything that could count as a number or a name."""

    numbers: frozenset[str]
    words: frozenset[str]
    stems: frozenset[str]
    folded: str

    def names(self, identifier: str) -> bool:
        return identifier in self.words or bool(
            re.search(rf"(?<!\w){re.escape(identifier)}(?!\w)", self.folded)
        )


@lru_cache(maxsize=1024)
def _view(text: str) -> _View:
    clean = _clean(text)
    folded = clean.casefold()
    words = {word.casefold() for word in _WORD.findall(clean)} | {name for name, _ in _quoted(clean)}
    numbers = frozenset(_normal_number(match) for match in _NUMBER.finditer(clean))
    return _View(numbers, frozenset(words), _stems(folded), " ".join(folded.split()))


def token_set(text: str) -> frozenset[str]:
    """Return the casefolded words of a text, numbers in normal form ("1,500" and "1500" are one token).

    Empty for a text without word characters. Source: DESIGN section 6 (the group-by uses token-set Jaccard).
    Cost: linear.

    >>> sorted(token_set("The rate, 1,500 or 15 %, the Rate."))
    ['15%', '1500', 'or', 'rate', 'the']
    """
    clean = _clean(text)
    numbers = {_normal_number(match) for match in _NUMBER.finditer(clean)}
    return frozenset(_TOKEN.findall(_NUMBER.sub(" ", clean).casefold())) | numbers


def content_words(text: str) -> frozenset[str]:
    """Return the content words of a text, casefolded and without a plural s, as conditions have them.

    >>> sorted(content_words("If the rates of a bond rise"))
    ['bond', 'rate', 'rise']
    """
    return _view(text).stems


@lru_cache(maxsize=TEXTS)
def anchors(text: str) -> Anchors:
    """The anchors of a lesson.

    ``numbers``: decimal notation without separators, currency signs and trailing zeros; the percent
    sign is kept ("15%" is not "15"; "15 percent" is "15%"). ``identifiers``, casefolded: CamelCase,
    snake_case, codes of capitals and digits (ROI, 10-K, R-017), words that mix letters and digits,
    names in quotes or backticks of at most 5 words. ``condition``: stems of the content words
    between if / when / unless / for / ... and the next comma, colon or end of sentence. Numbers
    inside an identifier are not counted again. Empty text gives empty anchors. Source: DESIGN
    section 5 (Retention). Cost: linear; cached per text.

    >>> lesson = anchors("If the 10-K states EBITDA, use `tax_rate` of 15.0% on $1,500")
    >>> sorted(lesson.numbers), sorted(lesson.identifiers), sorted(lesson.condition)
    (['15%', '1500'], ['10-k', 'ebitda', 'tax_rate'], ['ebitda', 'state'])
    """
    clean = _clean(text)
    names = _quoted(clean)
    identifiers = {name for name, is_name in names if is_name}
    spans: list[tuple[int, int]] = []
    for match in _WORD.finditer(clean):
        if parts := _identifier_parts(match.group()):
            identifiers.update(part.casefold() for part in parts)
            if parts == (match.group(),):
                spans.append(match.span())
    inside: set[int] = set()
    for start, end in spans:
        inside.update(range(start, end))
    numbers = frozenset(
        _normal_number(match)
        for match in _NUMBER.finditer(clean)
        if not (match.start(2) in inside and match.end(2) - 1 in inside)
    )
    return Anchors(numbers, frozenset(identifiers), _condition(clean.casefold()))


def kept_in(lesson: str, entry: str) -> bool:
    """Return whether an entry carries a lesson: all its anchors, or half its content words if it has none.

    No text carries a lesson without words and numbers. Source: DESIGN section 5 (a citation counts only when
    the lesson's anchors are in the entry). Cost: linear; cached per text.

    >>> kept_in("For ROI subtract the cost of 200", "ROI: always subtract costs")
    False
    >>> kept_in("Subtract the costs first", "First of all, subtract costs")
    True
    """
    lesson_anchors = anchors(lesson)
    if not lesson_anchors.empty:
        return lesson_anchors.kept_in(entry)
    folded = _clean(lesson).casefold()
    words = _stems(folded) or frozenset(_TOKEN.findall(folded))
    view = _view(entry)
    shared = words & (view.stems | frozenset(_TOKEN.findall(view.folded)))
    return bool(words) and len(shared) >= OVERLAP_SHARE * len(words)


def jaccard(a: Set[str], b: Set[str]) -> float:
    """Return |a & b| / |a | b|, in [0, 1]; two empty sets give 1. Cost: O(min(|a|, |b|)).

    >>> jaccard({"a", "b"}, {"b", "c"}), jaccard(set(), set()), jaccard({"a"}, set())
    (0.3333333333333333, 1.0, 0.0)
    """
    both = len(a & b)
    either = len(a) + len(b) - both
    return both / either if either else 1.0


def _clean(text: str) -> str:
    return normalized("NFC", text).translate(_LOOKALIKES)


def _quoted(clean: str) -> list[tuple[str, bool]]:
    """Return (casefolded quotation, whether it is a name) for each quotation."""
    quotations = []
    for groups in _QUOTED.findall(clean):
        name = " ".join("".join(groups).split()).casefold()
        letters = bool(_LETTERS.search(name))
        quotations.append((name, letters and len(name.split()) <= MAX_NAME_WORDS))
    return quotations


@lru_cache(maxsize=WORDS)
def _identifier_parts(word: str) -> tuple[str, ...]:
    """Return the word itself when it is an identifier, else those of its hyphenated parts that are."""
    if _is_identifier(word):
        return (word,)
    parts = re.split(r"[-/]", word)
    return tuple(part for part in parts if _is_identifier(part)) if len(parts) > 1 else ()


def _is_identifier(word: str) -> bool:
    if word.casefold() in _STOPWORDS:
        return False
    if _CODE.fullmatch(word):
        return len(word) > 1 and any(c.isalpha() for c in word)
    if _SHORT_CODE.fullmatch(word):
        return True
    if "-" in word or "/" in word:
        return False
    mixed = word[0].isalpha() and any(c.isdigit() for c in word)
    return mixed or bool(_CAMEL.search(word)) or bool(_SNAKE.search(word))


def _condition(folded: str) -> frozenset[str]:
    stems: set[str] = set()
    for segment in _STOP.split(folded):
        if trigger := _TRIGGER.search(segment):
            stems |= _stems(segment[trigger.end() :])
    return frozenset(stems)


def _stems(folded: str) -> frozenset[str]:
    """Return the content words without a plural s; needs casefolded text."""
    words = (word for word in _LETTERS.findall(folded) if len(word) > 1 and word not in _STOPWORDS)
    return frozenset(w[:-1] if len(w) > 3 and w[-1] == "s" and w[-2] != "s" else w for w in words)


def _normal_number(match: re.Match[str]) -> str:
    sign, digits, exponent, percent = match.groups()
    if not digits.isascii():
        digits = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in digits)
    suffix = "%" if percent else ""
    if digits.count(".") > 1:
        return digits + suffix
    whole, _, fraction = digits.replace(",", "").partition(".")
    shift = int(exponent or 0)
    if shift > 0:
        fraction = fraction.ljust(shift, "0")
        whole, fraction = whole + fraction[:shift], fraction[shift:]
    elif shift < 0:
        whole = whole.rjust(-shift, "0")
        whole, fraction = whole[:shift], whole[shift:] + fraction
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    value = f"{whole}.{fraction}" if fraction else whole
    return f"-{value}{suffix}" if sign == "-" and value != "0" else value + suffix
