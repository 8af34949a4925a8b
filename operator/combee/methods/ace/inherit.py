"""What one run hands on to the next: its ledger, with its own facts marked as those of an earlier run.

**Whose facts.** A fact of an earlier run names it by ``run``: 1 for the first of the line, and so on. The
facts of the run that reads the ledger name none, so a run that inherits nothing keeps its bytes.

**Which example.** The id of a row is often only its line number, and line 17 of another file is another
example. So the source ``17@2`` is handed on as ``17#1b2c3d4e@2``, by the digest of its train split, and is
``17@2`` again where a run learns from the same split. Ids that are more than a number mean the same example
everywhere, and stay.

**What stays behind.** Texts that were refused as private; programs that did not pass their own tests in the
run that wrote them, so that one which is written again is tested again; votes of more than ``VOTING_RUNS``
runs ago; replays of an entry that count no longer, since a newer run decided it; and, where a ledger has over
``MOST_BYTES``, what older examples than the newest say of an entry (``MOST_EXAMPLES``), then entries that
are not in the playbook, those first of which nothing was heard for longest, and last those that what is in
the playbook rests on.

**What is forgotten.** A ledger names the rows that all of its runs learned without. A run that is to learn
without a row takes a ledger only where that row is among them: what else it says may come from it, whoever
supports it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import fields, replace
from itertools import chain
from typing import Any

from combee.algo.graph import closure
from combee.algo.grouping import grouped
from combee.algo.seeds import digest_of
from combee.errors import DataError
from combee.methods.ace.change import initial
from combee.methods.ace.entries import as_kept, section_key
from combee.methods.ace.facts import deciding, facts_of, lessons_of, newest_run, section_of
from combee.methods.ace.ledger import Ledger, Run, from_json
from combee.methods.protocol import INITIAL, Rendered, Verdict
from combee.records import example_of

VOTING_RUNS = 3
"""Votes of so many runs count, this one not among them: what helped long ago may not help any more."""
MOST_BYTES = 600 * 1024
"""Of a ledger that is handed on. It shares the 900 KiB of a ConfigMap with the playbook and gate's scores."""
MOST_EXAMPLES = (64, 32, 16, 8, 4)
"""Distinct examples of an entry that a ledger which is too large keeps: the most with which it fits."""
SPLIT_DIGITS = 8
"""of the digest of a train split, which tell the examples of one file from those of another."""


def handed_on(
    artifact: Ledger,
    rendered: Rendered,
    *,
    by: str,
    train: str,
    model: str = "",
    forgotten: Sequence[str] = (),
) -> bytes:
    """Return what the next run starts from. ``by``: this run's name; ``train``: its train split's digest;
    ``model``: its task model; ``forgotten``: what it learned without."""
    number = max((run.number for run in artifact.runs), default=0) + 1
    split = train[:SPLIT_DIGITS]

    def marked(fact: Any) -> Any:
        return fact if fact.run else replace(_renamed(fact, lambda one: _of_split(one, split)), run=number)

    earlier = {support.entry for support in artifact.supports if support.run}
    stays = {
        one.entry_digest
        for one in artifact.refusals
        if one.kind == "leak" or (one.kind == "program" and one.entry_digest not in earlier)
    }
    ledger = _mapped(_without(artifact, stays), marked)
    ledger = replace(
        ledger,
        votes=frozenset(vote for vote in ledger.votes if vote.run > number - VOTING_RUNS),
        verdicts=_that_count(ledger.verdicts),
        runs=artifact.runs | {Run(number, by, split, model)},
        forgotten=frozenset(forgotten) & artifact.forgotten if artifact.runs else frozenset(forgotten),
    )
    return _within(ledger, {*rendered.included}).to_json()


def _that_count(verdicts: Iterable[Verdict]) -> frozenset[Verdict]:
    """Return of each entry's verdicts those that count and those of its newest replays, which say when it was
    replayed last: one more run of a line adds no more of them."""
    kept = set[Verdict]()
    for ones in grouped(verdicts, lambda verdict: verdict.entry_digest).values():
        last = newest_run(ones)
        kept |= {*deciding(ones), *(one for one in ones if one.run == last)}
    return frozenset(kept)


