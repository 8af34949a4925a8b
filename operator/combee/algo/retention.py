"""Retention: how many distinct lessons an iteration kept, by level and by rarity.

Retention is not quality (DESIGN section 5): *carried* means in the ledger with its anchors,
*rendered* in the playbook under its token budget. Reports give both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from combee.algo.components import similarity_labels
from combee.algo.text import kept_in
from combee.errors import BugError

LESSONS_PER_ENTRY = 4
"""Distinct lessons one entry can be credited with: a text that recites everything carries little."""
_RARITIES = ((1, "1"), (2, "2"), (4, "3-4"), (8, "5-8"))


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the reduce: ``calls`` read ``inputs`` with ``lessons``, of which ``carried`` came out.

    ``lessons`` and ``carried`` count distinct lesson clusters.
    """

    name: str
    calls: int
    inputs: int
    lessons: int
    carried: int


@dataclass(frozen=True, slots=True)
class Rarity:
    """Clusters seen in ``copies`` reflections ("1", "2", "3-4", "5-8", "9+")."""

    copies: str
    distinct: int
    carried: int


@dataclass(frozen=True, slots=True)
class Retention:
    """Distinct lesson clusters: all, carried by the ledger, rendered in the playbook, and by rarity."""

    distinct: int
    carried: int
    rendered: int
    by_rarity: tuple[Rarity, ...]


def carried(lesson_text: str, entry_text: str) -> bool:
    """Return whether an entry's text carries a lesson: whether its anchors are in it (``text.kept_in``).

    Source: DESIGN section 5 (Retention). Cost: linear; cached per text.

    >>> carried("For ROI use 15%", "ROI: use a rate of 15 percent"), carried("For ROI use 15%", "be careful")
    (True, False)
    """
    return kept_in(lesson_text, entry_text)


def lesson_clusters(texts: Sequence[str]) -> list[int]:
    """Return the number of the distinct lesson each text states: 0, 1, ... in order of first appearance.

    Texts state the same lesson when a chain of pairs with equal anchors (numbers, identifiers, condition) and
    token-set Jaccard >= 0.6 connects them. Shape (len(texts),); empty gives []. Source: DESIGN section 5
    (distinct lesson clusters). Cost: as ``similarity_labels``; under a second for 5,000 texts.

    >>> lesson_clusters(["use ROI of 5", "Use the ROI of 5", "use ROI of 6"])
    [0, 0, 1]
    """
    return similarity_labels(texts, same_condition=True)


def credited(
    lessons: Mapping[str, str],
    entries: Sequence[tuple[str, Collection[str]]],
    *,
    clusters: Sequence[int] | None = None,
    per_entry: int = LESSONS_PER_ENTRY,
) -> frozenset[str]:
    """Return the ids of the lessons that some entry carries.

    ``lessons``: lesson id -> text; ``entries``: (text, cited lesson ids). A citation counts only when its id
    exists and the lesson's anchors are in the entry; an entry is credited with at most ``per_entry`` distinct
    clusters, in order of lesson id. ``clusters`` aligns with the lessons' order (computed when absent). No
    entries give the empty set; ``BugError`` when the lengths differ. Source: DESIGN section 5 (Retention,
    "capped per entry"). Cost: O(citations).

    >>> sorted(credited({"a": "use 5", "b": "use 6"}, [("use 5 always", ["a", "b", "ghost"])]))
    ['a']
    """
    cluster_of = _cluster_of(lessons, clusters)
    credited_ids: set[str] = set()
    for text, cited in entries:
        seen: set[int] = set()
        for lesson_id in sorted(set(cited)):
            if lesson_id not in lessons or not carried(lessons[lesson_id], text):
                continue
            cluster = cluster_of[lesson_id]
            if cluster in seen or len(seen) < per_entry:
                seen.add(cluster)
                credited_ids.add(lesson_id)
    return frozenset(credited_ids)


def retention(
    lessons: Mapping[str, str],
    carried_ids: Collection[str],
    *,
    rendered_ids: Collection[str] = (),
    clusters: Sequence[int] | None = None,
) -> Retention:
    """Return an iteration's distinct lesson clusters, and how many were carried and rendered.

    ``lessons``: lesson id -> text. A cluster is carried when one of its lessons is; unknown ids are ignored.
    ``clusters`` aligns with the lessons' order (computed when absent). Rarity counts a cluster's lessons. No
    lessons give zeros. Source: DESIGN section 5 (Retention). Cost: that of ``lesson_clusters``, else linear.

    >>> retention({"a": "use 5", "b": "Use 5", "c": "use 6"}, ["b", "ghost"]).by_rarity
    (Rarity(copies='1', distinct=1, carried=0), Rarity(copies='2', distinct=1, carried=1))
    """
    cluster_of = _cluster_of(lessons, clusters)
    copies = Counter(cluster_of.values())
    carried_clusters = {cluster_of[i] for i in carried_ids if i in cluster_of}
    rendered_clusters = {cluster_of[i] for i in rendered_ids if i in cluster_of}
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for cluster, count in sorted(copies.items(), key=lambda row: (row[1], row[0])):
        row = rows[_rarity(count)]
        row[0] += 1
        row[1] += cluster in carried_clusters
    by_rarity = tuple(
        Rarity(name, distinct, carried_count) for name, (distinct, carried_count) in rows.items()
    )
    return Retention(len(copies), len(carried_clusters), len(rendered_clusters), by_rarity)


def _cluster_of(lessons: Mapping[str, str], clusters: Sequence[int] | None) -> dict[str, int]:
    numbers = lesson_clusters(list(lessons.values())) if clusters is None else clusters
    if len(numbers) != len(lessons):
        raise BugError(f"{len(numbers)} clusters for {len(lessons)} lessons", where="retention")
    return dict(zip(lessons, numbers, strict=True))


def _rarity(count: int) -> str:
    return next((name for most, name in _RARITIES if count <= most), "9+")
