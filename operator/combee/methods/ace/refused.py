"""Which entries lost their replays, as leaves are told of them. Pure."""

from __future__ import annotations

from combee.methods.ace.ledger import Ledger
from combee.methods.protocol import tried_within
from combee.methods.replies import quote_line

MAX_TEXT_CHARS = 400


def refused(ledger: Ledger) -> tuple[tuple[str, str], ...]:
    """Return (no component, an entry's text with why it was refused) of entries that lost a replay and won
    none, in the order of their digests, as many as fit.

    What a refusal keeps out that no replay undoes is told to nobody.
    """
    hidden = {one.entry_digest for one in ledger.refusals if one.stands}
    hidden |= {one.entry_digest for one in ledger.verdicts if not one.lost}
    lines: dict[str, str] = {}
    for one in sorted(ledger.refusals):
        if one.kind == "replay" and one.entry_digest not in hidden:
            text, reason = ledger.texts.get(one.entry_digest, ""), one.reason.partition(" (")[0]
            lines.setdefault(one.entry_digest, f"{quote_line(text, MAX_TEXT_CHARS)} ({reason})")
    return tried_within(("", line) for line in lines.values())
