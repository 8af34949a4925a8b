"""Read a Playbook's objects: its versions and their content, its runs, the delivered ConfigMap, the judged
pairs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from combee import names
from combee.api.playbook import PlaybookSpec, VersionSpec
from combee.api.playbook_status import VersionStatus
from combee.api.status import Phase
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError, UserError
from combee.methods.findings import Finding, findings, findings_from
from combee.objects.meta import owned
from combee.objects.playbooks import data_digest
from combee.observe.judged import Judged
from combee.plan.gatescores import GateScores
from combee.plan.playbook.authentic import content_digests, differing, replaced
from combee.plan.playbook.serving import Version
from combee.plan.playbook.types import PlaybookSeen, RunSeen, VersionSeen
from combee.records import Owner

MAX_REMEMBERED = 256
NO_JUDGES: Mapping[str, Collection[str]] = {}


@dataclass(frozen=True, slots=True)
class Content:
    """The part of a version's immutable ConfigMap that decisions need."""

    gate: GateScores | None
    findings: tuple[Finding, ...]
    digests: Mapping[str, str] = field(default_factory=dict)
    """key -> the digest of what is there."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The facts of one tick, and the objects that they were read from, by name."""

    seen: PlaybookSeen
    versions: dict[str, Object]
    delivered: Object | None
    runs: dict[str, Object] = field(default_factory=dict)
    judged: tuple[str, ...] = ()
    """The ConfigMaps of judged pairs that are in ``seen``, or that nobody waits for: they can be deleted once
    the tally is written."""
    more: bool = False
    """Whether there are more ConfigMaps of judged pairs than one tick reads."""
    tampered: bool = False
    """Whether somebody changed what services mount."""
    forged: tuple[str, ...] = ()
    """The ConfigMaps of judged pairs that no judge of this Playbook made; they are in ``judged``, too."""


