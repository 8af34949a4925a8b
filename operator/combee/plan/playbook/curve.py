"""How the interval of a canary came about: kept with the tally in ``status.state`` to be drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from combee.algo.curve import Look, with_look


@dataclass(frozen=True, slots=True)
class Curve:
    """The looks at one comparison, thinned. Of each kind of comparison the last one's curve is kept."""

    comparison: str
    """``TrafficComparison.id``."""
    kind: str
    """``Promotion`` or ``Watch``."""
    against: str
    """the digest of the other version."""
    epsilon: float
    """the epsilon that it is judged by."""
    since: float
    """when it began, in seconds since 1970."""
    looks: tuple[Look, ...] = ()

    def to_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in ("kind", "against", "epsilon", "since")}
        return {"test": self.comparison, **plain, "looks": [look.to_json() for look in self.looks]}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Curve:
        """Read what ``to_json`` wrote. Raises ValueError, TypeError or KeyError for something else."""
        looks = tuple(Look.from_json(look) for look in raw["looks"])
        if any(after.pairs <= before.pairs for before, after in pairwise(looks)):
            raise ValueError("looks that do not ascend")
        comparison, kind, against = (str(raw[name]) for name in ("test", "kind", "against"))
        return cls(comparison, kind, against, float(raw["epsilon"]), float(raw["since"]), looks)


def looked(curves: Iterable[Curve], of: Curve, look: Look) -> tuple[Curve, ...]:
    """Return ``curves`` with a look at the canary of ``of``; they stay as they are if no pair came since."""
    by_kind = {curve.kind: curve for curve in curves}
    current = by_kind.get(of.kind)
    before = current.looks if current is not None and current.comparison == of.comparison else ()
    after = with_look(before, look)
    if after == before:
        return tuple(by_kind.values())
    by_kind[of.kind] = replace(of, looks=after)
    return tuple(by_kind[kind] for kind in sorted(by_kind))


def curves_in(state: Mapping[str, Any]) -> tuple[Curve, ...]:
    """Return the curves in a version's ``status.state``; none where another release wrote something else."""
    try:
        return tuple(Curve.from_json(curve) for curve in state.get("curves", ()))
    except (KeyError, TypeError, ValueError, AttributeError):
        return ()
