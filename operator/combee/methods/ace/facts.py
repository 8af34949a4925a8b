"""A ledger's facts, indexed by entry, and gathered by *lesson*: the entries that say the same.

A paraphrase adds its sources, votes and verdicts to the lesson it repeats. A MERGE inherits the
votes of all its members, but the sources only of members whose anchors it still holds, and none
when it says something no member said: support cannot be borrowed for a new claim.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from combee.algo.graph import closure
from combee.algo.grouping import grouped
from combee.algo.text import anchors, kept_in, token_set
from combee.methods.ace.conflicts import claim, paraphrases
from combee.methods.ace.entries import DEFAULT_SECTION
from combee.methods.ace.ledger import Change, Harm, Ledger, Support, Vote
from combee.methods.ace.parse import Line, layout
from combee.methods.protocol import INITIAL, Verdict
from combee.records import example_of

MERGE_WORDS_SHARE = 0.6
"""Share of a merged text's words that its members must have, for it to inherit their sources."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one ledger by entry digest. ``lines`` are those of the user's own playbook."""

    supports: dict[str, list[Support]]
    votes: dict[str, list[Vote]]
    wins: Counter[str]
    tried: dict[str, list[Verdict]]
    refused: dict[str, str]
    replacements: tuple[Change, ...]
    deletions: dict[str, list[Change]]
    harms: dict[str, list[Harm]]
    lines: tuple[Line, ...]
    bullets: dict[str, Line]

    def trusted(self, digest: str) -> bool:
        """Return whether the user gave the entry."""
        return digest in self.bullets


@lru_cache(maxsize=2)
def facts_of(ledger: Ledger) -> Facts:
    """Return the index of ``ledger``, without facts about entries that it does not have."""
    deletions = [change for change in sorted(ledger.changes) if change.op == "DELETE"]
    known = ledger.texts
    lines = layout(ledger.initial)
    tried = grouped(sorted(ledger.verdicts), lambda verdict: verdict.entry_digest)
    return Facts(
        supports=grouped(sorted(ledger.supports), lambda support: support.entry),
        votes=grouped(sorted(ledger.votes), lambda vote: vote.entry),
        wins=Counter(
            {entry: sum(one.won for one in deciding(verdicts)) for entry, verdicts in tried.items()}
        ),
        tried=tried,
        refused={r.entry_digest: r.kind for r in sorted(ledger.refusals) if r.stands},
        replacements=tuple(
            c for c in sorted(ledger.changes) if c.op != "DELETE" and c.base in known and c.result in known
        ),
        deletions=grouped(deletions, lambda change: change.base),
        harms=grouped(sorted(ledger.harms), lambda harm: harm.entry),
        lines=lines,
        bullets={line.digest: line for line in reversed(lines) if line.kind == "bullet"},
    )


@dataclass(frozen=True, slots=True)
class Lesson:
    """Entries that say the same, under the one that represents them. Counts are of distinct examples.

    ``wins`` and ``losses`` are replays of the newest run that decided anything: what earlier ones found
    counts until then. ``tried`` are the sources that it was replayed on; an empty one stands for controls.
    ``last_run`` is the newest run that replayed it, 0 for this one, None for none. ``harms``: whether it
    spoilt an example of select.

    Where an example of this run asks for what an earlier one retired, ``harms``, ``deleters`` and ``tried``
    are of this run alone: a row of the earlier select may be one of gate by now.
    """

    members: tuple[str, ...]
    sources: frozenset[str]
    helpers: frozenset[str]
    helpful: int
    harmful: int
    wins: int
    losses: int
    tried: frozenset[str]
    last_run: int | None
    deleters: frozenset[str]
    harms: bool
    section: str
    parents: tuple[str, ...]

    @property
    def examples(self) -> frozenset[str]:
        """The distinct examples behind it, not counting the user's own word."""
        return frozenset(example_of(source) for source in self.sources if source != INITIAL)

    @property
    def won(self) -> bool:
        """Whether a replay spoke for it, and no more of them against it."""
        return self.wins > 0 and self.wins >= self.losses

    @property
    def lost(self) -> bool:
        return self.losses > self.wins


@dataclass(frozen=True, slots=True)
class Lessons:
    """Every lesson of a ledger by its representative, and the representative of each entry.

    ``edges`` are pairs (base, result) of representatives, for the replacements that would hide ``base``;
    ``updates``: base -> the distinct results of its UPDATEs, sorted.
    """

    members: dict[str, Lesson]
    rep_of: dict[str, str]
    edges: tuple[tuple[str, str], ...]
    updates: dict[str, tuple[str, ...]]


@lru_cache(maxsize=2)
def lessons_of(ledger: Ledger) -> Lessons:
    """Return the lessons of ``ledger``; an entry whose refusal stands belongs to none."""
    facts = facts_of(ledger)
    usable = [digest for digest in ledger.texts if digest not in facts.refused]
    clusters = _separate(paraphrases([ledger.texts[d] for d in usable]), usable, facts)
    bases: dict[str, set[str]] = defaultdict(set)
    merged: dict[str, set[str]] = defaultdict(set)
    for change in facts.replacements:
        bases[change.result].add(change.base)
        if change.op == "MERGE":
            merged[change.result].add(change.base)
    inherits = {
        result: faithful_to(ledger.texts[result], {base: ledger.texts[base] for base in members})
        for result, members in merged.items()
    }
    lessons = {}
    for cluster in clusters:
        rep = _representative(cluster, facts)
        lessons[rep] = _gather(tuple(cluster), facts, inherits, merged, bases)
    rep_of = {digest: rep for rep, lesson in lessons.items() for digest in lesson.members}
    edges, updates = set(), defaultdict(set)
    for change in facts.replacements:
        base, result = rep_of.get(change.base, ""), rep_of.get(change.result, "")
        if not base or not result or base == result:
            continue
        if change.op == "UPDATE":
            updates[base].add(result)
        if change.op == "UPDATE" or kept_in(ledger.texts[change.base], ledger.texts[change.result]):
            edges.add((base, result))
    return Lessons(
        lessons,
        rep_of,
        tuple(sorted(edges)),
        {base: tuple(sorted(results)) for base, results in updates.items()},
    )


