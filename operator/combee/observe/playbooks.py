"""Read what there is of a Playbook: its versions and their content, its runs, what is delivered, what was judged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from combee import names
from combee.api.playbook import PlaybookSpec, VersionSpec
from combee.api.playbook_status import VersionStatus
from combee.api.status import Phase
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError, UserError
from combee.objects.playbooks import data_digest
from combee.observe.judged import Judged
from combee.observe.runs import owned
from combee.plan.gatescores import GateScores
from combee.plan.playbook.content import findings, findings_from
from combee.plan.playbook.serving import Version
from combee.plan.playbook.types import Finding, PlaybookSeen, RunSeen, VersionSeen
from combee.records import Owner

MAX_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class Content:
    """What a version's immutable ConfigMap says, as far as decisions need it."""

    gate: GateScores | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """One tick's facts, and the objects that they were read from, by name."""

    seen: PlaybookSeen
    versions: dict[str, Object]
    delivered: Object | None
    runs: dict[str, Object] = field(default_factory=dict)
    judged: tuple[str, ...] = ()
    """ConfigMaps of judged pairs that are in ``seen``, or that nobody waits for: they can go once the tally is
    written."""
    more: bool = False
    """whether there are more of them."""


@dataclass(slots=True)
class PlaybookObserver:
    """Reads Playbooks from a cluster. Remembers what immutable ConfigMaps say."""

    kube: Kube
    _contents: dict[str, Content] = field(default_factory=dict)
    """uid of a ConfigMap -> what it says."""

    async def see(self, owner: Owner, spec: PlaybookSpec, now: float) -> Observed:
        """Four requests or so, and one more for each version that was not looked at before."""
        mine = f"{names.LABEL_PLAYBOOK}={names.playbook_label(owner.name)}"
        versions, metas, there_now, runs = await asyncio.gather(
            self._versions(owner),
            self.kube.list("ConfigMap", owner.namespace, labels=mine, bare=True),
            self.kube.get("ConfigMap", owner.namespace, delivered(owner.name, spec)),
            self._runs(owner, mine) if spec.learn is not None else _nothing(),
        )
        there = {one["metadata"]["name"]: one["metadata"] for one in metas}
        judged = Judged.of(metas, versions)
        pinned = spec.version.pinned_digest or ""
        opaque = [one for one in versions if not _readable(one)]
        looked = await asyncio.gather(
            *(self._version(one, there, pinned) for one in versions if _readable(one))
        )
        brought = await judged.read(self.kube, owner.namespace)
        return Observed(
            seen=PlaybookSeen(
                now=now,
                versions=tuple(looked),
                opaque=tuple(map(Version.of, opaque)),
                runs=tuple(map(run_seen, runs)),
                delivered=None if there_now is None else digest_of(there_now["metadata"]),
                altered=there_now is not None and altered(there_now),
                pairs=brought.pairs,
                left_out=brought.left_out,
                readings=brought.readings,
            ),
            versions={one["metadata"]["name"]: one for one in versions},
            delivered=there_now,
            runs={one["metadata"]["name"]: one for one in runs},
            judged=(*judged.names, *judged.stale) if versions else (),
            more=judged.more,
        )

    async def _versions(self, owner: Owner) -> list[Object]:
        found = await self.kube.list(names.PLAYBOOK_VERSION_KIND, owner.namespace)
        return [one for one in found if one["spec"]["playbookRef"]["name"] == owner.name]

    async def _runs(self, owner: Owner, mine: str) -> list[Object]:
        found = await self.kube.list(names.RUN_KIND, owner.namespace, labels=mine)
        return [run for run in found if owned(run, owner)]

    async def _version(self, raw: Object, there: dict[str, Object], pinned: str) -> VersionSeen:
        """What is refused, and named by nobody, will not be served: whether its content is there is enough. There is
        no end of such versions."""
        spec = VersionSpec.model_validate(raw["spec"])
        status = VersionStatus.model_validate(raw.get("status") or {})
        meta = raw["metadata"]
        content: Content | None = None
        settled = status.phase == "Refused" and spec.decision != "Promote" and spec.digest != pinned
        if not settled:
            content = await self._content(meta["namespace"], spec, there)
        held = there.get(spec.config_map_name) if settled else None
        return VersionSeen(
            name=meta["name"],
            generation=meta.get("generation", 0),
            created=meta["creationTimestamp"],
            spec=spec,
            status=status,
            has_content=content is not None or (held is not None and digest_of(held) == spec.digest),
            gate=content.gate if content else None,
            findings=content.findings if content else None,
        )

    async def _content(self, namespace: str, spec: VersionSpec, there: dict[str, Object]) -> Content | None:
        """What the ConfigMap of a version says; None when there is none, or one of another artifact."""
        meta = there.get(spec.config_map_name)
        if meta is not None and (known := self._contents.get(meta["uid"])) is not None:
            # Those looked at least lately go first.
            self._contents[meta["uid"]] = self._contents.pop(meta["uid"])
            return known if digest_of(meta) == spec.digest else None
        found = await self.kube.get("ConfigMap", namespace, spec.config_map_name)
        if found is None or digest_of(found["metadata"]) != spec.digest:
            return None
        content = read_content(found)
        if found.get("immutable"):
            if len(self._contents) >= MAX_REMEMBERED:
                self._contents.pop(next(iter(self._contents)))
            self._contents[found["metadata"]["uid"]] = content
        return content


