"""The simulated model's sentences: lessons, entries and platitudes.

Every specific lesson holds its topic and one anchor. A rule's anchor comes from its rulebook. A filler's is a
note of five words, each from a fixed bank; every combination is a note and says which lesson it is, so that
lessons can be found in any text without a list of those written. The only condition in a sentence is its
first clause, and the only numbers and names are topic and anchor: the note is a name in quotation marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from combee.sim import draws

PLATITUDE = "As a general habit, "
LONGEST_LESSON = 200
"""Most tokens of a lesson at length; a longer reflection spends the rest on its diagnosis."""

NOTE_BANKS = tuple(
    tuple(words.split())
    for words in (
        (
            "check compare weigh test hold tally review measure verify read confirm gauge assess list "
            "study reconcile match balance inspect examine note rank set place"
        ),
        (
            "opening closing gross net quarterly yearly monthly weekly daily stated given implied "
            "rounded signed interim prior largest smallest partial average median recent historic "
            "budgeted planned expected actual nominal real fixed variable taxable adjusted restated "
            "pooled weighted estimated reported audited listed quoted printed annual current deferred "
            "accrued projected separate pretax recurring cumulative provisional final initial original "
            "revised corrected unrounded intermediate pending"
        ),
        (
            "amounts balances figures rates prices costs receipts payments percentages ratios dividends "
            "fees charges flows holdings volumes quantities units periods terms margins spreads yields "
            "returns losses gains sums differences products quotients weights counts values items "
            "premiums discounts taxes wages rents loans deposits inventories sales revenues profits "
            "expenses assets liabilities debts credits orders budgets forecasts numbers results inputs "
            "changes shares outlays earnings"
        ),
        "against alongside",
        (
            "footnotes headings invoices statements contracts ledgers benchmarks precedents definitions "
            "tables captions labels signs scales calendars records reports quotes memos schedules "
            "columns rows totals averages limits targets norms standards thresholds denominators "
            "numerators decimals fractions formulas symbols currencies months quarters years weeks days "
            "deadlines peers rivals markets indices sectors regions filings appendices charts graphs "
            "drafts sketches estimates guesses bounds ranges intervals medians extremes outliers "
            "baselines histories trends cycles sources samples vouchers checklists worksheets accounts "
            "subtotals comments plans journals registers tallies catalogs surveys"
        ),
    )
)
"""The words of a note by place: nearly 14 million notes, so that two fillers are hardly ever the same."""
_BANKS = tuple(map(frozenset, NOTE_BANKS))
_JOINT = re.compile(r" (?:against|alongside) ([a-z]+)(?!\w)")
_BEFORE_JOINT = re.compile(r"(?<!\w)[a-z]+ [a-z]+ [a-z]+$")
_REACH = max(map(len, NOTE_BANKS[0])) + max(map(len, NOTE_BANKS[1])) + max(map(len, NOTE_BANKS[2])) + 3

_RULE_FORMS = (
    "When a question uses {name}, {phrase}: settle this first, as the common slip starts here.",
    "When a question uses {name}, {phrase}; settle this first, since the common slip starts here.",
    "When a question uses {name}, always {phrase}: settle this at the outset, as the slip starts here.",
    "When a question uses {name}, {phrase}: settle this early, as the usual slip starts here.",
)
_NOTE_FORMS = (
    'When a question uses {name}, keep to "{note}": {advice}, and state the reading taken.',
    'When a question uses {name}, hold to "{note}": {advice}, and state what reading was taken.',
)
_ADVICE = (
    "write the given figures down in the order in which they appear",
    "name every quantity in words next to its figure",
    "check that both sides of the division share one unit",
    "carry the full precision along and round the last figure only",
    "read the last sentence twice to see what is really asked",
    "put large amounts into plain digits at the outset",
    "compare the size of the result with a rough estimate",
    "mark figures that are given but not needed",
    "keep rates as fractions in the working and convert at the end",
    "look out so that sums and averages are not mixed up",
    "work from the innermost bracket outwards",
    "check the sign of every difference against the story told",
)
_PLATITUDES = (
    (
        "read questions on {name} with care, keep the units straight and double-check the arithmetic of "
        "the answer."
    ),
    "stay careful on {name}, think step by step and make sure that the final answer is plausible.",
    "take your time on {name}, write clearly and verify each intermediate result.",
)
_MORE = (
    (
        "The trace went astray at the point at which the given figures were lined up, not in the "
        "arithmetic that followed."
    ),
    (
        "The intermediate result looked plausible and nothing contradicted it, so the slip travelled on "
        "unnoticed to the end."
    ),
    (
        "A reader who follows the working line by line can see the place, yet the final figure alone "
        "does not give it away."
    ),
    (
        "The same pattern is likely to come back in other questions of this family, with other figures "
        "and another story."
    ),
    (
        "Stating the reading in one short line makes the working checkable and costs next to nothing in "
        "a full answer."
    ),
    (
        "It helps to set the quantities out as a small table, each with its name, its unit and the role "
        "that it plays."
    ),
    (
        "What matters is the order of the steps: settle the reading, then set the figures in, then "
        "compute, then round."
    ),
    (
        "The wording of the question is no reliable guide here, because two stories with equal wording "
        "may differ in kind."
    ),
    (
        "Neither more digits nor a longer explanation would have helped, since the choice had been made "
        "at the very start."
    ),
    (
        "Anyone who reviews such an answer should look at the first line of the working and compare it "
        "with this advice."
    ),
)
_STILL_MORE = (
    (
        "The first reading was kept to the end although the text gave more than one hint that it would "
        "not carry that far."
    ),
    (
        "Two of the terms in the text look alike at a glance and mean different things, and the working "
        "never told them apart."
    ),
    (
        "The words next to the figure say what it is, and they deserve more weight than the size or the "
        "look of the figure."
    ),
    (
        "What was written down as given was in truth a conclusion, and nobody went back to the text to "
        "see what it rests on."
    ),
    (
        "Several neighbouring readings are possible, and the narrower one fits better than the wide one "
        "that was taken."
    ),
    (
        "The trace spends most of its words on what is obvious and passes over the single point on which "
        "the answer turns."
    ),
    (
        "A list of the possible readings, each with the words that speak in its favour, would have "
        "brought the right one up."
    ),
    (
        "The mistake is one of naming rather than of computing, so that no check of the figures could "
        "ever have found it."
    ),
    (
        "The wording that settles the matter stands at the end of the sentence, and the trace had made "
        "up its mind by then."
    ),
    (
        "Other questions of this family share the same words, so the habit will pay off well beyond the "
        "trace at hand."
    ),
)
_LAST = (
    "The point is easy to miss.",
    "This holds across the whole family.",
    "The check takes one line and little time.",
    "Nothing else in the working needs to change here.",
    "The rest of the trace is sound and may stay as it is.",
    "A short remark on the reading taken is enough to show it.",
    "Both the figures and the story stay the same under this advice.",
    "The difference shows in the result only, not in the single steps taken.",
    "A second look at the first line of the working brings the matter to light.",
    "In the trace at hand this was skipped, and the figures were set in right away instead.",
    "The advice is cheap to follow, as it asks to write down what has to be settled in any case.",
)
DIAGNOSES = (
    "The answer departs from the expected figure; the reading chosen at the start explains the gap.",
    "The answer agrees with the expected figure; the working holds, and a remark on method remains.",
)


def note(*key: str | int) -> str:
    """Return a filler's own anchor, such as ``compare quarterly figures against totals``."""
    value, words = draws.number("note", *key), []
    for bank in NOTE_BANKS:
        value, index = divmod(value, len(bank))
        words.append(bank[index])
    return " ".join(words)


