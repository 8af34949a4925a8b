"""Builds the table that requests look at from what the API server holds: versions, upstreams, keys."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from combee.api.gateway import Gateway, TokenReview
from combee.clients.kubernetes.kube import Kube, Object
from combee.clients.kubernetes.mirror import Mirror
from combee.errors import CombeeError
from combee.gateway.keys import Reviewed, SecretKeys
from combee.gateway.metrics import Metrics
from combee.gateway.page.views import Seen
from combee.gateway.spool import Place
from combee.gateway.table import NOTHING, Check, Limits, Mirroring, Route, Served, Table, TrafficComparison
from combee.names import (
    DIGEST_ANNOTATION,
    METHOD_KEY,
    PLAYBOOK_KIND,
    PLAYBOOK_VERSION_KIND,
    PROMPT_KEY,
    RETRIEVAL_KEY,
    SERVED_KEYS,
)
from combee.plan.playbook.authentic import refuse_replaced
from combee.plan.playbook.serving import Version, Wanted, ranking
from combee.plan.playbook.watch import mirrors
from combee.times import rfc3339
from combee.work.traffic.rewrite import preface_of

log = logging.getLogger(__name__)
LOOK_AGAIN_SECONDS = 5.0
"""Mounted Secrets are read again, and what could not be fetched is tried again, after this time."""
HELD_READY = 3
"""number of best versions whose content is fetched ahead, so that switching to them needs no request."""
_DEFAULTS = {name: value for name, value in Gateway().dump().items() if isinstance(value, dict)}
"""limits, capture, shadow and page of a Playbook that says nothing of them."""
_COMPARISON_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,127}")


@dataclass(frozen=True, slots=True)
class Published:
    """A version's text, and what its ConfigMap says of it: the method that made it, how much is shown."""

    text: str
    method: str = ""
    retrieval: str = ""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is remembered of a Playbook: its gateway, the standing of its versions, its canary."""

    gateway: Mapping[str, Any]
    wanted: Wanted
    shadows: bool
    """whether its canary, or the watch after it, compares mirrored requests."""
    raw: Object = field(default_factory=dict)
    """the object, for the page."""

    @classmethod
    def of(cls, playbook: Object) -> Wish:
        """Read a Playbook as the API server returns it, with defaults filled in."""
        spec = playbook.get("spec") or {}
        gateway = (spec.get("delivery") or {}).get("gateway") or {}
        filled = {name: default | (gateway.get(name) or {}) for name, default in _DEFAULTS.items()}
        return cls(
            gateway={**gateway, **filled},
            wanted=Wanted.of(playbook),
            shadows=mirrors(spec.get("canary")),
            raw=_shown(playbook),
        )


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of a version: its Playbook, its standing, its comparison on traffic."""

    playbook: str
    version: Version
    comparison: Mapping[str, Any]
    raw: Object = field(default_factory=dict)
    """the object, for the page."""

    @classmethod
    def of(cls, version: Object) -> Known:
        """Read a version as the API server returns it."""
        comparison = (version.get("status") or {}).get("test") or {}
        playbook = str(version["spec"]["playbookRef"]["name"])
        return cls(playbook, Version.of(version), comparison, _shown(version))


@dataclass(slots=True)
class Secrets:
    """Mounted Secrets, ``upstream/<playbook>/<key>`` and ``keys/<playbook>/<key>``, which change with the
    cluster's."""

    root: Path

    def upstream_key(self, playbook: str, key: str) -> str:
        """Return the upstream's key, or an empty string when it is missing."""
        return self._read(self.root / "upstream" / playbook / key)

    def values(self, use: str, playbook: str) -> tuple[tuple[str, str], ...]:
        """Return names and values of the Secret mounted for ``use``; entries without a value are left out."""
        folder = self.root / use / playbook
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        # The kubelet's own entries (..data) begin with dots.
        entries = ((file.name, self._read(file)) for file in files if not file.name.startswith(".."))
        return tuple((name, value) for name, value in entries if value)

    def keys(self, playbook: str) -> tuple[str, ...]:
        """Return the keys that are let in."""
        return tuple(value for _, value in self.values("keys", playbook))

    def _read(self, file: Path) -> str:
        try:
            return file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""


