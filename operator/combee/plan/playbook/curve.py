"""How the interval of a test on traffic came about: kept with the tally in ``status.state``, for whoever draws it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from combee.algo.curve import Look, with_look


@dataclass(frozen=True, slots=True)
class Curve:
    """The looks at one test, thinned. Of each kind of test the last one's is kept."""

    test: str
    """``TrafficComparison.id``."""
    kind: str
    """Promotion or Watch."""
    against: str
    """digest of the other version."""
    epsilon: float
    """that it is judged by."""
    since: float
    """seconds since 1970."""
    looks: tuple[Look, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data for a status: three kilobytes at most."""
        return {
            "test": self.test,
            "kind": self.kind,
            "against": self.against,
            "epsilon": self.epsilon,
            "since": self.since,
            "looks": [look.to_json() for look in self.looks],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Curve:
        """Read what ``to_json`` wrote. ValueError, TypeError or KeyError when it is something else."""
        looks = tuple(Look.from_json(one) for one in raw["looks"])
        if any(late.pairs <= early.pairs for early, late in pairwise(looks)):
            raise ValueError("looks that do not ascend")
        test, kind, against = (str(raw[name]) for name in ("test", "kind", "against"))
        return cls(test, kind, against, float(raw["epsilon"]), float(raw["since"]), looks)


def looked(curves: Iterable[Curve], of: Curve, look: Look) -> tuple[Curve, ...]:
    """``curves`` with a look at the test that ``of`` (without looks) tells; equal where no pair came since."""
    known = {one.kind: one for one in curves}
    now = known.get(of.kind)
    before = now.looks if now is not None and now.test == of.test else ()
    after = with_look(before, look)
    if after == before:
        return tuple(known.values())
    known[of.kind] = replace(of, looks=after)
    return tuple(known[kind] for kind in sorted(known))


def curves_in(state: Mapping[str, Any]) -> tuple[Curve, ...]:
    """The curves in a version's ``status.state``; none that cannot be read: another release may have written it."""
    try:
        return tuple(Curve.from_json(one) for one in state.get("curves", ()))
    except (KeyError, TypeError, ValueError, AttributeError):
        return ()