def _separate(clusters: Iterable[Sequence[int]], usable: Sequence[str], facts: Facts) -> list[list[str]]:
    """Return clusters of digests that hold no entry with its replacement and no two of the user's."""
    replaced: dict[str, set[str]] = defaultdict(set)
    for change in facts.replacements:
        replaced[change.base].add(change.result)
    result: list[list[str]] = []
    for cluster in clusters:
        digests = [usable[index] for index in cluster]
        together = set(digests)
        alone = [d for d in digests if len(digests) > 1 and replaced.get(d, set()) & (together - {d})]
        rest = [d for d in digests if d not in alone]
        alone += [d for d in rest if facts.trusted(d)][1:]
        rest = [d for d in rest if d not in alone]
        result.extend([d] for d in alone)
        if rest:
            result.append(rest)
    return result


def _representative(cluster: Sequence[str], facts: Facts) -> str:
    """Return the user's own wording, else the best backed one, else the lowest digest."""

    def standing(digest: str) -> tuple[bool, int, int, str]:
        examples = {example_of(s.source) for s in facts.supports.get(digest, ())}
        return not facts.trusted(digest), -facts.wins[digest], -len(examples), digest

    return min(cluster, key=standing)


def faithful_to(merged: str, members: dict[str, str]) -> list[str]:
    """Return the keys of the ``members`` that ``merged`` carries; none if it states what no member does."""
    stated = anchors(merged)
    numbers, identifiers, words = set[str](), set[str](), set[str]()
    for text in members.values():
        held = anchors(text)
        numbers |= held.numbers
        identifiers |= held.identifiers
        words |= token_set(text)
    own_words = token_set(merged)
    new_claim = not (stated.numbers <= numbers and stated.identifiers <= identifiers)
    if new_claim or len(own_words & words) < MERGE_WORDS_SHARE * len(own_words):
        return []
    negated = claim(merged).negated
    return sorted(
        key for key, text in members.items() if kept_in(text, merged) and claim(text).negated == negated
    )


def _gather(
    cluster: tuple[str, ...],
    facts: Facts,
    inherits: dict[str, list[str]],
    merged: dict[str, set[str]],
    bases: dict[str, set[str]],
) -> Lesson:
    backing = [s for d in sorted(closure(cluster, inherits)) for s in facts.supports.get(d, ())]
    voters = sorted(closure(cluster, merged))
    votes = [v for d in voters for v in facts.votes.get(d, ())]
    helpers = frozenset(example_of(v.source) for v in votes if v.verdict == "helpful")
    harmers = frozenset(example_of(v.source) for v in votes if v.verdict == "harmful")
    given = [facts.bullets[d] for d in voters if d in facts.bullets]
    own = [s for d in cluster for s in facts.supports.get(d, ())]
    verdicts = [verdict for d in cluster for verdict in facts.tried.get(d, ())]
    newest = deciding(verdicts)
    wins, losses = sum(verdict.won for verdict in newest), sum(verdict.lost for verdict in newest)
    tried = verdicts
    deletions = [change for d in cluster for change in facts.deletions.get(d, ())]
    harms = [harm for d in cluster for harm in facts.harms.get(d, ())]
    if any(support.run == 0 for support in own):
        lost = losses > wins and newest[0].run != 0
        if lost or any(change.run for change in deletions) or any(harm.run for harm in harms):
            tried = [verdict for verdict in verdicts if verdict.run == 0]
        deletions = [change for change in deletions if change.run == 0]
        harms = [harm for harm in harms if harm.run == 0]
    return Lesson(
        members=cluster,
        sources=frozenset(s.source for s in backing),
        helpers=helpers,
        helpful=len(helpers) + sum(line.helpful for line in given),
        harmful=len(harmers) + sum(line.harmful for line in given),
        wins=wins,
        losses=losses,
        tried=frozenset(verdict.source for verdict in tried),
        last_run=newest_run(verdicts),
        deleters=frozenset(example_of(change.source) for change in deletions),
        harms=bool(harms),
        section=section_of(own),
        parents=tuple(sorted({b for d in cluster for b in bases.get(d, ())} - set(cluster))),
    )


def deciding(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts that count: those, won or lost, of the newest run that decided anything."""
    decided = [verdict for verdict in verdicts if verdict.won or verdict.lost]
    run = newest_run(decided)
    return [verdict for verdict in decided if verdict.run == run]


def newest_run(verdicts: Sequence[Verdict]) -> int | None:
    """Return the newest run that these are of; 0, this one, is newer than all others."""
    runs = {verdict.run for verdict in verdicts}
    return 0 if 0 in runs else max(runs, default=None)


def section_of(supports: Sequence[Support]) -> str:
    """Return the section named by most sources of the first iteration that has any, ties by name. Earlier
    runs come before this one, which has the number 0."""
    if not supports:
        return DEFAULT_SECTION

    def when(support: Support) -> tuple[bool, int, int]:
        return support.run == 0, support.run, support.iteration

    first = min(map(when, supports))
    count = Counter(support.section for support in supports if when(support) == first)
    return min(count, key=lambda section: (-count[section], section))
