"""What of a ledger was tried and did not hold, and how much of an iteration's proposals is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from combee.methods.ace.entries import entry_digest, normalise_entry
from combee.methods.ace.facts import Lesson, facts_of, lessons_of
from combee.methods.ace.ledger import Ledger
from combee.methods.protocol import INITIAL, Proposals, Rendered, Update, tried_within
from combee.methods.replies import quote_line

MAX_ENTRY_CHARS = 240


def tried(ledger: Ledger) -> tuple[tuple[str, str], ...]:
    """Return the entries that lost their replays, or were dropped since they spoilt other answers, each with
    the reason: those that were proposed last first. Entries with private data or orders are never among
    them: they belong to no lesson."""
    facts = facts_of(ledger)
    lost = [
        (-max((support.iteration for support in facts.supports.get(rep, ())), default=0), rep, reason)
        for rep, lesson in lessons_of(ledger).members.items()
        if not facts.trusted(rep) and (reason := _why(lesson))
    ]
    return tried_within(
        ("", f"{quote_line(ledger.texts[rep], MAX_ENTRY_CHARS)} ({why})") for _, rep, why in sorted(lost)
    )


def _why(lesson: Lesson) -> str:
    if lesson.harms:
        return "it spoilt answers to other examples"
    return "with it, its own example stayed wrong or a right one went wrong" if lesson.lost else ""


def proposals(
    before: Ledger, after: Ledger, updates: Sequence[Update], shown: Sequence[Rendered]
) -> Proposals:
    """Return how many entries were proposed, and how many of these say what ``before`` has decided: what its
    playbook shows, what a replay spoke for or against, what was dropped, and what was refused.

    An entry that waits for a second source or for its replay is not decided: who proposes it again backs it.
    """
    proposed = {entry_digest(text) for text in _texts(updates)}
    facts, lessons = facts_of(after), lessons_of(after)
    seen = {digest for text in shown for digest in text.included}

    def repeats(digest: str) -> bool:
        if digest in facts.refused:
            return digest in before.texts
        lesson = lessons.members[lessons.rep_of[digest]]
        decided = bool(lesson.wins or lesson.losses or lesson.harms or seen & set(lesson.members))
        return decided and any(member in before.texts for member in lesson.members)

    return Proposals(len(proposed), sum(map(repeats, proposed)))


def _texts(updates: Sequence[Update]) -> Iterator[str]:
    for one in updates:
        if one.op != "DELETE" and one.sources - {INITIAL} and (text := normalise_entry(one.text)):
            yield text
