"""How much of an iteration's proposals is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from combee.methods.ace.entries import as_kept, entry_digest
from combee.methods.ace.facts import facts_of, lessons_of
from combee.methods.ace.ledger import Ledger
from combee.methods.protocol import INITIAL, Proposals, Rendered, Update


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
        if one.op != "DELETE" and one.sources - {INITIAL} and (text := as_kept(one.text)):
            yield text
