"""The drop-one check: which entries spoil examples that they are not about, by a group test on select.

Replay asks the examples that an entry is about. Harm elsewhere shows on rows of select that were answered
right at the start and are not any more: the fallen. On each of them the learned entries are shown by halves,
and the halves that spoil it by halves again, down to single entries. A row that neither half spoils was bad
luck, and a slip hardly ever points to the same entry level after level, and once more beside other entries.

What is blamed is taken out of the whole playbook, and that is asked the rows that it spoilt and those that
rose since the start. An entry is dropped when more rows come right again than fall. Otherwise all stay.

Without fallen rows nothing is asked. The group tests take at most half as many rollouts as select has rows;
where more rows fell than those surely follow to the end, they are followed in turns, by hash.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial

from combee.algo.seeds import digest_of
from combee.methods.ace.facts import facts_of
from combee.methods.ace.ledger import Harm, Ledger
from combee.methods.ace.render import render
from combee.methods.ace.resolve import resolve
from combee.methods.protocol import Verify
from combee.methods.verification import Page, Rollout, Round, Verified, Verifying
from combee.records import Trajectory

BUDGET_SHARE = 0.5
"""Rollouts of the group tests for each row of select, at most."""

_Group = tuple[str, ...]
_Question = tuple[str, _Group]
"""A row, and the entries that it is answered with."""
_Asking = Generator[Round, Sequence[Trajectory], dict[_Question, float | None]]
_Ask = Callable[[Sequence[_Question], str], _Asking]


def dropping(
    artifact: Ledger, *, start: Mapping[str, float], budget_tokens: int, verify: Verify
) -> Verifying[Ledger]:
    """Return the ledger with a fact for each entry that was found to harm. ``start``: what the rows of select
    scored before anything was learned, by id."""
    if verify != "Replay" or not start:
        return Verified(artifact)
    page = partial(render, artifact, budget_tokens=budget_tokens, verify=verify)
    whole = page()
    answers = yield Round("select", sweep=(Page.of(whole.text, ""),))
    known = {one.example_id: (one.score, one.partial) for one in answers if not one.error}
    facts = facts_of(artifact)
    learned = frozenset(digest for digest in resolve(artifact, verify).ranked if not facts.trusted(digest))
    shown = tuple(digest for digest in whole.included if digest in learned)

    def ask(questions: Sequence[_Question], stage: str) -> _Asking:
        pages = {
            group: Page.of(page(without=learned - set(group)).text, whole.text) for _, group in questions
        }
        answers = yield Round(
            stage, tuple(Rollout(row, pages[group], of="select") for row, group in questions)
        )
        return {
            question: None if one.error else one.score
            for question, one in zip(questions, answers, strict=True)
        }

    fallen = [row for row, before in start.items() if row in known and known[row][0] < before]
    blamed = yield from _blamed(fallen, shown, start, ask)
    blamed = yield from _blamed_again(blamed, shown, start, ask)
    out = {entry for entries in blamed.values() for entry in entries}
    rest = tuple(digest for digest in shown if digest not in out)
    risen = [row for row, before in start.items() if row in known and known[row][0] > before]
    touched = sorted({*blamed, *risen}) if blamed else []
    after = yield from ask([(row, rest) for row in touched], "drop-one without")
    gains = {row: score - known[row][0] for (row, _), score in after.items() if score is not None}
    if not gains or math.fsum(gains.values()) <= 0:
        return Verified(artifact, known=known)
    healed = [row for row in blamed if gains.get(row, 0) > 0]
    harms = frozenset(Harm(entry, row) for row in healed for entry in blamed[row])
    return Verified(artifact.join(Ledger(harms=harms)))


def _blamed(
    rows: Sequence[str], entries: _Group, start: Mapping[str, float], ask: _Ask
) -> Generator[Round, Sequence[Trajectory], dict[str, list[str]]]:
    """Return, by row, the entries that spoil it each by itself."""
    budget = math.floor(BUDGET_SHARE * len(start))
    waiting = sorted(rows, key=lambda row: (digest_of(row), row))
    groups: list[_Question] = []
    blamed: dict[str, list[str]] = {}
    while groups or (waiting and budget > 1):
        if not groups:
            # A row is followed to its end before others begin: halves of all rows would name no entry.
            most = max(1, budget // (2 * max(1, len(entries)).bit_length()))
            groups, waiting = [(row, entries) for row in waiting[:most]], waiting[most:]
        questions = [(row, half) for row, group in groups for half in _halves(group)][:budget]
        budget -= len(questions)
        scores = yield from ask(questions, "drop-one")
        spoilt = [
            question for question, score in scores.items() if score is not None and score < start[question[0]]
        ]
        for row, group in spoilt:
            if len(group) == 1:
                blamed.setdefault(row, []).extend(group)
        groups = [question for question in spoilt if len(question[1]) > 1]
    return blamed


def _blamed_again(
    blamed: Mapping[str, Sequence[str]], entries: _Group, start: Mapping[str, float], ask: _Ask
) -> Generator[Round, Sequence[Trajectory], dict[str, list[str]]]:
    """Return those that spoil their row also beside the half of the entries that they are not in."""
    questions = {(row, entry): (row, _beside(entry, entries)) for row, out in blamed.items() for entry in out}
    scores = yield from ask(list(questions.values()), "drop-one again")
    kept: dict[str, list[str]] = {}
    for (row, entry), question in questions.items():
        score = scores[question]
        if score is not None and score < start[row]:
            kept.setdefault(row, []).append(entry)
    return kept


def _beside(entry: str, entries: _Group) -> _Group:
    other = next((half for half in _halves(entries) if entry not in half), ())
    return (entry, *other)


def _halves(group: _Group) -> list[_Group]:
    """Return the halves of a group, which has at least one entry; that of a single entry is the entry."""
    middle = len(group) // 2
    return [half for half in (group[:middle], group[middle:]) if half]
