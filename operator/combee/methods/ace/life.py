"""The life of an entry, from the facts of a ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from combee.methods.ace.facts import lessons_of
from combee.methods.ace.ids import bullet_ids
from combee.methods.ace.ledger import Ledger, Support
from combee.methods.ace.resolve import resolve
from combee.methods.ace.reverify import MOST_CHARS
from combee.methods.life import Event, Life
from combee.methods.protocol import INITIAL, OVER_BUDGET, Verdict
from combee.methods.replies import one_line
from combee.records import example_of

LEAST_DIGITS = 4


def life(artifact: Ledger, entry: str, *, shown: str, history: Sequence[Ledger]) -> Life | None:
    """Return the life of the entry with this id, or whose digest begins so; None where there is no such
    one, or several. ``shown``: the text of the playbook; ``history``: the ledger after each iteration of this
    run, as far as they are known."""
    ids = bullet_ids(artifact)
    digests = [one for one, bullet in ids.items() if bullet == entry] or [
        one for one in ids if len(entry) >= LEAST_DIGITS and one.startswith(entry)
    ]
    if len(digests) != 1:
        return None
    (digest,) = digests
    lessons = lessons_of(artifact)
    rep = lessons.rep_of.get(digest, digest)
    lesson = lessons.members.get(rep)
    standing = resolve(artifact, "Replay").standings[digest]
    is_shown = f"[{ids[digest]}]" in shown
    members = lesson.members if lesson is not None else (digest,)
    verdicts = [one for one in artifact.verdicts if one.entry_digest in members]
    events = _Teller(artifact, frozenset(members), ids, history).events()
    return Life(
        id=ids[digest],
        digest=digest,
        section=standing.section,
        text=artifact.texts[digest],
        shown=is_shown,
        left_out="" if is_shown else standing.out or OVER_BUDGET,
        sources=tuple(sorted(lesson.sources if lesson is not None else standing.sources)),
        won=sum(one.won for one in verdicts),
        lost=sum(one.lost for one in verdicts),
        helpful=lesson.helpful if lesson is not None else 0,
        harmful=lesson.harmful if lesson is not None else 0,
        wordings=tuple(ids[one] for one in members if one != digest),
        events=tuple(events),
    )


_Dated = tuple[tuple[bool, int, bool, int, int], Event]
"""An event with what it is sorted by: earlier runs first, then iterations, unknown ones last."""
_ORDER = ("added", "backed", "replayed", "changed", "retired")


@dataclass(frozen=True, slots=True)
class _Teller:
    """Tells the facts about some entries as events."""

    ledger: Ledger
    members: frozenset[str]
    ids: dict[str, str]
    history: Sequence[Ledger]

    def events(self) -> Iterator[Event]:
        """Yield the events in their order; the first source of all is what added the entry."""
        dated = [*self._backed(), *self._replays(), *self._changes(), *self._refusals(), *self._harms()]
        first = True
        for _, event in sorted(dated, key=lambda one: (one[0], one[1].words)):
            added = first and event.what == "backed"
            first = first and not added
            yield replace(event, what="added") if added else event

    def _dated(self, name: str, fact: Any, what: str, words: str, example: str = "") -> _Dated:
        names = {run.number: run.name for run in self.ledger.runs}
        iteration = self._iteration(name, fact)
        key = (fact.run == 0, fact.run, iteration is None, iteration or 0, _ORDER.index(what))
        return key, Event(what, words, names.get(fact.run, ""), iteration, example)

    def _iteration(self, name: str, fact: Any) -> int | None:
        """Return when a fact came to be: as the ledgers of this run tell, else as the support does that its
        source gave in the same run; None where neither does."""
        if not fact.run:
            known = (k for k, ledger in enumerate(self.history, start=1) if fact in getattr(ledger, name))
            if (first := next(known, None)) is not None:
                return first
        if isinstance(fact, Support):
            return fact.iteration + 1
        source = getattr(fact, "source", "")
        given = [
            one.iteration + 1
            for one in self.ledger.supports
            if source and (one.source, one.run) == (source, fact.run)
        ]
        return min(given, default=None)

    def _backed(self) -> Iterator[_Dated]:
        for one in self.ledger.supports:
            if one.entry in self.members:
                example = "" if one.source == INITIAL else example_of(one.source)
                words = f"learned from example {example}" if example else "given by the user"
                yield self._dated("supports", one, "backed", words, example)

    def _replays(self) -> Iterator[_Dated]:
        for one in self.ledger.verdicts:
            if one.entry_digest in self.members:
                example = example_of(one.source)
                model = next((run.model for run in self.ledger.runs if run.number == one.run), "")
                words = _replayed(one, example) + (f", with {one_line(model)[:MOST_CHARS]}" if model else "")
                yield self._dated("verdicts", one, "replayed", words, example)

    def _changes(self) -> Iterator[_Dated]:
        for one in self.ledger.changes:
            example = example_of(one.source)
            if one.base in self.members:
                words = f"replaced by {self._named(one.result)}" if one.result else "asked to be removed"
            elif one.result in self.members:
                words = f"made from {self._named(one.base)}"
            else:
                continue
            yield self._dated("changes", one, "changed", f"{words} by example {example}", example)

    def _named(self, digest: str) -> str:
        return self.ids.get(digest, digest[:12])

    def _refusals(self) -> Iterator[_Dated]:
        for one in self.ledger.refusals:
            if one.entry_digest in self.members and one.kind != "replay":
                yield self._dated("refusals", one, "retired", f"refused: {one.reason}")

    def _harms(self) -> Iterator[_Dated]:
        for one in self.ledger.harms:
            if one.entry in self.members:
                words = f"spoilt row {one.example} of select, which came right without it"
                yield self._dated("harms", one, "retired", words, one.example)


def _replayed(verdict: Verdict, example: str) -> str:
    if not example:
        words = "replayed where nothing was wrong"
    else:
        words = f"replayed on example {example}: {'won' if verdict.fixed else 'lost'}"
    if verdict.controls:
        controls = f"{len(verdict.controls)} controls"
        words += f", harmed {verdict.harmed} of {controls}" if verdict.harmed else f", left {controls} right"
    return words
