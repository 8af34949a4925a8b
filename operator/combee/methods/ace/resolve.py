"""What a ledger's facts amount to: which entry stands, with what support, and why another does not.

``resolve`` is a pure function of the set of facts, so the order in which they came cannot matter.

| out | why an entry is not rendered |
|---|---|
| leak, injection, program | refused by a check, or by its own test, for good |
| unverified | one source, and no replay speaks for it |
| replay | its replay was lost, whoever says the same |
| deleted | two distinct examples asked for it |
| harmful | found harmful beyond doubt |
| elsewhere | it spoilt examples of select |
| superseded | an UPDATE or MERGE of it stands |
| paraphrase | another wording of it stands |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from combee.algo.graph import cyclic_pairs
from combee.methods.ace.conflicts import contradictions, update_conflict
from combee.methods.ace.facts import Facts, Lesson, Lessons, facts_of, lessons_of
from combee.methods.ace.ledger import Ledger
from combee.methods.ace.votes import outvoted, share_bounds
from combee.methods.protocol import Verification, Verify
from combee.records import example_of

DISTINCT_TO_SUPPORT = 2
"""Distinct examples that admit an entry which no replay decided."""
DISTINCT_TO_DELETE = 2
"""Distinct examples that a DELETE needs to take effect."""

Rivals = dict[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Standing:
    """The standing of one entry. ``out`` is the one-word reason why it may not be rendered, or empty.

    ``lower`` is Wilson's lower bound of the share of examples for it among those for and against.
    ``contested`` counts the distinct examples behind its standing rivals and deletions.
    """

    digest: str
    text: str
    section: str
    sources: tuple[str, ...]
    helpful: int = 0
    harmful: int = 0
    verified: Verification = "no"
    lower: float = 0.0
    contested: int = 0
    out: str = ""
    parents: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[bool, float, str]:
        """The sort key, best first: verified, lower bound of support, digest."""
        return self.verified == "no", -self.lower, self.digest


@dataclass(frozen=True, slots=True)
class State:
    """All standings by digest, and the digests that may be rendered, best first."""

    standings: dict[str, Standing]
    ranked: tuple[str, ...]


@lru_cache(maxsize=3)
def rivalries(ledger: Ledger) -> Rivals:
    """Return the rivals of each representative, whatever has been verified; symmetric.

    In dispute are contradicting texts, different UPDATEs of one entry under one condition, and entries that
    replace each other in a circle. Two entries of the user's are never in dispute.
    """
    facts, lessons = facts_of(ledger), lessons_of(ledger)
    texts, replaces = ledger.texts, set(lessons.edges)
    contradicting = contradictions({rep: texts[rep] for rep in sorted(lessons.members)})
    pairs = {(one, other) for one, others in contradicting.items() for other in others}
    pairs = {p for p in pairs if p not in replaces and p[::-1] not in replaces} | cyclic_pairs(lessons.edges)
    for results in lessons.updates.values():
        pairs |= {p for p in combinations(results, 2) if update_conflict(texts[p[1]], texts[p[0]])}
    rivals: dict[str, set[str]] = {rep: set() for rep in lessons.members}
    for one, other in pairs:
        if one != other and not (facts.trusted(one) and facts.trusted(other)):
            rivals[one].add(other)
            rivals[other].add(one)
    return {rep: frozenset(others) for rep, others in rivals.items()}


@lru_cache(maxsize=3)
def resolve(ledger: Ledger, verify: Verify) -> State:
    """Return every entry's standing under a rule of verification, and the rank of those that stand.

    It takes about a second for 5,000 entries, nearly all in the search for paraphrases, and is cached.
    """
    facts, lessons, rivals = facts_of(ledger), lessons_of(ledger), rivalries(ledger)
    out: dict[str, str] = {}
    for rep in sorted(lessons.members):
        if reason := _reason_out(rep, lessons, facts, rivals, verify):
            out[rep] = reason
    circles = cyclic_pairs(lessons.edges)
    hidden = {base for base, result in lessons.edges if result not in out and (base, result) not in circles}
    out |= dict.fromkeys(sorted(hidden), "superseded")
    standings = {}
    for rep, lesson in lessons.members.items():
        contested = 0 if rep in out else _contested(rep, lessons, facts, rivals, out)
        standings[rep] = _standing(rep, lesson, ledger, facts, contested, out.get(rep, ""))
    for digest in ledger.texts:
        if digest not in standings:
            standings[digest] = _aside(digest, ledger, facts)
    live = sorted((s for s in standings.values() if not s.out), key=lambda s: s.rank)
    return State(dict(sorted(standings.items())), tuple(s.digest for s in live))


def _reason_out(rep: str, lessons: Lessons, facts: Facts, rivals: Rivals, verify: Verify) -> str:
    """Return the first reason why a lesson does not stand on its own merits; empty when it does."""
    lesson, trusted = lessons.members[rep], facts.trusted(rep)
    rival_won = any(lessons.members[rival].won for rival in rivals[rep])
    # A lost replay outweighs any number of sources, and settles a dispute whatever the rule. The user's own
    # entry falls only to a rival that won.
    if lesson.lost and (rival_won or not trusted) and (rivals[rep] or verify != "Off"):
        return "replay"
    if len(lesson.deleters) >= DISTINCT_TO_DELETE:
        return "deleted"
    if outvoted(lesson.helpful, lesson.harmful):
        return "harmful"
    if lesson.harms and not trusted:
        return "elsewhere"
    if trusted or verify == "Off" or len(lesson.examples) >= DISTINCT_TO_SUPPORT:
        return ""
    if verify == "Replay" and lesson.won:
        return ""
    return "unverified"


def _contested(rep: str, lessons: Lessons, facts: Facts, rivals: Rivals, out: dict[str, str]) -> int:
    """Count the distinct examples that say otherwise: behind standing rivals, and behind the deletion of an
    entry that this one updates. A count in the user's own line stands until a replay settles it."""
    against: set[str] = set()
    for rival in rivals[rep]:
        if rival not in out:
            against |= {example_of(source) for source in lessons.members[rival].sources}
    for base, results in lessons.updates.items():
        deleters = lessons.members[base].deleters
        if rep in results and len(deleters) >= DISTINCT_TO_DELETE:
            against |= deleters
    given = facts.bullets[rep].contested if facts.trusted(rep) else 0
    return max(len(against), 0 if lessons.members[rep].won else given)


