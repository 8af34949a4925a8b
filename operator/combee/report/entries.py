"""Entries as result.json shows them: with where they come from, what became of them, and how they were tried."""

from __future__ import annotations

from collections.abc import Sequence

from combee.methods.lineage import VariantView
from combee.methods.protocol import EntryView, Verdict
from combee.records import example_of
from combee.report.result import Entry, Replay, VariantRecord

SHORT = 12


def entries_of(views: Sequence[EntryView]) -> list[Entry]:
    """One entry a view, in the same order; parents and heirs are named by the ids that people see."""
    ids = {view.digest: view.id for view in views}
    heirs: dict[str, list[str]] = {}
    for view in views:
        for parent in view.parents:
            heirs.setdefault(parent, []).append(view.id)
    return [
        Entry(
            id=view.id,
            section=view.section,
            text=view.text,
            sources=view.sources,
            helpful=view.helpful,
            harmful=view.harmful,
            verified=view.verified,
            contested=view.contested,
            rendered=view.rendered,
            parents=tuple(ids.get(parent, parent) for parent in view.parents),
            replaced_by=tuple(heirs.get(view.digest, ())),
            replays=tuple(map(_replay, view.replays)),
            left_out=view.left_out,
        )
        for view in views
    ]


def variants_of(views: Sequence[VariantView]) -> tuple[VariantRecord, ...]:
    """One record a variant, in the same order."""
    return tuple(
        VariantRecord(
            id=view.digest[:SHORT],
            kind=view.kind,
            parents=tuple(parent[:SHORT] for parent in view.parents),
            iteration=view.iteration + 1,
            changed=view.changed,
            gain=view.gain,
            examples=view.examples,
            score=view.score,
            scored=view.scored,
            leads=view.leads,
        )
        for view in views
    )


def _replay(verdict: Verdict) -> Replay:
    return Replay(
        example=example_of(verdict.source),
        fixed=verdict.fixed,
        controls=verdict.controls,
        harmed=verdict.harmed,
    )
