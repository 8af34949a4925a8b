"""Which version of a Playbook is served: one rule, for the operator and for the gateway.

First Refuse counts, then a pin, then Promote, then what the operator recorded. The rule reads what the API
server holds and nothing else, so a watching gateway decides the same, also while the operator is down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a Playbook says about its versions."""

    pinned: str = ""
    """``spec.version.pinnedDigest``."""
    active: str = ""
    previous: str = ""
    """the digests of the active and the previous version, as the operator recorded them."""
    refused: frozenset[str] = frozenset()
    """digests that it recorded as refused by a person or rolled back: a version that was deleted and made
    anew does not say so itself."""

    @classmethod
    def of(cls, playbook: Mapping[str, Any]) -> Wanted:
        """Read the object as the API server has it; fields of later releases do not matter."""
        status = playbook.get("status") or {}
        version = (playbook.get("spec") or {}).get("version") or {}
        refused = (status.get("state") or {}).get("refused") or ()
        return cls(
            pinned=str(version.get("pinnedDigest") or ""),
            active=str(status.get("activeDigest") or ""),
            previous=str(status.get("previousDigest") or ""),
            refused=frozenset(map(str, refused)),
        )


@dataclass(frozen=True, slots=True)
class Version:
    """What is known of one version."""

    digest: str
    decision: str = "Auto"
    phase: str = "Candidate"
    created: str = ""
    """when it was made, by RFC 3339 in UTC, so that the text sorts by time."""
    config_map: str = ""
    refused_by: str = ""
    """``status.refusedBy``: Decision, Rollback or Gates."""
    content_digests: Mapping[str, str] = field(default_factory=dict)
    """``spec.contentDigests``: key of the ConfigMap -> the digest of what was published."""
    forgotten: frozenset[str] = frozenset()
    """``spec.origin.forgotten``: what it was learned without, from the first run of its line on."""

    @classmethod
    def of(cls, version: Mapping[str, Any]) -> Version:
        """Read the object as the API server has it."""
        spec, status = version.get("spec") or {}, version.get("status") or {}
        return cls(
            digest=str(spec.get("digest") or ""),
            decision=str(spec.get("decision") or "Auto"),
            phase=str(status.get("phase") or "Candidate"),
            created=str((version.get("metadata") or {}).get("creationTimestamp") or ""),
            config_map=str(spec.get("configMapName") or ""),
            refused_by=str(status.get("refusedBy") or ""),
            content_digests=dict(spec.get("contentDigests") or {}),
            forgotten=frozenset(map(str, (spec.get("origin") or {}).get("forgotten") or ())),
        )

    @property
    def refused(self) -> bool:
        """Whether only its own Promote brings it back: a person refused it, now or before, or it was rolled
        back. What the gates refused may also be pinned."""
        if self.decision == "Promote":
            return False
        before = self.phase == "Refused" and self.refused_by in ("Decision", "Rollback")
        return self.decision == "Refuse" or before


def ranking(wanted: Wanted, versions: Iterable[Version]) -> tuple[str, ...]:
    """Return the digests that may be served, best first; a later one only where an earlier one cannot be had.

    What a person refused or what was rolled back is among them only where a Promote names it; what the gates
    refused, where a pin or a Promote does. Of several promoted by hand, the one made last comes first.
    """
    gone = wanted.refused
    usable = (v for v in versions if v.digest and (v.decision == "Promote" or v.digest not in gone))
    allowed = {v.digest: v for v in usable if not v.refused}
    latest_first = sorted(allowed.values(), key=lambda v: (v.created, v.digest), reverse=True)
    standing = {d for d, v in allowed.items() if v.phase != "Refused"}
    order = [wanted.pinned] if wanted.pinned in allowed else []
    order += [v.digest for v in latest_first if v.decision == "Promote"]
    order += [d for d in (wanted.active, wanted.previous) if d in standing]
    # The record is gone where a Playbook was deleted and applied again; its versions are still usable.
    for phase in ("Active", "Previous"):
        order += [v.digest for v in latest_first if v.phase == phase]
    return tuple(dict.fromkeys(order))


def serving(wanted: Wanted, versions: Iterable[Version]) -> str | None:
    """Return the digest to serve; None when none may be served.

    >>> serving(Wanted(active="b", previous="a"), [Version("a"), Version("b", decision="Refuse")])
    'a'
    """
    return next(iter(ranking(wanted, versions)), None)
