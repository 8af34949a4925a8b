"""Which entries cannot both be followed, and which say the same: judged by their words alone.

Two entries *contradict* each other when they speak of the same topic (the same words once numbers,
negations and function words are gone), name the same identifiers, hold under the same condition,
and state different numbers, or one negates the other. Different conditions are no contradiction:
each entry then holds in its own scope. The rule is strict on purpose: a false alarm costs rollouts
and a mark on a right entry, a missed one is still caught by replay and votes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from combee.algo.components import similarity_components
from combee.algo.grouping import grouped
from combee.algo.text import anchors, token_set
from combee.methods.ace.program import is_program

SIMILAR = 0.6
"""Token-set Jaccard from which two entries with equal anchors are the same lesson."""
CLUSTER_CAP = 4096
MAX_RIVAL_GROUPS = 32
"""Statements about one topic above which it is a list of cases and no dispute."""

_NEGATIONS = token_set("not never no don doesn cannot avoid without unless isn aren shouldn won nor")
_FUNCTION = token_set(
    "a an the is are be been to of in on by with and or at as it its this that always please must should "
    "shall you your t s do does if when whenever for then use only just"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """What an entry says, split into its subject and what it states about it."""

    topic: frozenset[str]
    numbers: frozenset[str]
    identifiers: frozenset[str]
    condition: frozenset[str]
    negated: bool

    def scope(self) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        """Return what two contradicting claims have in common."""
        return self.topic, self.identifiers, self.condition

    def statement(self) -> tuple[frozenset[str], bool]:
        """Return what two contradicting claims differ in."""
        return self.numbers, self.negated


@lru_cache(maxsize=1024)
def claim(text: str) -> Claim:
    """Return the claim of one entry; a program states nothing that words could deny. Cost: linear in the
    text."""
    if is_program(text):
        return Claim(frozenset(), frozenset(), frozenset(), frozenset(), negated=False)
    held = anchors(text)
    words = {word for word in token_set(text) if not (word[0].isdigit() or word[0] in "-.$€£¥")}
    return Claim(
        topic=frozenset(words - _NEGATIONS - _FUNCTION),
        numbers=held.numbers,
        identifiers=held.identifiers,
        condition=held.condition,
        negated=bool(words & _NEGATIONS),
    )


def same_lesson_key(text: str) -> tuple[frozenset[str], bool]:
    """Return what paraphrases must share besides words, numbers and identifiers: condition and negation. Two
    programs of the same words may compute opposite things, and so share nothing."""
    if is_program(text):
        return frozenset({text}), False
    stated = claim(text)
    return stated.condition, stated.negated


def paraphrases(texts: Sequence[str], *, cap: int = CLUSTER_CAP) -> list[list[int]]:
    """Return the indices of texts that say the same, each list sorted; every index is in exactly one list."""
    clusters = []
    for component in similarity_components(texts, threshold=SIMILAR, cap=cap):
        if len(component) == 1:
            clusters.append(list(component))
            continue
        alike = grouped(component, lambda index: same_lesson_key(texts[index]))
        clusters.extend(sorted(members) for members in alike.values())
    return sorted(clusters)


def contradictions(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the digests that contradict each digest of ``texts`` (digest -> text); symmetric."""
    claims = {digest: claim(text) for digest, text in texts.items()}
    scopes = grouped((digest for digest in texts if claims[digest].topic), lambda d: claims[d].scope())
    rivals: dict[str, set[str]] = defaultdict(set)
    for digests in scopes.values():
        statements = grouped(digests, lambda d: claims[d].statement())
        if len(statements) > MAX_RIVAL_GROUPS:
            continue
        for (one, left), (other, right) in combinations(statements.items(), 2):
            if _differ(one, other):
                for digest in left:
                    rivals[digest].update(right)
                for digest in right:
                    rivals[digest].update(left)
    return dict(rivals)


def _differ(a: tuple[frozenset[str], bool], b: tuple[frozenset[str], bool]) -> bool:
    if a[0] == b[0]:
        return a[1] != b[1]
    return not (a[0] <= b[0] or b[0] <= a[0])


def update_conflict(a: str, b: str) -> bool:
    """Return whether two replacements of one entry say different things under one condition."""
    one, other = claim(a), claim(b)
    if one.condition != other.condition:
        return False
    same = one.numbers == other.numbers and one.identifiers == other.identifiers
    return not (same and one.negated == other.negated and bool(paraphrases([a, b])[0][1:]))