def started(text: str, *, train: str, forgotten: Sequence[str] = ()) -> Ledger:
    """Return the ledger that a run starts from: that of an earlier run where ``text`` is one, else that of
    the playbook which a person wrote. ``train``: the digest of this run's train split. The ledger is empty
    where what is ``forgotten`` may be in that of the earlier run. Raises DataError for a ledger that no run
    wrote, and for the artifact of another method."""
    body = _object_in(text)
    if "version" not in body:
        return initial(text)
    if not {"entries", "supports"} <= body.keys():
        raise DataError("not a ledger (no entries)", fix="Give prompt.md where another method learned it.")
    ledger = from_json(text.encode())
    if not _is_sound(ledger):
        raise DataError("not a ledger (its facts)", fix="Give the file that a run wrote, unchanged.")
    if any(not fact.run for name in _FACTS for fact in getattr(ledger, name)):
        # As it stands in a store, of a run that nothing is known of.
        unknown = digest_of(text)
        ledger = from_json(handed_on(ledger, Rendered("", 0, tuple(ledger.texts)), by="", train=unknown))
    if not ledger.forgotten.issuperset(forgotten):
        return Ledger()
    mark = f"#{train[:SPLIT_DIGITS]}"
    return _mapped(ledger, lambda fact: _renamed(fact, lambda one: one.removesuffix(mark)))


def inherited(artifact: Ledger) -> tuple[str, ...]:
    """Return the digests of the entries that models wrote in earlier runs, without those that were refused
    for their words: nothing shows who wrote a ledger, so what no check has refused is checked again."""
    facts = facts_of(artifact)
    return tuple(one for one in artifact.texts if not facts.trusted(one) and one not in facts.refused)


def _object_in(text: str) -> dict[str, Any]:
    """Return the JSON object that a text is; an empty one where it is none."""
    if not text.lstrip().startswith("{"):
        return {}
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _is_sound(ledger: Ledger) -> bool:
    """Return whether every fact has values of its fields' kinds and is of a run that the ledger knows, and
    every entry and section is one line, or a program, as a parser makes them: no text may open a section or
    pose as another bullet."""
    facts = list(chain.from_iterable(getattr(ledger, name) for name in _FACTS))
    if not all(
        type(getattr(fact, field.name)) is _KINDS.get(field.name, str)
        for fact in chain(facts, ledger.runs)
        for field in fields(fact)
    ):
        return False
    runs = range(1, len(ledger.runs) + 1)
    controls = (verdict.controls for verdict in ledger.verdicts)
    return (
        sorted(run.number for run in ledger.runs) == [*runs]
        and all(fact.run == 0 or fact.run in runs for fact in facts)
        and all(as_kept(entry.text) == entry.text for entry in ledger.entries)
        and all(section_key(support.section) == support.section for support in ledger.supports)
        and all(isinstance(one, str) for one in chain(ledger.initial, ledger.forgotten, *controls))
    )


_KINDS = {"run": int, "number": int, "iteration": int, "harmed": int, "fixed": bool, "controls": tuple}
_FACTS = ("supports", "votes", "changes", "verdicts", "refusals", "harms")
_ABOUT = {"changes": "base", "verdicts": "entry_digest", "refusals": "entry_digest"}
"""The field that says which entry a fact is about, where it is not ``entry``."""


def _mapped(ledger: Ledger, changed: Callable[[Any], Any]) -> Ledger:
    return replace(ledger, **{name: frozenset(map(changed, getattr(ledger, name))) for name in _FACTS})


def _renamed(fact: Any, name: Callable[[str], str]) -> Any:
    """Return a fact with the examples of train that it speaks of renamed."""
    names = {field.name for field in fields(fact)}
    changed: dict[str, Any] = {}
    if "source" in names:
        example = example_of(fact.source)
        changed["source"] = f"{name(example)}{fact.source[len(example) :]}"
    if "controls" in names:
        changed["controls"] = tuple(map(name, fact.controls))
    return replace(fact, **changed) if changed else fact


def _of_split(example: str, split: str) -> str:
    """Return the name of an example outside its own file.

    >>> _of_split("17", "1b2c3d4e"), _of_split("order-17", "1b2c3d4e")
    ('17#1b2c3d4e', 'order-17')
    """
    return f"{example}#{split}" if example.isdecimal() else example