def _readable(raw: Object) -> bool:
    """Whether this release can read a version: a later one may have made it."""
    try:
        VersionSpec.model_validate(raw["spec"])
        VersionStatus.model_validate(raw.get("status") or {})
    except ValidationError:
        return False
    return True


def unreadable(there: Observed) -> ClusterError | None:
    """An error when there are versions that cannot be read."""
    digests = {one.digest for one in there.seen.opaque}
    found = [name for name, one in there.versions.items() if str(one["spec"].get("digest")) in digests]
    if not found:
        return None
    return ClusterError(
        "this release of the operator cannot read it, so it stays as it is",
        where=f"{names.PLAYBOOK_VERSION_KIND} {', '.join(sorted(found))}",
        fix="Install the release that made it, or delete it where it is not needed",
    )


def run_seen(raw: Object) -> RunSeen:
    """A run made from the template, as ``decide_playbook`` sees it."""
    phase = (raw.get("status") or {}).get("phase")
    meta = raw["metadata"]
    over = any(phase == one.value and one.over for one in Phase)
    return RunSeen(meta["name"], meta["creationTimestamp"], over=over)


def delivered(playbook: str, spec: PlaybookSpec) -> str:
    """Name of the ConfigMap that services mount."""
    ref = spec.delivery.config_map
    return names.delivered_name(playbook, ref.name if ref is not None else "")


def digest_of(meta: Object) -> str:
    """The artifact that a ConfigMap says it holds."""
    return str((meta.get("annotations") or {}).get(names.DIGEST_ANNOTATION, ""))


def altered(delivered: Object) -> bool:
    """Whether the delivered ConfigMap holds something else than what was written into it; also where an earlier
    release wrote it, which did not say."""
    said = (delivered["metadata"].get("annotations") or {}).get(names.DATA_ANNOTATION, "")
    return bool(said != data_digest(delivered.get("data") or {}, delivered.get("binaryData")))


def read_content(found: Object) -> Content:
    """What a version's ConfigMap says. Scores that cannot be read are as good as none; findings are not."""
    data: dict[str, Any] = found.get("data") or {}
    text = data.get(names.GATE_KEY)
    try:
        gate = None if text is None else GateScores.from_json(text)
    except UserError:
        gate = None
    wrong = findings(str(data.get(names.PLAYBOOK_KEY, "")))
    try:
        wrong += findings_from(str(data.get(names.FINDINGS_KEY, "[]")))
    except UserError as error:
        wrong += (Finding("leak", names.FINDINGS_KEY, error.what),)
    return Content(gate, wrong)


async def _nothing() -> list[Object]:
    return []


def foreign(delivered: Object, playbook: str) -> ClusterError | None:
    """An error when the ConfigMap to deliver into is somebody else's, or another Playbook's."""
    meta = delivered["metadata"]
    labels = meta.get("labels") or {}
    where = f"ConfigMap {meta['namespace']}/{meta['name']}"
    if labels.get(names.LABEL_MANAGED_BY) != names.MANAGED_BY:
        return ClusterError(
            "a ConfigMap of this name is there that is not ours",
            where=where,
            fix=f"Delete or rename it, label it {names.LABEL_MANAGED_BY}={names.MANAGED_BY}, or choose another name in "
            "spec.delivery.configMap",
            status=409,
        )
    other = labels.get(names.LABEL_PLAYBOOK, "")
    if other not in ("", names.playbook_label(playbook)):
        return ClusterError(
            f"the Playbook {other} is delivered there",
            where=where,
            fix="Choose another name in spec.delivery.configMap: two Playbooks cannot share one",
            status=409,
        )
    return None
