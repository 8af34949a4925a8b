"""Rules in words alone: a rule's statement without its name in quotation marks, in one of many wordings.

A wording takes one word or phrase of each bank that the statement holds. Two statements of a rule share their
topic and what they say, and no name, number or fixed sentence; a rule's right and wrong statement may
differ in less than two wordings of the right one do. A statement is known again by turning the words back.
"""

from __future__ import annotations

import re
from functools import lru_cache

from combee.sim import draws

_BANKS = (
    ("divide", "split"),
    ("multiply", "magnify"),
    ("subtract", "deduct"),
    ("add", "join"),
    ("take", "strip"),
    ("leave", "keep"),
    ("discount", "mark down"),
    ("compound", "roll up"),
    ("scale", "adjust"),
    ("average", "mean"),
    ("total", "overall"),
    ("whole", "entire"),
    ("sales", "turnover"),
    ("revenue", "takings"),
    ("profit", "surplus"),
    ("assets", "holdings"),
    ("liabilities", "obligations"),
    ("equity", "own funds"),
    ("debt", "borrowing"),
    ("cash", "liquid funds"),
    ("value", "worth"),
    ("dividend", "payout"),
    ("dividends", "payouts"),
    ("exports", "goods sold abroad"),
    ("imports", "goods bought abroad"),
    ("return", "yield"),
    ("excess", "extra"),
    ("strike price", "exercise price"),
    ("expenditures", "outlays"),
    ("net income", "earnings after tax"),
    ("depreciation", "write-downs"),
    ("count", "reckon"),
    ("as a plus", "as positive"),
    ("over all periods", "across all periods"),
    ("per share", "for each share"),
    ("state", "give", "report", "put down"),
    ("two decimals", "two places", "hundredths"),
    ("a decimal fraction", "a fraction in decimals", "a plain decimal"),
    ("a percentage", "so much in a hundred", "percentage points"),
    ("write the amount out in full", "spell the amount out unabridged", "show every digit of the amount"),
)
"""Alternatives of which the first is the one in the key file; none holds another bank's word."""
_BANK_OF = {words: bank for bank in _BANKS for words in bank}
_ANY = re.compile(
    r"(?<!\w)(?:" + "|".join(sorted(map(re.escape, _BANK_OF), key=len, reverse=True)) + r")(?!\w)"
)
_MARK = re.compile(r' \("[^"\n]*"\)')
_FORMS = (
    "When a question uses {name}, {phrase}: most wrong answers go astray at this point.",
    "When a question uses {name}, {phrase}; nothing that follows makes up for a mistake here.",
    "When a question uses {name}, always {phrase}: people tend to get it the other way round.",
    "When a question uses {name}, {phrase}: the working looks fine otherwise, and the figure is off.",
    "When a question uses {name}, {phrase}; look at it before you compute anything else.",
)
_NOTE_FORMS = (
    "When a question uses {name}, {note}: {advice}.",
    "When a question uses {name}, {note} once more; {advice}, and show it.",
    "When a question uses {name}, make a point to {note}: {advice} all along.",
)
STATED = re.compile(r"question uses ([^,\n]{1,200}), (?:always )?([^:;\n]{1,300})[:;]")
"""A lesson in words alone: its topic's name, and what may be the wording of a rule."""


def unmarked(statement: str) -> str | None:
    """Return a statement without its name in quotation marks, or None where the name is what it says.

    >>> unmarked('divide net profit by revenue ("net profit / revenue") and state a percentage')
    'divide net profit by revenue and state a percentage'
    >>> unmarked('answer with "DebtFace" itself')
    """
    plain, count = _MARK.subn("", statement)
    return plain if count else None


def reworded(plain: str, *luck: str | int) -> str:
    """Return one of the wordings of an unmarked statement.

    >>> reworded("divide net profit by revenue and state a percentage", 1)
    'split net profit by revenue and report so much in a hundred'
    """
    return _ANY.sub(lambda match: draws.pick(_BANK_OF[match.group()], "wording", match.start(), *luck), plain)


@lru_cache(maxsize=65_536)
def turned_back(wording: str) -> str:
    """Return the statement that this is a wording of; what is none comes back as another text.

    >>> turned_back("split net profit by takings and report percentage points")
    'divide net profit by revenue and state a percentage'
    """
    return _ANY.sub(lambda match: _BANK_OF[match.group()][0], wording)


def rule_entry(name: str, plain: str, *luck: str | int) -> str:
    """Return a rule as an entry in words alone."""
    return draws.pick(_FORMS, "form", *luck).format(name=name, phrase=reworded(plain, *luck))


def note_entry(name: str, note: str, advice: str, *luck: str | int) -> str:
    """Return a filler as an entry whose note stands without quotation marks."""
    return draws.pick(_NOTE_FORMS, "form", *luck).format(name=name, note=note, advice=advice)
