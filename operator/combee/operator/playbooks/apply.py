"""Carry out a PlaybookPlan. Every write may safely be repeated."""

from __future__ import annotations

from collections.abc import Mapping
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
from combee.plan.playbook.authentic import replaced
from combee.plan.playbook.serving import Version
from combee.plan.playbook.types import Delivery, PlaybookPlan
from combee.records import Owner


@dataclass(slots=True)
class PlaybookExecutor:
    """Writes the objects of Playbooks."""

    kube: Kube

    async def versions(self, plan: PlaybookPlan, observed: Observed) -> None:
        """Write the statuses of versions that differ from the observed ones, then delete the judged pairs
        that are folded into them."""
        for name, status in plan.versions.items():
            await self._status(observed.versions[name], status)
        for name in observed.judged:
            await self.kube.delete("ConfigMap", _namespace(observed), name)

    async def _status(self, raw: Object, status: VersionStatus) -> None:
        patch = status_patch(raw, status.dump())
        if patch is None:
            return
        meta = raw["metadata"]
        await self.kube.patch(
            names.PLAYBOOK_VERSION_KIND, meta["namespace"], meta["name"], patch, part="status"
        )

    async def deliver(self, wish: Delivery, owner: Owner, spec: PlaybookSpec, observed: Observed) -> None:
        """Write the active version into the delivered ConfigMap, in one write, so that it is never absent.

        Raises ClusterError when the content is gone, or when the ConfigMap is not this Playbook's; the
        ConfigMap then stays as it is.
        """
        if wish.current and observed.delivered is not None:
            return
        if observed.delivered is not None and (error := foreign(observed.delivered, owner.name)) is not None:
            raise error
        data = await self._content(owner.namespace, wish, observed)
        owned = spec.delivery.deletion_policy == "Delete"
        body = delivered_config_map(owner, wish.config_map, wish.digest, data, owned=owned)
        if observed.delivered is None:
            if await self.kube.create(body) is None:
                raise ClusterError(
                    "made by another just now", where=f"ConfigMap {wish.config_map}", status=409
                )
            return
        old: Mapping[str, Any] = observed.delivered.get("data") or {}
        body["metadata"]["resourceVersion"] = observed.delivered["metadata"]["resourceVersion"]
        body["data"] = dict.fromkeys(old) | body["data"]
        if observed.delivered.get("binaryData"):
            body["binaryData"] = None
        await self.kube.patch("ConfigMap", owner.namespace, wish.config_map, body)

    async def _content(self, namespace: str, wish: Delivery, observed: Observed) -> dict[str, str]:
        if not wish.digest:
            return shown({})
        config_map = await self.kube.get("ConfigMap", namespace, wish.source)
        if config_map is None:
            raise ClusterError(
                "the content of the active version is gone; what was delivered stays",
                where=f"ConfigMap {namespace}/{wish.source}",
                fix="Apply it again from a backup, or roll back to another version",
            )
        data = config_map.get("data") or {}
        published = next(
            one for one in map(Version.of, observed.versions.values()) if one.digest == wish.digest
        )
        if wrong := replaced(data, published.content_digests):
            raise ClusterError(
                f"{', '.join(wrong)} is not what its run published; what was delivered stays",
                where=f"ConfigMap {namespace}/{wish.source}",
                fix="See who may write ConfigMaps here; it is put back where that can be",
            )
        return shown(data)

    async def make(self, plan: PlaybookPlan, owner: Owner) -> None:
        """Make the planned runs; an existing run of the same name stays as it is."""
        for run in plan.runs:
            await self.kube.create(learning_run(owner, run.name, run.spec))

    async def prune(self, plan: PlaybookPlan, owner: Owner, observed: Observed) -> None:
        """Delete versions and runs beyond their limits. A version is deleted after its content, so that no
        content is left without a record."""
        for name in plan.prune_versions:
            raw = observed.versions[name]
            await self.kube.delete("ConfigMap", owner.namespace, raw["spec"]["configMapName"])
            await self.kube.delete(
                names.PLAYBOOK_VERSION_KIND, owner.namespace, name, uid=raw["metadata"]["uid"]
            )
        for name in plan.prune_contents:
            await self.kube.delete(
                "ConfigMap", owner.namespace, observed.versions[name]["spec"]["configMapName"]
            )
        for name in plan.prune_runs:
            await self.kube.delete(
                names.RUN_KIND, owner.namespace, name, uid=observed.runs[name]["metadata"]["uid"]
            )


def _namespace(observed: Observed) -> str:
    return str(next(iter(observed.versions.values()))["metadata"]["namespace"])
