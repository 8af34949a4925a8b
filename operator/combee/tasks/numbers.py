"""Reads numbers as people and models write them, without ``eval``, and compares them with a tolerance.

It reads signs (also the Unicode minus and accounting's parentheses), currencies, percent, thousands
separators (English, Indian, Swiss, European where unambiguous), exponents, ``15 million``, ``8.01x``,
``2:1``, Markdown and LaTeX around them, and words around them. Of several numbers in a text it takes the one
that the text itself marks as its answer; see ``parse_number``.

Every pattern is linear: no quantifier can match the same characters in two ways.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal

MAX_TEXT = 10_000
"""most characters, from the end, in which a number is looked for."""
_MAX_DIGITS = 60
_CONTEXT = Context(prec=80)

_SPACES = "\u00a0\u202f\u2009"
_CURRENCY = r"(?:US|CA|A)?[$€£¥₹]|\b(?:USD|EUR|GBP|JPY|CHF|INR)\b"
_TOKEN = re.compile(
    r"(?P<open>\()?[ ]?"
    r"(?P<sign>(?<![\w.)%])[-+](?![ ])|(?<![\w.)%])(?<![\d)%][ ])[-+](?=[ ]))?[ ]?"
    rf"(?P<currency>{_CURRENCY})?[ ]?"
    r"(?P<sign2>(?<![\w.)%])[-+])?"
    r"(?<![\w.])(?<![A-Za-z_]-)"
    rf"(?P<digits>\d+(?:[.,'’{_SPACES}]\d+)*|\.\d+)"
    r"(?:[eE](?P<exp>[-+]?\d{1,3})(?!\d))?"
    r"(?:[ ]?(?:[×x*·]|\\times)[ ]?10[ ]?(?:\^|\*\*)[ ]?[({]?(?P<power>[-+]?\d{1,2})[)}]?)?"
    r"(?P<tail>(?:[ ]?:1|[ ](?:to|:)[ ]1)(?![.,]?\d)|[ ]?(?:%|[A-Za-z]{1,16}))?"
    r"(?P<close>[ ]?\))?"
)
_SCALE_WORDS = {
    "thousand": 3,
    **dict.fromkeys(("million", "millions", "mn", "mio"), 6),
    **dict.fromkeys(("billion", "billions", "bn"), 9),
    **dict.fromkeys(("trillion", "trillions", "tn"), 12),
}
_SCALE_LETTERS = {"k": 3, "m": 6, "b": 9, "t": 12}
_PERCENT = {"%", "percent", "pct", "percentage"}
_BOXED = re.compile(r"\\boxed\s?\{")
_ANSWER = re.compile(r"(?i)\b(?:answer|result)\b")
_STATES = re.compile(r"(?i)\bis\b|\bare\b|[:=≈~]|\bequals\b")
_EQUALS = re.compile(r"(?i)[=≈~]|\bequals\b|\bapproximately\b")
_BOLD = re.compile(r"\*\*[^*\n]{1,200}\*\*")
_SAYS = re.compile(r"(?i)\bis\b|\bare\b|:")
_OPERATORS = re.compile(r"[\s$€£()×x*/÷+-]+\Z")
_BULLET = re.compile(r"^[-*•] +", re.MULTILINE)
_NOT_AN_ANSWER = re.compile(r"[ ]?-?(?:decimals?|d\.?p\.?\b|significant|digits?|places)", re.IGNORECASE)
_LATEX = re.compile(r"\{,\}|\\[,;!]|\\(?=[$%&])")
_ENGLISH = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?\Z")
_INDIAN = re.compile(r"[1-9]\d?(?:,\d{2})+,\d{3}(?:\.\d+)?\Z")
_OTHER_GROUPS = re.compile(rf"[1-9]\d{{0,2}}(?:(?P<s>['’{_SPACES}])\d{{3}})(?:(?P=s)\d{{3}})*(?:[.,]\d+)?\Z")
_EUROPEAN = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+,\d+\Z|[1-9]\d{0,2}(?:\.\d{3}){2,}\Z")
_COMMA_DECIMAL = re.compile(r"(?:0|[1-9]\d*),(?:\d{1,2}|\d{4,})\Z|0,\d+\Z")
_PLAIN = re.compile(r"(?:\d*\.)?\d+\Z")
_SPACED = re.compile(r"[^\d]{0,6}[1-9]\d{0,2}(?: \d{3})+(?![\d ])")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an answer may be from its target: the larger of the two, inclusive.

    The targets state two decimals. An answer is right when it rounds to its target, hence 0.005
    absolute: ``15.004`` is 15.0, and a rate of 0.05 is never 0.06, which 0.01 would allow. The
    relative part, one in ten thousand, forgives large sums rounded on the way (27,432.8 for
    27432.79), where 0.5 % would let a sum compounded the wrong way pass.
    """

    absolute: Decimal = Decimal("0.005")
    relative: Decimal = Decimal("0.0001")


