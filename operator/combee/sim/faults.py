"""Faults on request: which fault, if any, meets a request at its n-th attempt."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from combee.sim import draws
from combee.sim.params import Faults

_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault; ``kind`` is '' when there is none. ``slow`` multiplies the time taken."""

    kind: str = ""
    slow: float = 1.0


class FaultLuck:
    """Draws faults by (seed, request digest, attempt), so that order and timing never matter."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self._faults, self._seed = faults, seed
        self._attempts: OrderedDict[str, int] = OrderedDict()

    def meet(self, digest: str) -> Fault:
        """Return the fault of this attempt at the request."""
        if not self._faults.any:
            return Fault()
        attempt = self._attempts.pop(digest, 0)
        self._attempts[digest] = attempt + 1
        if len(self._attempts) > _REMEMBERED:
            self._attempts.popitem(last=False)
        return draw(self._faults, self._seed, digest, attempt)


def draw(faults: Faults, seed: int, digest: str, attempt: int) -> Fault:
    """Return the fault of one attempt: at most one kind, and slowness in addition."""
    key = (seed, "fault", digest, attempt)
    slow_share = 1 / faults.slow_one_in if faults.slow_one_in else 0.0
    slow = faults.slow_factor if draws.unit(*key, "slow") < slow_share else 1.0
    shares = (
        ("reset", faults.reset_rate),
        ("hang", 1 / faults.hang_one_in if faults.hang_one_in else 0.0),
        ("rate_limit", faults.rate_limit_rate),
        ("error", faults.error_rate),
        ("truncate", faults.truncate_rate),
        ("malform", faults.malform_rate),
    )
    for kind, share in shares:
        if draws.unit(*key, kind) < share:
            return Fault(kind, slow)
    return Fault("", slow)


def spoil(text: str, kind: str) -> str:
    """Return a reply cut in the middle, or no longer JSON, as ``kind`` says."""
    if kind == "truncate":
        return text[: len(text) * 2 // 3]
    if kind == "malform":
        return "Sure, here is the result:\n" + text.replace('":', '" =', 1).replace("}", ",", 1)
    return text
