"""Where an entry comes from and what became of it, in a few short phrases. Pure; no markup."""

from __future__ import annotations

from collections.abc import Sequence

from combee.report.result import Entry, Replay
from combee.report.text import count

NAMED = 8
"""Ids named one by one; the rest is counted. result.json has them all."""
LEFT_OUT = {
    "leak": "it repeats private or copied text",
    "injection": "it gives the model orders",
    "unverified": "one source only, and no replay speaks for it",
    "replay": "its replay spoke against it",
    "deleted": "two distinct examples asked for its removal",
    "harmful": "found harmful beyond doubt",
    "superseded": "what replaced it stands",
    "paraphrase": "another wording of it stands",
    "budget": "it did not fit the token budget",
}


def lineage(entry: Entry) -> tuple[str, ...]:
    """Parents, replays, heirs, and why it is not in the playbook, each where there is something to say."""
    told = []
    if entry.parents:
        told.append(f"stems from {_named(entry.parents)}")
    told += [_replayed(replay) for replay in entry.replays[-NAMED:]]
    if entry.replaced_by:
        told.append(f"taken up by {_named(entry.replaced_by)}")
    if entry.left_out and not entry.rendered:
        told.append(f"left out: {LEFT_OUT.get(entry.left_out, entry.left_out)}")
    return tuple(told)


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return ", ".join(ids[:NAMED]) + more


def _replayed(replay: Replay) -> str:
    text = f"replayed on example {replay.example}: {'fixed it' if replay.fixed else 'did not fix it'}"
    if not replay.controls:
        return text
    controls = f"{count(len(replay.controls), 'control')} ({_named(replay.controls)})"
    harmed = f"harmed {replay.harmed} of {controls}" if replay.harmed else f"left {controls} right"
    return f"{text}, {harmed}"