@dataclass(slots=True)
class PlaybookObserver:
    """Reads Playbooks from a cluster, and remembers the content of immutable ConfigMaps."""

    kube: Kube
    _contents: dict[str, Content] = field(default_factory=dict)
    """The uid of a ConfigMap -> its content."""

    async def see(
        self,
        owner: Owner,
        spec: PlaybookSpec,
        now: float,
        job_uids: Mapping[str, Collection[str]] = NO_JUDGES,
        active: str = "",
    ) -> Observed:
        """Return the facts of one tick. This takes about four requests, and one more for each version whose
        content was not read before. ``job_uids``: as ``Judged.of`` takes them; ``active``: the digest of what
        was delivered last."""
        selector = f"{names.LABEL_PLAYBOOK}={names.playbook_label(owner.name)}"
        versions, metas, config_map, runs = await asyncio.gather(
            self._versions(owner),
            self.kube.list("ConfigMap", owner.namespace, labels=selector, bare=True),
            self.kube.get("ConfigMap", owner.namespace, delivered(owner.name, spec)),
            self._runs(owner, selector) if spec.learn is not None else _nothing(),
        )
        metas_by_name = {meta["metadata"]["name"]: meta["metadata"] for meta in metas}
        judged = Judged.of(metas, versions, job_uids)
        pinned = spec.version.pinned_digest or ""
        opaque = [version for version in versions if not _readable(version)]
        versions_seen = await asyncio.gather(
            *(self._version(version, metas_by_name, pinned) for version in versions if _readable(version))
        )
        results = await judged.read(self.kube, owner.namespace)
        return Observed(
            seen=PlaybookSeen(
                now=now,
                versions=tuple(versions_seen),
                opaque=tuple(map(Version.of, opaque)),
                runs=tuple(map(run_seen, runs)),
                delivered=None if config_map is None else digest_of(config_map["metadata"]),
                altered=config_map is not None and altered(config_map, versions, active),
                pairs=results.pairs,
                left_out=results.left_out,
                readings=results.readings,
                job_uids=job_uids,
            ),
            versions={version["metadata"]["name"]: version for version in versions},
            delivered=config_map,
            runs={run["metadata"]["name"]: run for run in runs},
            judged=(*judged.names, *judged.stale) if versions else (),
            more=judged.more,
            tampered=config_map is not None and tampered(config_map, versions, active),
            forged=judged.foreign,
        )

    async def _versions(self, owner: Owner) -> list[Object]:
        versions = await self.kube.list(names.PLAYBOOK_VERSION_KIND, owner.namespace)
        return [version for version in versions if version["spec"]["playbookRef"]["name"] == owner.name]

    async def _runs(self, owner: Owner, selector: str) -> list[Object]:
        runs = await self.kube.list(names.RUN_KIND, owner.namespace, labels=selector)
        return [run for run in runs if owned(run, owner)]

    async def _version(self, raw: Object, metas_by_name: dict[str, Object], pinned: str) -> VersionSeen:
        """Return the facts of a version. A refused one that neither a decision nor a pin names will not be
        served, so only the existence of its content is checked: such versions grow in number without
        limit."""
        spec = VersionSpec.model_validate(raw["spec"])
        status = VersionStatus.model_validate(raw.get("status") or {})
        meta = raw["metadata"]
        content, wrong = None, tuple[str, ...]()
        settled = status.phase == "Refused" and spec.decision != "Promote" and spec.digest != pinned
        if not settled:
            content, wrong = await self._content(meta["namespace"], spec, metas_by_name)
        content_meta = metas_by_name.get(spec.config_map_name) if settled else None
        return VersionSeen(
            name=meta["name"],
            generation=meta.get("generation", 0),
            created=meta["creationTimestamp"],
            spec=spec,
            status=status,
            has_content=content is not None
            or (content_meta is not None and digest_of(content_meta) == spec.digest),
            gate=content.gate if content else None,
            findings=content.findings if content else None,
            replaced=wrong,
            decided_by=writer_of(meta, ("spec", "decision")),
        )

    async def _content(
        self, namespace: str, spec: VersionSpec, metas_by_name: dict[str, Object]
    ) -> tuple[Content | None, tuple[str, ...]]:
        """Return the content of a version's ConfigMap, and which keys of it were replaced; no content where
        any was, where there is none, or where it says that it holds another artifact. Of a version with
        digests a wrong note counts as replaced, too: whoever replaces a text can change it along."""
        meta = metas_by_name.get(spec.config_map_name)
        content = None if meta is None else self._contents.get(meta["uid"])
        if meta is None or content is None:
            config_map = await self.kube.get("ConfigMap", namespace, spec.config_map_name)
            if config_map is None:
                return None, ()
            meta, content = config_map["metadata"], read_content(config_map)
            if config_map.get("immutable"):
                if len(self._contents) >= MAX_REMEMBERED:
                    self._contents.pop(next(iter(self._contents)))
                self._contents[meta["uid"]] = content
        else:
            # Moved to the end, since the least recently used content is dropped first.
            self._contents[meta["uid"]] = self._contents.pop(meta["uid"])
        noted = digest_of(meta) == spec.digest
        wrong = differing(content.digests, spec.content_digests)
        if spec.content_digests and not noted:
            wrong = (*wrong, names.DIGEST_ANNOTATION)
        return (content if noted and not wrong else None), wrong


def _readable(raw: Object) -> bool:
    """Return whether this release can read a version, which a later release may have made."""
    try:
        VersionSpec.model_validate(raw["spec"])
        VersionStatus.model_validate(raw.get("status") or {})
    except ValidationError:
        return False
    return True


def unreadable(observed: Observed) -> ClusterError | None:
    """Return an error that names the versions which this release cannot read; None when there are none."""
    digests = {version.digest for version in observed.seen.opaque}
    unread = [
        name for name, version in observed.versions.items() if str(version["spec"].get("digest")) in digests
    ]
    if not unread:
        return None
    return ClusterError(
        "this release of the operator cannot read it, so it stays as it is",
        where=f"{names.PLAYBOOK_VERSION_KIND} {', '.join(sorted(unread))}",
        fix="Install the release that made it, or delete it where it is not needed",
    )


def run_seen(raw: Object) -> RunSeen:
    """Return a run made from the template in the form for ``decide_playbook``."""
    status, meta = raw.get("status") or {}, raw["metadata"]
    over = any(status.get("phase") == member.value and member.over for member in Phase)
    without_version = over and status.get("gate") is not None and not status.get("published")
    looked_at = (status.get("heldOut") or {}).get("digest", "") if without_version else ""
    return RunSeen(meta["name"], meta["creationTimestamp"], over=over, looked_at=str(looked_at))


def delivered(playbook: str, spec: PlaybookSpec) -> str:
    """Return the name of the ConfigMap that services mount."""
    ref = spec.delivery.config_map
    return names.delivered_name(playbook, ref.name if ref is not None else "")


