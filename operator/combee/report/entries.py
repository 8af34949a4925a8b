"""Entries as result.json shows them: where they come from, what became of them, and how they were tried."""

from __future__ import annotations

from collections.abc import Sequence

from combee.methods.protocol import EntryView, VariantView
from combee.records import example_of
from combee.report.result import Entry, Replay, VariantRecord
from combee.report.text import count

SHORT = 12


def entries_of(views: Sequence[EntryView]) -> tuple[Entry, ...]:
    """Return an entry for each view, in order; parents and heirs are named by the ids that people see."""
    ids = {view.digest: view.id for view in views}
    heirs: dict[str, list[str]] = {}
    for view in views:
        for parent in view.parents:
            heirs.setdefault(parent, []).append(view.id)
    return tuple(
        Entry.of(
            view,
            text=kept_text(view.text, view.left_out),
            parents=tuple(ids.get(parent, parent) for parent in view.parents),
            replaced_by=tuple(heirs.get(view.digest, ())),
            replays=tuple(Replay.of(one, example=example_of(one.source)) for one in view.replays),
        )
        for view in views
    )


def kept_text(text: str, left_out: str) -> str:
    """Return an entry's text as a result tells it. What was refused for private or copied text is not told.

    >>> kept_text("Write to jane@example.com.", "leak")
    '[it repeats private or copied text]'
    """
    return f"[{LEFT_OUT[LEAK]}]" if left_out == LEAK else text


def variants_of(views: Sequence[VariantView]) -> tuple[VariantRecord, ...]:
    """Return a record for each variant, in order."""
    return tuple(
        VariantRecord.of(
            view,
            id=view.digest[:SHORT],
            parents=tuple(parent[:SHORT] for parent in view.parents),
            iteration=view.iteration + 1,
        )
        for view in views
    )


NO_BETTER = "select"
"""Why an entry is left out that was shown to agents and helped none."""
NAMED = 8
"""The most ids that are named one by one; the rest is counted. result.json has them all."""
LEAK = "leak"
"""Why an entry is left out whose text nobody may read."""
LEFT_OUT = {
    LEAK: "it repeats private or copied text",
    "injection": "it gives the model orders",
    "program": "its own test did not let it in",
    "unverified": "one source only, and no replay speaks for it",
    "replay": "its replay spoke against it",
    "deleted": "two distinct examples asked for its removal",
    "harmful": "found harmful beyond doubt",
    "elsewhere": "rows of select came right without it",
    "superseded": "what replaced it stands",
    "paraphrase": "another wording of it stands",
    "budget": "it did not fit the token budget",
    NO_BETTER: "no playbook with it scored above the start on select",
}


def lineage(entry: Entry) -> tuple[str, ...]:
    """Return the parents, replays and heirs of an entry, and why it is not in the playbook, in words."""
    facts = []
    if entry.parents:
        facts.append(f"stems from {_named(entry.parents)}")
    facts += [_replayed(replay) for replay in entry.replays[-NAMED:]]
    if entry.replaced_by:
        facts.append(f"taken up by {_named(entry.replaced_by)}")
    if entry.left_out and not entry.rendered:
        facts.append(f"left out: {LEFT_OUT.get(entry.left_out, entry.left_out)}")
    return tuple(facts)


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return ", ".join(ids[:NAMED]) + more


def _replayed(replay: Replay) -> str:
    fixed = "fixed it" if replay.fixed else "did not fix it"
    text = f"replayed on example {replay.example}: {fixed}" if replay.example else "replayed, nothing to fix"
    if not replay.controls:
        return text
    controls = f"{count(len(replay.controls), 'control')} ({_named(replay.controls)})"
    harmed = f"harmed {replay.harmed} of {controls}" if replay.harmed else f"left {controls} right"
    return f"{text}, {harmed}"