def _without(ledger: Ledger, entries: Set[str]) -> Ledger:
    """Return the ledger as if these entries had never been."""
    if not entries:
        return ledger

    def kept(name: str) -> frozenset[Any]:
        about = _ABOUT.get(name, "entry")
        facts: frozenset[Any] = getattr(ledger, name)
        return frozenset(
            fact
            for fact in facts
            if getattr(fact, about) not in entries and getattr(fact, "result", "") not in entries
        )

    rest = frozenset(entry for entry in ledger.entries if entry.digest not in entries)
    return replace(ledger, entries=rest, **{name: kept(name) for name in _FACTS})


def _within(ledger: Ledger, shown: Set[str]) -> Ledger:
    """Return the ledger in at most ``MOST_BYTES``, if what is ``shown`` fits in them."""
    for most in MOST_EXAMPLES:
        if len(ledger.to_json()) <= MOST_BYTES:
            return ledger
        ledger = _of_newest(ledger, most)
    given = {entry.digest for text in ledger.initial for entry in initial(text).entries}
    return _dropped(ledger, shown | given, _rested_on(ledger, shown))


def _of_newest(ledger: Ledger, most: int) -> Ledger:
    """Return the ledger with what at most the ``most`` newest examples say of an entry; with it the user's
    own word and the source that names the section."""
    named = {
        support
        for supports in facts_of(ledger).supports.values()
        for section in [section_of(supports)]
        for support in [
            min((one for one in supports if one.section == section), key=_when),
            *(one for one in supports if one.source == INITIAL),
        ]
    }
    return replace(
        ledger,
        supports=frozenset({*named, *_newest(ledger.supports, most, lambda one: one.entry)}),
        votes=frozenset(_newest(ledger.votes, most, lambda one: one.entry)),
        changes=frozenset(_newest(ledger.changes, most, lambda one: (one.op, one.base, one.result))),
    )


def _when(fact: Any) -> tuple[int, int, str, str]:
    """Return the sort key of a fact of an earlier run, newest last: a vote is as new as its epoch."""
    return fact.run, getattr(fact, "iteration", 0), fact.source.rpartition("@")[2].zfill(9), fact.source


def _newest(facts: Iterable[Any], most: int, about: Callable[[Any], Any]) -> list[Any]:
    """Return the facts of the ``most`` newest examples about each thing; of those that say the same of it by
    the same example, the newest."""
    kept: dict[Any, dict[str, dict[str, Any]]] = defaultdict(dict)
    for fact in sorted(facts, key=_when, reverse=True):
        examples, example = kept[about(fact)], example_of(fact.source)
        if example in examples or len(examples) < most:
            examples.setdefault(example, {}).setdefault(getattr(fact, "verdict", ""), fact)
    return [fact for examples in kept.values() for latest in examples.values() for fact in latest.values()]


def _rested_on(ledger: Ledger, shown: Set[str]) -> set[str]:
    """Return what is shown, its other wordings, and what it replaced: it stands by their sources, votes and
    replays."""
    lessons, below = lessons_of(ledger), defaultdict[str, set[str]](set)
    for lesson in lessons.members.values():
        for member in lesson.members:
            below[member] |= {*lesson.members}
    for change in ledger.changes:
        below[change.result].add(change.base)
    return closure(shown, below)


def _dropped(ledger: Ledger, stays: Set[str], last: Set[str]) -> Ledger:
    """Return the ledger without entries that it has too many of, never those that ``stays`` names, ``last``
    after the others."""
    over = len(ledger.to_json()) - MOST_BYTES
    if over <= 0:
        return ledger
    size = Counter({entry.digest: len(json.dumps(entry.text)) for entry in ledger.entries})
    heard: dict[str, tuple[int, int]] = {}
    for name in _FACTS:
        for fact in getattr(ledger, name):
            entry = getattr(fact, _ABOUT.get(name, "entry"))
            size[entry] += sum(len(str(getattr(fact, field.name))) + 3 for field in fields(fact))
            heard[entry] = max(heard.get(entry, (0, 0)), (fact.run, getattr(fact, "iteration", 0)))
    oldest = sorted(ledger.texts, key=lambda one: (one in last, heard.get(one, (0, 0)), one))
    dropped = set[str]()
    for digest in oldest:
        if over > 0 and digest not in stays:
            over -= size[digest]
            dropped.add(digest)
    # What a fact takes is estimated, so a little may still be too much.
    return _dropped(_without(ledger, dropped), stays, last) if dropped else ledger
