"""Make a PlaybookPlan true. Every write is asked of the fence first, and harmless when it is made twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from combee import names
from combee.api.playbook import PlaybookSpec
from combee.api.playbook_status import VersionStatus
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError
from combee.objects.playbooks import delivered_config_map, learning_run, shown
from combee.observe.playbooks import Observed, foreign
from combee.operator.statuspatch import status_patch
from combee.plan.playbook.types import Delivery, PlaybookPlan
from combee.records import Owner


@dataclass(slots=True)
class PlaybookExecutor:
    """Writes what a Playbook asks for."""

    kube: Kube
    fence: Callable[[], None]
    """raises unless we may write."""

    async def versions(self, plan: PlaybookPlan, there: Observed) -> None:
        """The statuses of the versions that differ from what was seen; then the judged pairs that are in them go."""
        for name, status in plan.versions.items():
            await self._status(there.versions[name], status)
        for name in there.judged:
            self.fence()
            await self.kube.delete("ConfigMap", _namespace(there), name)

    async def _status(self, raw: Object, status: VersionStatus) -> None:
        patch = status_patch(raw, status.dump())
        if patch is None:
            return
        self.fence()
        meta = raw["metadata"]
        await self.kube.patch(
            names.PLAYBOOK_VERSION_KIND, meta["namespace"], meta["name"], patch, part="status"
        )

    async def deliver(self, wish: Delivery, owner: Owner, spec: PlaybookSpec, there: Observed) -> None:
        """The delivered ConfigMap holds what is active. It is changed in one write and never absent in between.

        ClusterError when the content is gone, or when the ConfigMap is somebody else's: what is there stays.
        """
        if wish.current and there.delivered is not None:
            return
        if there.delivered is not None and (error := foreign(there.delivered, owner.name)) is not None:
            raise error
        data = await self._content(owner.namespace, wish)
        owned = spec.delivery.deletion_policy == "Delete"
        body = delivered_config_map(owner, wish.config_map, wish.digest, data, owned=owned)
        self.fence()
        if there.delivered is None:
            if await self.kube.create(body) is None:
                raise ClusterError(
                    "made by another just now", where=f"ConfigMap {wish.config_map}", status=409
                )
            return
        old: Mapping[str, Any] = there.delivered.get("data") or {}
        body["metadata"]["resourceVersion"] = there.delivered["metadata"]["resourceVersion"]
        body["data"] = dict.fromkeys(old) | body["data"]
        if there.delivered.get("binaryData"):
            body["binaryData"] = None
        await self.kube.patch("ConfigMap", owner.namespace, wish.config_map, body)

    async def _content(self, namespace: str, wish: Delivery) -> dict[str, str]:
        if not wish.digest:
            return shown({})
        found = await self.kube.get("ConfigMap", namespace, wish.source)
        if found is None:
            raise ClusterError(
                "the content of the active version is gone; what was delivered stays",
                where=f"ConfigMap {namespace}/{wish.source}",
                fix="Apply it again from a backup, or roll back to another version",
            )
        return shown(found.get("data") or {})

    async def make(self, plan: PlaybookPlan, owner: Owner) -> None:
        """Runs that are wished for; one that is there by that name stays as it is."""
        for run in plan.runs:
            self.fence()
            await self.kube.create(learning_run(owner, run.name, run.spec))

    async def prune(self, plan: PlaybookPlan, owner: Owner, there: Observed) -> None:
        """Versions and runs beyond their limits; a version goes after its content, so that none is left without
        a record."""
        for name in plan.prune_versions:
            raw = there.versions[name]
            self.fence()
            await self.kube.delete("ConfigMap", owner.namespace, raw["spec"]["configMapName"])
            await self.kube.delete(
                names.PLAYBOOK_VERSION_KIND, owner.namespace, name, uid=raw["metadata"]["uid"]
            )
        for name in plan.prune_contents:
            self.fence()
            await self.kube.delete(
                "ConfigMap", owner.namespace, there.versions[name]["spec"]["configMapName"]
            )
        for name in plan.prune_runs:
            self.fence()
            await self.kube.delete(
                names.RUN_KIND, owner.namespace, name, uid=there.runs[name]["metadata"]["uid"]
            )


def _namespace(there: Observed) -> str:
    return str(next(iter(there.versions.values()))["metadata"]["namespace"])
