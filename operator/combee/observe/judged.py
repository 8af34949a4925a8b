"""Judged pairs of canaries, and readings: what a ``canary-eval`` Job left in ConfigMaps, for the operator to fold in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from combee import names
from combee.algo.canary import LeftOut, Pair
from combee.clients.kubernetes.kube import Kube, Object
from combee.plan.playbook.judging import read_left_out, read_pairs
from combee.plan.playbook.readings import Reading, read_reading

MAX_AT_ONCE = 8
"""ConfigMaps of pairs read in one tick; more are for the next one."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What Jobs brought, by test."""

    pairs: dict[str, tuple[Pair, ...]] = field(default_factory=dict)
    left_out: dict[str, tuple[LeftOut, ...]] = field(default_factory=dict)
    readings: dict[str, tuple[Reading, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judged:
    """The ConfigMaps that hold pairs of tests that are under way."""

    by_name: Mapping[str, str]
    """name -> ``CanaryTest.id``."""
    stale: tuple[str, ...] = ()
    """those of tests that are over: nobody waits for them."""
    more: bool = False
    """whether there are more than are read at once."""

    @classmethod
    def of(cls, metas: Iterable[Object], versions: Iterable[Object]) -> Judged:
        """Those among a Playbook's ConfigMaps, by name."""
        versions = list(versions)
        tests, paused = set(tests_of(versions)), set(paused_of(versions))
        found = {
            one["metadata"]["name"]: str(one["metadata"]["labels"][names.LABEL_CANARY])
            for one in metas
            if names.LABEL_CANARY in one["metadata"].get("labels", {})
        }
        wanted = sorted(name for name, test in found.items() if test in tests)
        stale = sorted(name for name, test in found.items() if test not in tests | paused)[:MAX_AT_ONCE]
        chosen = {name: found[name] for name in wanted[:MAX_AT_ONCE]}
        return cls(chosen, tuple(stale), more=len(wanted) > len(chosen))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the ConfigMaps."""
        return tuple(self.by_name)

    async def read(self, kube: Kube, namespace: str) -> Brought:
        """What is in them. What cannot be read counts as nothing."""
        brought = Brought()
        for name, test in self.by_name.items():
            found = await kube.get("ConfigMap", namespace, name)
            data = (found or {}).get("data") or {}
            text = str(data.get(names.PAIRS_KEY, ""))
            brought.pairs[test] = (*brought.pairs.get(test, ()), *read_pairs(text))
            brought.left_out[test] = (*brought.left_out.get(test, ()), *read_left_out(text))
            if (reading := read_reading(str(data.get(names.READING_KEY, "")))) is not None:
                brought.readings[test] = (*brought.readings.get(test, ()), reading)
        return brought


def tests_of(versions: Iterable[Object]) -> list[str]:
    """Ids of the tests that are under way."""
    tests = (((one.get("status") or {}).get("test") or {}).get("id") for one in versions)
    return sorted({str(test) for test in tests if test})


def paused_of(versions: Iterable[Object]) -> list[str]:
    """Ids of the tests that may go on: what was judged for them waits."""
    tests = (((one.get("status") or {}).get("state") or {}).get("test") for one in versions)
    return sorted({str(test) for test in tests if test})
