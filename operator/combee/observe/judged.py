"""Judged pairs and readings that judges left in ConfigMaps for the operator to fold in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from combee import names
from combee.algo.tally import LeftOut, Pair
from combee.clients.kubernetes.kube import Kube, Object
from combee.plan.playbook.judging import read_left_out, read_pairs
from combee.plan.playbook.readings import Reading, read_reading

MAX_AT_ONCE = 8
"""The most ConfigMaps that one tick reads; the others are for the next tick."""


@dataclass(frozen=True, slots=True)
class Brought:
    """The results of Jobs, by the id of their canary."""

    pairs: dict[str, tuple[Pair, ...]] = field(default_factory=dict)
    left_out: dict[str, tuple[LeftOut, ...]] = field(default_factory=dict)
    readings: dict[str, tuple[Reading, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judged:
    """The ConfigMaps that hold judged pairs of canaries under way."""

    by_name: Mapping[str, str]
    """The name of a ConfigMap -> the ``TrafficComparison.id`` of its pairs."""
    stale: tuple[str, ...] = ()
    """The ConfigMaps of canaries that are over: nobody waits for them."""
    foreign: tuple[str, ...] = ()
    """Those of canaries under way that no judge of theirs made: nothing is read from them."""
    more: bool = False
    """Whether there are more than one tick reads."""

    @classmethod
    def of(
        cls, metas: Iterable[Object], versions: Iterable[Object], job_uids: Mapping[str, Collection[str]]
    ) -> Judged:
        """Return those among a Playbook's ConfigMaps (``metas``) that hold results of its versions'
        canaries. ``job_uids``: canary -> the uids of the own Jobs that judge it; those that are gone
        by now are in the versions' memory."""
        metas, versions = list(metas), list(versions)
        running, paused = set(canaries_of(versions)), set(paused_of(versions))
        canaries_by_name = {
            meta["metadata"]["name"]: str(meta["metadata"]["labels"][names.LABEL_CANARY])
            for meta in metas
            if names.LABEL_CANARY in meta["metadata"].get("labels", {})
        }
        makers = {meta["metadata"]["name"]: _maker(meta) for meta in metas}
        own = {
            canary: {*job_uids.get(canary, ()), *known} for canary, known in _job_uids_of(versions).items()
        }
        awaited = sorted(name for name, canary in canaries_by_name.items() if canary in running)
        foreign = [name for name in awaited if makers[name] not in own.get(canaries_by_name[name], ())]
        awaited = [name for name in awaited if name not in foreign]
        over = sorted(name for name, canary in canaries_by_name.items() if canary not in running | paused)
        chosen = {name: canaries_by_name[name] for name in awaited[:MAX_AT_ONCE]}
        # What has not our labels is not ours to delete: the chart's policy refuses it.
        ours = {meta["metadata"]["name"] for meta in metas if _ours(meta)}
        foreign = [name for name in foreign if name in ours]
        stale = (*[name for name in over if name in ours][:MAX_AT_ONCE], *foreign[:MAX_AT_ONCE])
        return cls(chosen, stale, tuple(foreign[:MAX_AT_ONCE]), more=len(awaited) > len(chosen))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the ConfigMaps to read."""
        return tuple(self.by_name)

    async def read(self, kube: Kube, namespace: str) -> Brought:
        """Return the results in the ConfigMaps. Content that cannot be read is left out."""
        results = Brought()
        for name, canary in self.by_name.items():
            config_map = await kube.get("ConfigMap", namespace, name)
            data = (config_map or {}).get("data") or {}
            text = str(data.get(names.PAIRS_KEY, ""))
            results.pairs[canary] = (*results.pairs.get(canary, ()), *read_pairs(text))
            results.left_out[canary] = (*results.left_out.get(canary, ()), *read_left_out(text))
            if (reading := read_reading(str(data.get(names.READING_KEY, "")))) is not None:
                results.readings[canary] = (*results.readings.get(canary, ()), reading)
        return results


def _ours(config_map: Object) -> bool:
    labels = config_map["metadata"].get("labels") or {}
    return bool(labels.get(names.LABEL_MANAGED_BY) == names.MANAGED_BY)


def _maker(config_map: Object) -> str:
    """Return the uid of the Job that a ConfigMap says it was made by; empty without one."""
    return str((config_map["metadata"].get("annotations") or {}).get(names.JUDGE_ANNOTATION, ""))


def _job_uids_of(versions: Iterable[Object]) -> dict[str, set[str]]:
    """Return the uids of the Jobs of each canary, as its version remembers them; those of none are empty."""
    states = [(version.get("status") or {}).get("state") or {} for version in versions]
    known = {canary: set[str]() for canary in canaries_of(versions)}
    return known | {
        str(state["test"]): {*map(str, state.get("judges", ()))} for state in states if state.get("test")
    }


def canaries_of(versions: Iterable[Object]) -> list[str]:
    """Return the sorted ids of the canaries that are under way."""
    canaries = (((version.get("status") or {}).get("test") or {}).get("id") for version in versions)
    return sorted({str(canary) for canary in canaries if canary})


def paused_of(versions: Iterable[Object]) -> list[str]:
    """Return the sorted ids of paused canaries, whose judged pairs stay until they go on."""
    canaries = (((version.get("status") or {}).get("state") or {}).get("test") for version in versions)
    return sorted({str(canary) for canary in canaries if canary})
