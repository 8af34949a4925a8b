"""Which variants the next proposals start from: Pareto fronts by kind, and gepa's own selection over them.

A front is asked per key: an example, an objective, or a pair of both. Whoever scores highest there is on its
front. Dominated variants are removed and one is drawn, as likely as the number of fronts that it is on: both
by the functions of the gepa package, on the pool's own draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from gepa.gepa_utils import find_dominator_programs, select_program_candidate_from_pareto_front

from combee.api.method_gepa import Frontier
from combee.errors import DataError
from combee.methods.components.pool import VALUE, Pool
from combee.methods.components.standing import mean_score, members, objectives, scores
from combee.methods.gepa.draws import Draws

Front = dict[str, set[int]]
"""key -> positions in ``members(pool)`` of the variants that lead there."""


def fronts(pool: Pool, kind: Frontier) -> Front:
    """Return the fronts of a kind, by key in order; keys that nobody has a score for are absent.

    Raises DataError when the kind needs objectives and none were scored.
    """
    order = members(pool)
    by_value = {digest: of for digest, of in scores(pool).items() if digest in order}
    if kind == "Instance":
        return _leaders(order, {_key("example", example): of for example, of in _by_key(by_value).items()})
    named = objectives(pool)
    if not named:
        raise DataError(
            f"a frontier of kind {kind.lower()} needs a score by objectives, and the task gives none",
            where="spec.method.gepa.frontier",
            fix="Remove frontier",
        )
    by_objective = {name: scores(pool, name) for name in (*named, VALUE)}
    if kind == "Cartesian":
        return _leaders(
            order,
            {
                _key(name, example): of
                for name, own in by_objective.items()
                for example, of in _by_key(own).items()
            },
        )
    means = {
        _key("objective", name): {digest: mean_score(of) for digest, of in own.items()}
        for name, own in by_objective.items()
    }
    if kind == "Objective":
        return _leaders(order, means)
    return _leaders(order, means) | fronts(pool, "Instance")


def choose_parents(pool: Pool, kind: Frontier, draws: Draws, count: int = 1) -> list[str]:
    """Return the digests of the variants to start from, all different, in the order of their draws: one each.

    There are ``count``, or as many as none makes superfluous; at least one. Each is drawn from the fronts
    without those drawn before it, as likely as the number of fronts that it is on.
    """
    order, leading = members(pool), fronts(pool, kind) if pool.scores else {}
    if not leading:
        return _drawn(order, draws, count)
    means, chosen = _means(pool, order), list[int]()
    allowed = set(cast(Any, find_dominator_programs)(leading, means)) if count > 1 else set(range(len(order)))
    while leading and len(chosen) < count:
        chosen.append(select_program_candidate_from_pareto_front(leading, means, cast(Any, draws)))
        allowed.discard(chosen[-1])
        leading = {key: left for key, on in leading.items() if (left := on & allowed)}
    return [order[place] for place in chosen]


def _drawn(order: list[str], draws: Draws, count: int) -> list[str]:
    """Return some of ``order`` without repeats, each as likely; at least one."""
    left, chosen = list(order), list[str]()
    while left and len(chosen) < max(1, count):
        chosen.append(draws.choice(left))
        left.remove(chosen[-1])
    return chosen


def undominated(pool: Pool, kind: Frontier) -> list[str]:
    """Return the members that no others make superfluous, in the order of members."""
    order, leading = members(pool), fronts(pool, kind) if pool.scores else {}
    if not leading:
        return order
    places: list[int] = cast(Any, find_dominator_programs)(leading, _means(pool, order))
    return [order[place] for place in sorted(places)]


def _means(pool: Pool, order: list[str]) -> list[float]:
    known = scores(pool)
    return [mean_score(known.get(digest)) for digest in order]


def _key(*parts: str) -> str:
    """Return a front's key; no part can pose as two."""
    return "\x1f".join(parts)


def _by_key(by_variant: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return the scores turned round: example -> variant -> score."""
    turned: dict[str, dict[str, float]] = {}
    for variant, of in by_variant.items():
        for example, value in of.items():
            turned.setdefault(example, {})[variant] = value
    return turned


def _leaders(order: list[str], by_key: Mapping[str, Mapping[str, float]]) -> Front:
    place = {digest: position for position, digest in enumerate(order)}
    leading: Front = {}
    for key in sorted(by_key):
        inside = {digest: value for digest, value in by_key[key].items() if digest in place}
        if inside:
            top = max(inside.values())
            leading[key] = {place[digest] for digest, value in inside.items() if value == top}
    return leading