def is_note(text: str) -> bool:
    """Return whether a text is a note: a word from each bank, with one blank between.

    >>> is_note(note("17", 0)), is_note("compare everything against totals")
    (True, False)
    """
    words = text.split(" ")
    return len(words) == len(NOTE_BANKS) and all(
        word in bank for word, bank in zip(words, _BANKS, strict=True)
    )


def notes_in(text: str) -> Iterator[tuple[str, int]]:
    """Yield (note, position) of every note in a text, wherever it stands."""
    for joint in _JOINT.finditer(text):
        if before := _BEFORE_JOINT.search(text, max(0, joint.start() - _REACH), joint.start()):
            words = before.group() + joint.group()
            if is_note(words):
                yield words, before.start()


def rule_entry(name: str, phrase: str, *luck: str | int) -> str:
    """Return a rule as an entry of about 50 tokens, in one of a few paraphrases."""
    return draws.pick(_RULE_FORMS, "form", *luck).format(name=name, phrase=phrase)


def note_entry(name: str, note: str, *luck: str | int) -> str:
    """Return a filler as an entry of about 50 tokens; its advice follows from its note."""
    return draws.pick(_NOTE_FORMS, "form", *luck).format(name=name, note=note, advice=advice(note))


def advice(note: str) -> str:
    """Return the advice that follows from a note."""
    return draws.pick(_ADVICE, "advice", note)


def platitude(name: str, *luck: str | int) -> str:
    """Return an entry that has lost its anchor."""
    return PLATITUDE + draws.pick(_PLATITUDES, "platitude", *luck).format(name=name)


def at_length(entry: str, tokens: int, *topic: str | int) -> str:
    """Return the entry with more sentences, close to ``tokens`` tokens of 4 bytes, and no more anchors."""
    room, start = tokens * 4 - len(entry.encode()), draws.number("more", *topic)
    sentences = [entry]
    for bank in (_MORE, _STILL_MORE):
        for index in range(len(bank)):
            extra = bank[(start + index * 3) % len(bank)]
            if len(extra) + 1 > room:
                break
            sentences.append(extra)
            room -= len(extra) + 1
        else:
            continue
        break
    if ending := max((text for text in _LAST if len(text) < room), key=len, default=""):
        sentences.append(ending)
    return " ".join(sentences)
