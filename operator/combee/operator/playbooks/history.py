"""The lines of Playbooks' histories in ConfigMaps: reading them, and writing those that are pending."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from combee import names
from combee.api.playbook_status import PlaybookStatus, Trail
from combee.clients.kubernetes.kube import Kube
from combee.errors import ClusterError
from combee.objects.playbooks import history_config_map
from combee.observe.history import filed_lines
from combee.plan.playbook.trail import FiledLine, filed
from combee.plan.playbook.types import VersionSeen
from combee.records import Owner


@dataclass(slots=True)
class History:
    """Writes lines, and looks which of the pending ones are written: what was written once may be gone where
    a cluster came back from a snapshot."""

    kube: Kube
    _moved: set[str] = field(default_factory=set)
    """Playbooks at whose next number another line was found: the history goes on after it."""

    def is_needed(self, owner: Owner, status: PlaybookStatus, versions: Iterable[VersionSeen]) -> bool:
        """Return whether the lines must be read for the next decision: no status says where they end, or it
        is wrong about it, or some version does not know which of them it has taken in."""
        statuses = [version.status for version in versions]
        unknown = any(one.conditions and not one.state.get("noted") for one in statuses)
        return status.trail is None or owner.uid in self._moved or unknown

    async def lines(self, owner: Owner) -> tuple[FiledLine, ...]:
        """Return the lines that are written."""
        lines = await filed_lines(self.kube, owner.namespace, owner.name)
        self._moved.discard(owner.uid)
        return lines

    async def filed(self, owner: Owner, trail: Trail | None) -> int:
        """Return the number up to which the pending lines are written; 0 where none is."""
        last = 0
        for line in map(filed, trail.pending if trail is not None else ()):
            existing = await self.kube.get(
                "ConfigMap", owner.namespace, names.history_name(owner.name, line.number)
            )
            if existing is None or (existing.get("data") or {}).get(names.LINE_KEY) != line.text:
                break
            last = line.number
        return last

    async def file(self, owner: Owner, trail: Trail | None) -> None:
        """Write the pending lines. One that is there already stays as it is. Raises ClusterError where
        another one has its number."""
        for line in map(filed, trail.pending if trail is not None else ()):
            body = history_config_map(owner, line)
            if await self.kube.create(body) is None:
                name = body["metadata"]["name"]
                existing = await self.kube.get("ConfigMap", owner.namespace, name)
                if existing is not None and (existing.get("data") or {}).get(names.LINE_KEY) != line.text:
                    self._moved.add(owner.uid)
                    raise ClusterError(
                        "another line of the history has this number; it goes on after it",
                        where=f"ConfigMap {owner.namespace}/{name}",
                        fix=f"See what is there: kubectl combee playbook history {owner.name} --verify",
                        status=409,
                    )
                if existing is None:
                    raise ClusterError("deleted just now", where=f"ConfigMap {name}", status=409)