TOLERANCE = Tolerance()


@dataclass(frozen=True, slots=True)
class Number:
    """A parsed number. ``value`` has scale words multiplied in but a percent sign not divided out."""

    value: Decimal
    percent: bool = False
    unit: str = ""
    """currency sign or the word after the number; for people only."""

    @property
    def readings(self) -> tuple[Decimal, ...]:
        """The values it may stand for: 15% is 15 and 0.15, anything else is itself."""
        return (self.value, self.value.scaleb(-2, _CONTEXT)) if self.percent else (self.value,)

    def __str__(self) -> str:
        return f"{_plain(self.value)}{'%' if self.percent else ''}"


def parse_number(text: str) -> Number | None:
    """The number that ``text`` gives as its answer; None when it holds none (or one beyond 1e60).

    Taken is: the only number; else the first one in the last ``\\boxed{``; else the one that follows the last
    ``answer`` or ``result`` (behind its ``is`` or colon; of an expression, its outcome); else the one after
    the last ``=``, in the last bold part, after the last ``is`` or colon; else the last one. "2 decimal
    places" is no number here, and parentheses mean minus only around the one number there is.

    >>> str(parse_number("The answer is **$1,500.25**, rounded to 2 decimals.")), str(parse_number("(3.2)"))
    ('1500.25', '-3.2')
    """
    hits = list(_hits(text := _cleaned(text)))
    if not hits:
        return None
    if len(hits) > 1:
        return _marked(text, hits).number
    number = hits[0].number
    if hits[0].enclosed and number.value > 0:
        return Number(-number.value, number.percent, number.unit)
    return number


def close(answer: Number, target: Number, *, tolerance: Tolerance = TOLERANCE) -> bool:
    """Return whether some reading of ``answer`` is within tolerance of some reading of ``target``.

    >>> close(Number(Decimal(15), percent=True), Number(Decimal("0.15")))
    True
    """
    return any(_near(a, t, tolerance) for a in answer.readings for t in target.readings)


def _near(a: Decimal, t: Decimal, tolerance: Tolerance) -> bool:
    allowed = max(tolerance.absolute, _CONTEXT.multiply(abs(t), tolerance.relative))
    return abs(_CONTEXT.subtract(a, t)) <= allowed


@dataclass(frozen=True, slots=True)
class _Hit:
    """A number, where its digits start and end, and whether it stands alone in parentheses."""

    start: int
    end: int
    number: Number
    enclosed: bool


def _cleaned(text: str) -> str:
    text = text[-MAX_TEXT:].replace("−", "-").replace("–", "-").replace("per cent", "percent").strip()
    text = _LATEX.sub(lambda m: "," if m.group() == "{,}" else "", text)
    if "\n" in text:
        text = _BULLET.sub("", text)
    return re.sub(r"(?<=\d) (?=\d{3})", "", text) if _SPACED.match(text) else text


