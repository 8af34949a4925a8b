"""Aggregates, for any caller: a call carries a limited number of distinct entries.

Of z lessons of T tokens a call carries e = z / (1 + sum w + (T/Td)^2) distinct entries; raw reflections load
a call more than short entries do. The longer the call, the more entries blur into platitudes.
"""

from __future__ import annotations

from dataclasses import dataclass

from combee.sim import draws, lessons
from combee.sim.fill import Entry
from combee.sim.items import Item
from combee.sim.params import Law
from combee.sim.rulebook import Hit, Rulebook

RAW_TOKENS = 150
"""A lesson of at least this length loads a call like a raw reflection."""
SHORT_TOKENS = 60
"""A lesson of at most this length loads a call like a short entry."""
_RULES, _NOTES = "formulas_and_calculations", "strategies_and_insights"


@dataclass(slots=True)
class _Group:
    """One distinct lesson and the items that hold it."""

    hit: Hit
    count: int
    ids: dict[str, None]
    stated: bool = True
    """whether every item that holds it is a short entry with an id and states nothing else."""


def weight(tokens: float, law: Law) -> float:
    """Return a lesson's load: 1/Ce for short entries, 1/C for raw reflections, linear between."""
    raw, short = 1 / law.capacity, 1 / law.root_capacity
    share = min(1.0, max(0.0, (tokens - SHORT_TOKENS) / (RAW_TOKENS - SHORT_TOKENS)))
    return short + share * (raw - short)


def expected(lengths: list[float], law: Law) -> float:
    """Return e, the expected number of distinct entries carried from lessons of these lengths (tokens).

    >>> round(expected([200.0] * 10, Law()), 2)
    5.23
    """
    total = sum(lengths)
    load = sum(weight(length, law) for length in lengths)
    return len(lengths) / (1 + load + (total / law.token_capacity) ** 2)


def aggregate(items: list[Item], book: Rulebook, law: Law, seed: int, ordinal: int) -> list[Entry]:
    """Return the entries of one call; its luck is keyed by the lessons given, in order."""
    lengths = [item.tokens / len(item.hits) for item in items for _ in item.hits]
    if not lengths:
        return []
    lesson_keys = "|".join(f"{item.id}:{hit.kind}:{hit.key}" for item in items for hit in item.hits)
    key = (seed, "aggregate", draws.digest(lesson_keys), ordinal)
    groups = _grouped(items)
    carried = expected(lengths, law)
    count = min(len(groups), int(carried) + (draws.unit(*key, "count") < carried - int(carried)))
    chosen = sorted(groups, key=lambda name: draws.race(_salience(groups[name], law), *key, name))[:count]
    carried_names = set(chosen)
    specific = 1 / (1 + (sum(lengths) / law.blur_length) ** 2)
    entries = []
    for name, group in groups.items():
        if name in carried_names:
            blurred = draws.unit(*key, "blur", name) >= specific
            entries.append(_entry(group, blurred, book, law, *key, name))
    return entries


def _grouped(items: list[Item]) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    for item in items:
        for hit in item.hits:
            group = groups.setdefault(f"{hit.kind}:{hit.key}", _Group(hit, 0, {}))
            group.count += 1
            group.stated &= bool(item.id) and len(item.hits) == 1 and item.tokens < RAW_TOKENS
            if item.id:
                group.ids[item.id] = None
    return groups


def _salience(group: _Group, law: Law) -> float:
    boost = law.salience_rule if group.hit.kind == "right" else 1.0
    return float(group.count**law.salience_power * boost)


def _entry(group: _Group, blurred: bool, book: Rulebook, law: Law, *key: str | int) -> Entry:
    hit = group.hit
    cites = tuple(group.ids)
    if cites and draws.unit(*key, "invent") < law.invented:
        cites += (_invented(cites[-1], *key),)
    if blurred:
        return Entry(lessons.platitude(_name(hit), *key), _NOTES, cites)
    section = _RULES if hit.kind in ("right", "wrong") else _NOTES
    return Entry(book.entry(hit, *key), section, cites, tuple(group.ids) if group.stated else ())


def _name(hit: Hit) -> str:
    return hit.name or "questions of this kind"


def _invented(example_id: str, *key: str | int) -> str:
    """Return an id of the same format that no item has."""
    stem = example_id.rstrip("0123456789")
    width = max(3, len(example_id) - len(stem))
    return f"{stem}{90 * 10 ** (width - 2) + draws.number(*key, 'id') % 10 ** (width - 1):0{width}d}"