def digest_of(meta: Object) -> str:
    """Return the digest of the artifact in a ConfigMap, from its annotation; empty without one."""
    return str((meta.get("annotations") or {}).get(names.DIGEST_ANNOTATION, ""))


def writer_of(meta: Object, path: Iterable[str]) -> str:
    """Return the program that last wrote a field, and when, as the API server keeps them in managedFields;
    empty where it does not say so, as of a default.

    >>> entry = {"manager": "kubectl", "time": "t1", "fieldsV1": {"f:spec": {"f:decision": {}}}}
    >>> writer_of({"managedFields": [entry]}, ["spec", "decision"])
    'kubectl at t1'
    """

    def wrote(entry: Object) -> bool:
        fields: Any = entry.get("fieldsV1")
        for part in path:
            fields = fields.get(f"f:{part}") if isinstance(fields, dict) else None
        return fields is not None

    writers = [entry for entry in meta.get("managedFields") or () if wrote(entry)]
    last = max(writers, key=lambda entry: str(entry.get("time", "")), default=None)
    return "" if last is None else f"{last.get('manager') or 'unknown'} at {last.get('time', '')}"


def altered(delivered: Object, versions: Iterable[Object] = (), active: str = "") -> bool:
    """Return whether the delivered ConfigMap is not as it was written. One that an earlier release wrote,
    without a digest of its data, counts as changed."""
    return tampered(delivered, versions, active) or names.DATA_ANNOTATION not in _annotations(delivered)


def tampered(delivered: Object, versions: Iterable[Object] = (), active: str = "") -> bool:
    """Return whether somebody changed the delivered ConfigMap: by its own note, and by the spec of the one of
    ``versions`` that it says it holds, which nobody can change along with it. One that holds none of them
    was changed where the version that was delivered last, ``active``, has digests."""
    held, data = digest_of(delivered["metadata"]), delivered.get("data") or {}
    by_digest = {one.digest: one for one in map(Version.of, versions) if one.digest}
    if held not in by_digest and active in by_digest and by_digest[active].content_digests:
        return True
    published = by_digest.get(held, Version(""))
    noted = _annotations(delivered).get(names.DATA_ANNOTATION)
    changed = noted is not None and noted != data_digest(data, delivered.get("binaryData"))
    more = bool(published.content_digests and delivered.get("binaryData"))
    return changed or more or bool(replaced(data, published.content_digests, {*names.SHOWN_KEYS, *data}))


def _annotations(config_map: Object) -> Mapping[str, str]:
    return config_map["metadata"].get("annotations") or {}


def read_content(config_map: Object) -> Content:
    """Return the content of a version's ConfigMap. Unreadable scores count as absent; unreadable findings
    count as a finding."""
    data: dict[str, Any] = config_map.get("data") or {}
    text = data.get(names.GATE_KEY)
    try:
        gate = None if text is None else GateScores.from_json(text)
    except UserError:
        gate = None
    problems = findings(str(data.get(names.PROMPT_KEY, "")))
    try:
        problems += findings_from(str(data.get(names.FINDINGS_KEY, "[]")))
    except UserError as error:
        problems += (Finding("leak", names.FINDINGS_KEY, error.what),)
    return Content(gate, problems, content_digests(data))


async def _nothing() -> list[Object]:
    return []


def foreign(delivered: Object, playbook: str) -> ClusterError | None:
    """Return an error when the ConfigMap to deliver into is not the operator's, or is another Playbook's."""
    meta = delivered["metadata"]
    labels = meta.get("labels") or {}
    where = f"ConfigMap {meta['namespace']}/{meta['name']}"
    if labels.get(names.LABEL_MANAGED_BY) != names.MANAGED_BY:
        return ClusterError(
            "a ConfigMap of this name is there that is not ours",
            where=where,
            fix=f"Delete or rename it, label it {names.LABEL_MANAGED_BY}={names.MANAGED_BY}, "
            "or choose another name in spec.delivery.configMap",
            status=409,
        )
    holder = labels.get(names.LABEL_PLAYBOOK, "")
    if holder not in ("", names.playbook_label(playbook)):
        return ClusterError(
            f"the Playbook {holder} is delivered there",
            where=where,
            fix="Choose another name in spec.delivery.configMap: two Playbooks cannot share one",
            status=409,
        )
    return None