def _marked(text: str, hits: list[_Hit]) -> _Hit:
    """Return the number that the text marks as its answer; see ``parse_number``."""
    if (boxed := _after_last(_BOXED, text, hits)) is not None:
        return boxed
    for word in reversed(list(_ANSWER.finditer(text))):
        states = _STATES.search(text, word.end())
        for start in (states.end() if states else word.end(), word.end()):
            if (hit := _first_from(start, hits)) is not None:
                return _outcome(text, hits, hit)
    if (equal := _after_last(_EQUALS, text, hits)) is not None:
        return equal
    for bold in reversed(list(_BOLD.finditer(text))):
        if (hit := _first_from(bold.start(), hits)) is not None and hit.start < bold.end():
            return hit
    return _after_last(_SAYS, text, hits) or hits[-1]


def _first_from(start: int, hits: list[_Hit]) -> _Hit | None:
    index = bisect_left(hits, start, key=lambda hit: hit.start)
    return hits[index] if index < len(hits) else None


def _after_last(marker: re.Pattern[str], text: str, hits: list[_Hit]) -> _Hit | None:
    for match in reversed(list(marker.finditer(text))):
        if (hit := _first_from(match.end(), hits)) is not None:
            return hit
    return None


def _outcome(text: str, hits: list[_Hit], hit: _Hit) -> _Hit:
    """Return ``hit``, or when it begins an expression, the number after the expression's equals sign."""
    following = _first_from(hit.end, hits)
    if following is None or not _OPERATORS.match(text[hit.end : following.start]):
        return hit
    equals = re.search("[=≈]", text[hit.end :])
    outcome = _first_from(hit.end + equals.end(), hits) if equals else None
    return outcome or hit


def _hits(text: str) -> Iterator[_Hit]:
    for match in _TOKEN.finditer(text):
        end = next(match.end(name) for name in ("power", "exp", "digits") if match[name])
        value = None if _NOT_AN_ANSWER.match(text, end) else _value(match["digits"])
        if value is None:
            continue
        scale, percent, unit = _tail(match["tail"] or "")
        value = value.scaleb(int(match["exp"] or 0) + int(match["power"] or 0) + scale, _CONTEXT)
        if value != 0 and abs(value.adjusted()) > _MAX_DIGITS:
            continue
        negative = "-" in (match["sign"], match["sign2"])
        number = Number(-value if negative else value, percent, match["currency"] or unit)
        yield _Hit(match.start("digits"), end, number, bool(match["open"] and match["close"]))


def _tail(tail: str) -> tuple[int, bool, str]:
    """Return (power of ten, percent, unit) of the text after the digits."""
    word = tail.strip()
    folded = word.casefold()
    if folded in _PERCENT:
        return 0, True, "%"
    if folded in _SCALE_WORDS:
        return _SCALE_WORDS[folded], False, ""
    if folded in _SCALE_LETTERS and (not tail.startswith(" ") or word.isupper()):
        return _SCALE_LETTERS[folded], False, ""
    return 0, False, word


def _value(digits: str) -> Decimal | None:
    """Return the digits with their separators as a number; None when they cannot be one."""
    if len(digits) > _MAX_DIGITS:
        return None
    if _PLAIN.match(digits):
        return Decimal(digits)
    if _ENGLISH.match(digits) or _INDIAN.match(digits):
        return Decimal(digits.replace(",", ""))
    if _EUROPEAN.match(digits):
        return Decimal(digits.replace(".", "").replace(",", "."))
    if _OTHER_GROUPS.match(digits):
        return Decimal(re.sub(rf"['’{_SPACES}]", "", digits).replace(",", "."))
    if _COMMA_DECIMAL.match(digits):
        return Decimal(digits.replace(",", "."))
    return None


def _plain(value: Decimal) -> str:
    """Return the digits without exponent and trailing zeros where that is readable, else scientific."""
    if value == 0:
        return "0"
    reduced = value.normalize(_CONTEXT)
    return format(reduced, "f") if -30 < reduced.adjusted() < 30 else format(reduced, "E")