def _standing(rep: str, lesson: Lesson, ledger: Ledger, facts: Facts, contested: int, out: str) -> Standing:
    trusted = facts.trusted(rep)
    verified: Verification = "no"
    if trusted:
        verified = "initial"
    elif lesson.won:
        verified = "replay"
    elif len(lesson.examples) >= DISTINCT_TO_SUPPORT:
        verified = "support"
    given = lesson.helpful - len(lesson.helpers)
    backing = len(lesson.examples | lesson.helpers) + given + int(trusted)
    return Standing(
        digest=rep,
        text=ledger.texts[rep],
        section=lesson.section,
        sources=tuple(sorted(lesson.sources)),
        helpful=lesson.helpful,
        harmful=lesson.harmful,
        verified=verified,
        lower=share_bounds(backing, backing + lesson.harmful)[0],
        contested=contested,
        out=out,
        parents=lesson.parents,
    )


def _aside(digest: str, ledger: Ledger, facts: Facts) -> Standing:
    """Return the standing of an entry that a check refused, or that another wording stands for."""
    supports = facts.supports.get(digest, ())
    return Standing(
        digest=digest,
        text=ledger.texts[digest],
        section=supports[0].section if supports else "",
        sources=tuple(sorted({s.source for s in supports})),
        out=facts.refused.get(digest, "paraphrase"),
    )