@dataclass(slots=True)
class Director:
    """Keeps ``table`` up to date. A failure here never takes away what is already served."""

    kube: Kube
    namespace: str
    secrets: Secrets
    metrics: Metrics
    traffic: Path = Path("/traffic")
    """folder that holds the mounted claims for traffic, one per Playbook."""
    table: Table = field(default_factory=Table)
    playbooks: Mirror[Wish] = field(init=False)
    versions: Mirror[Known] = field(init=False)
    _contents: dict[str, Served] = field(default_factory=dict)
    _keys: dict[str, tuple[object, Check]] = field(default_factory=dict)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _problems: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wake = self._woken.set
        self.playbooks = Mirror(self.kube, PLAYBOOK_KIND, self.namespace, Wish.of, wake)
        self.versions = Mirror(self.kube, PLAYBOOK_VERSION_KIND, self.namespace, Known.of, wake)

    async def run(self) -> None:
        """Watch the Playbooks and versions and keep the table up to date, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.playbooks.run())
            tasks.create_task(self.versions.run())
            while True:
                if self.playbooks.known and self.versions.known:
                    await self.settle()
                for kind, mirror in ((PLAYBOOK_KIND, self.playbooks), (PLAYBOOK_VERSION_KIND, self.versions)):
                    self.metrics.watching.labels(kind).set(mirror.watching)
                try:
                    await asyncio.wait_for(self._woken.wait(), LOOK_AGAIN_SECONDS)
                except TimeoutError:
                    pass

    async def settle(self) -> None:
        """Rebuild the table from what is known: first from what is at hand, so that a refusal takes effect at
        once, then with what had to be fetched."""
        self._woken.clear()
        if self.table.known:
            self._publish()
        if await self._fetch() or not self.table.known:
            self._publish()

    def _publish(self) -> None:
        routes = {
            name: self._route(name, wish)
            for name, wish in self.playbooks.objects.items()
            if wish.gateway.get("enabled")
        }
        for name in {*routes, *self.table.routes}:
            before, after = _digest(self.table.routes.get(name)), _digest(routes.get(name))
            if before != after:
                self.metrics.switched(name, before, after)
                log.info("switched", extra={"playbook": name, "before": before[:12], "after": after[:12]})
            problem = routes[name].problem if name in routes else ""
            if problem != self._problems.get(name, ""):
                self._problems[name] = problem
                log.warning(
                    "not served" if problem else "served again", extra={"playbook": name, "why": problem}
                )
        self.table = Table(routes, known=True)

    def _route(self, name: str, wish: Wish) -> Route:
        gateway, upstream = wish.gateway, wish.gateway.get("upstream") or {}
        entries = self._of(name)
        versions = [entry.version for entry in entries]
        order = ranking(wish.wanted, versions)
        served = self._at_hand(name, wish.wanted, versions)
        key_ref = upstream.get("apiKeySecretRef")
        upstream_key = self.secrets.upstream_key(name, str(key_ref["key"])) if key_ref else ""
        problem = "" if upstream.get("url") else "spec.delivery.gateway.upstream is missing"
        if key_ref and not upstream_key:
            problem = f"the Secret {key_ref['name']} with the upstream's key is not there, "
            problem += f"or has no {key_ref['key']}"
        if order and not served.digest:
            problem = f"the content of version {order[0][:12]} cannot be read"
        return Route(
            playbook=name,
            served=served,
            upstream=str(upstream.get("url") or "").rstrip("/"),
            upstream_key=upstream_key,
            allowed=self._check(name, gateway.get("keys") or {}),
            model=str(upstream.get("model") or ""),
            limits=_limits(gateway["limits"]),
            mirroring=self._mirroring(name, wish, served, entries),
            problem=problem,
            page=bool(gateway["page"]["enabled"]),
        )

    def _at_hand(self, name: str, wanted: Wanted, versions: Sequence[Version]) -> Served:
        """Return the best version whose content is here. While the best of all is being fetched, the served
        version stays, unless it was refused."""
        order = ranking(wanted, versions)
        if not order or order[0] in self._contents:
            return self._contents[order[0]] if order else NOTHING
        route = self.table.routes.get(name)
        if route is not None:
            current = Wanted(active=route.served.digest, refused=wanted.refused)
            if route.served.digest in ranking(current, versions):
                return route.served
        return next((self._contents[digest] for digest in order if digest in self._contents), NOTHING)

    def _mirroring(self, name: str, wish: Wish, served: Served, entries: Iterable[Known]) -> Mirroring | None:
        capture, shadow = wish.gateway["capture"], wish.gateway["shadow"]
        comparisons = self._comparisons(served, entries) if wish.shadows else ()
        captured = float(capture["percent"]) / 100 if capture["enabled"] else 0.0
        if not comparisons and not captured:
            return None
        return Mirroring(
            place=self._place(name, capture),
            comparisons=comparisons,
            captured_share=captured,
            queue=int(shadow["queue"]),
            concurrency=int(shadow["concurrency"]),
            deadline_seconds=float(shadow["deadlineSeconds"]),
        )

    def _comparisons(self, served: Served, entries: Iterable[Known]) -> tuple[TrafficComparison, ...]:
        """Return the comparisons in which one version is served and the content of the other is here."""
        now, comparisons = rfc3339(time.time()), []
        for entry in entries:
            status = entry.comparison
            pair = entry.version.digest, str(status.get("against") or "")
            if (
                status.get("mode") != "Shadow"
                or served.digest not in pair
                or now > str(status.get("until") or "9")
            ):
                continue
            other = self._contents.get(pair[pair[0] == served.digest])
            if other is None or not _COMPARISON_ID.fullmatch(str(status.get("id"))):
                continue
            share = float(status.get("trafficPercent", 0)) / 100
            comparisons.append(TrafficComparison(str(status["id"]), *pair, share, other))
        return tuple(comparisons)

    def _place(self, name: str, capture: Mapping[str, Any]) -> Place:
        store = capture.get("store") or {}
        return Place(
            uri=str(store.get("uri") or self.traffic / name),
            secret=self.secrets.values("store", name) if store.get("secretRef") else (),
            retention_seconds=float(capture["retentionSeconds"]),
        )

    def places(self) -> dict[str, Place]:
        """Return where the traffic of each Playbook is or was recorded, as far as this pod can reach it."""
        places = {}
        for name, wish in self.playbooks.objects.items():
            capture = wish.gateway["capture"]
            place = self._place(name, capture)
            keyed = (capture.get("store") or {}).get("secretRef") is not None
            if wish.gateway.get("enabled") and (place.secret or not keyed):
                places[name] = place
        return places

    def _check(self, name: str, keys: Mapping[str, Any]) -> Check:
        """Return the previous check while its settings are the same: a review remembers its verdicts."""
        review = keys.get("tokenReview") or {}
        secret = keys.get("secretRef")
        source: object = self.secrets.keys(name) if secret else repr(review)
        cached = self._keys.get(name)
        if cached is not None and cached[0] == source:
            return cached[1]
        check: Check
        if secret:
            check = SecretKeys(self.secrets.keys(name))
        else:
            audiences = tuple(review.get("audiences") or TokenReview().audiences)
            accounts = frozenset(review.get("serviceAccounts") or ())
            check = Reviewed(self.kube, audiences, accounts, self.namespace)
        self._keys[name] = (source, check)
        return check

    def _of(self, playbook: str) -> list[Known]:
        return [version for version in self.versions.objects.values() if version.playbook == playbook]

    async def _fetch(self) -> bool:
        """Fetch the content of versions that are served or may soon be; return whether any is new."""
        versions: dict[str, Version] = {}
        for name, wish in self.playbooks.objects.items():
            if wish.gateway.get("enabled"):
                entries = self._of(name)
                known = {entry.version.digest: entry.version for entry in entries}
                order = list(ranking(wish.wanted, [entry.version for entry in entries])[:HELD_READY])
                for entry in entries if wish.shadows else ():
                    if entry.comparison:
                        order += [entry.version.digest, str(entry.comparison.get("against"))]
                wanted = (known[digest] for digest in order if digest in known)
                versions |= {version.digest: version for version in wanted if version.config_map}
        needed = set(versions) | {route.served.digest for route in self.table.routes.values()}
        self._contents = {digest: content for digest, content in self._contents.items() if digest in needed}
        missing = [version for digest, version in versions.items() if digest not in self._contents]
        contents = await asyncio.gather(*map(self._content, missing))
        self._contents |= {content.digest: content for content in contents if content is not None}
        return any(contents)

    async def _content(self, version: Version) -> Served | None:
        """Return a version, ready to be served; None when its content cannot be had."""
        try:
            if (one := await self.content(version)) is not None:
                # A large playbook takes a while to be taken apart, and requests do not wait for it.
                preface = await asyncio.to_thread(preface_of, one.text, one.method, one.retrieval)
                return Served(version.digest, preface)
            error = f"not in ConfigMap {version.config_map}"
        except CombeeError as problem:
            error = str(problem)
        log.warning("no content", extra={"digest": version.digest[:12], "error": error})
        return None

    async def content(self, version: Version) -> Published | None:
        """Return what a version's ConfigMap holds; None when it is gone or of another artifact. Raises
        ClusterError, and UserError when it was replaced."""
        stored = await self.kube.get("ConfigMap", self.namespace, version.config_map) or {}
        label = ((stored.get("metadata") or {}).get("annotations") or {}).get(DIGEST_ANNOTATION)
        data = stored.get("data") or {}
        text = data.get(PROMPT_KEY)
        if text is None or label != version.digest:
            return None
        where = f"ConfigMap {version.config_map}"
        refuse_replaced(data, version.content_digests, where, SERVED_KEYS)
        return Published(str(text), str(data.get(METHOD_KEY, "")), str(data.get(RETRIEVAL_KEY, "")))

    def seen(self, playbook: str) -> Seen:
        """Return a Playbook and its versions as the API server has them, for the page."""
        wish = self.playbooks.objects.get(playbook)
        return Seen(
            wish.raw if wish is not None else {}, tuple(version.raw for version in self._of(playbook))
        )


def _shown(raw: Object) -> Object:
    """Return an object without its managed fields, which are most of it."""
    meta = raw.get("metadata") or {}
    metadata = {name: meta[name] for name in ("name", "creationTimestamp") if name in meta}
    return {"metadata": metadata, "spec": raw.get("spec") or {}, "status": raw.get("status") or {}}


def _limits(limits: Mapping[str, Any]) -> Limits:
    return Limits(
        max_request_bytes=int(limits["maxRequestBytes"]),
        deadline_seconds=float(limits["deadlineSeconds"]),
        max_in_flight=int(limits["maxInFlight"]),
    )


def _digest(route: Route | None) -> str:
    return route.served.digest if route is not None else ""
