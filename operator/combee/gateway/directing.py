"""From what the API server holds to the table that requests look at: which version, which upstream, whose keys."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from combee.clients.kubernetes.kube import Kube, Object
from combee.clients.kubernetes.mirror import Mirror
from combee.errors import CombeeError
from combee.gateway.keys import Reviewed, SecretKeys
from combee.gateway.metrics import Metrics
from combee.gateway.page.views import Seen
from combee.gateway.spool import Place
from combee.gateway.table import NOTHING, Check, Limits, Mirroring, Route, Served, Table, TrafficTest
from combee.names import DIGEST_ANNOTATION, METHOD_KEY, PLAYBOOK_KEY, PLAYBOOK_KIND, PLAYBOOK_VERSION_KIND
from combee.plan.playbook.serving import Version, Wanted, ranking
from combee.times import rfc3339
from combee.work.traffic.rewrite import preface_of

log = logging.getLogger(__name__)
LOOK_AGAIN_SECONDS = 5.0
"""Mounted Secrets are read again, and what could not be fetched is asked for again."""
HELD_READY = 3
"""best versions whose content is fetched ahead: a switch to them needs no request."""
_TEST_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,127}")


@dataclass(frozen=True, slots=True)
class Published:
    """A version's text, and the method that made it where its ConfigMap names one."""

    text: str
    method: str = ""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is kept of a Playbook: its gateway, its versions' standing, its canary."""

    gateway: Mapping[str, Any]
    wanted: Wanted
    shadows: bool
    """whether its canary compares mirrored requests."""
    raw: Object = field(default_factory=dict)
    """the object, for the page."""

    @classmethod
    def of(cls, playbook: Object) -> Wish:
        """Read from the object as the API server has it; its defaults are filled in there."""
        spec = playbook.get("spec") or {}
        return cls(
            gateway=(spec.get("delivery") or {}).get("gateway") or {},
            wanted=Wanted.of(playbook),
            shadows=(spec.get("canary") or {}).get("mode") == "Shadow",
            raw=_shown(playbook),
        )


@dataclass(frozen=True, slots=True)
class Known:
    """What is kept of a version: whose it is, where it stands, the comparison on traffic that it is in."""

    playbook: str
    version: Version
    test: Mapping[str, Any]
    raw: Object = field(default_factory=dict)
    """the object, for the page."""

    @classmethod
    def of(cls, version: Object) -> Known:
        """Read from the object as the API server has it."""
        test = (version.get("status") or {}).get("test") or {}
        return cls(str(version["spec"]["playbookRef"]["name"]), Version.of(version), test, _shown(version))


@dataclass(slots=True)
class Secrets:
    """Mounted Secrets: ``upstream/<playbook>/<key>`` and ``keys/<playbook>/<key>``; they change with the cluster's."""

    root: Path

    def upstream_key(self, playbook: str, key: str) -> str:
        """The upstream's key; empty when it is not there."""
        return self._read(self.root / "upstream" / playbook / key)

    def values(self, use: str, playbook: str) -> tuple[tuple[str, str], ...]:
        """Keys and values of the Secret that is mounted for a use."""
        folder = self.root / use / playbook
        files = sorted(folder.iterdir()) if folder.is_dir() else []
        # The kubelet's own entries (..data) begin with dots.
        read = ((file.name, self._read(file)) for file in files if not file.name.startswith(".."))
        return tuple((name, value) for name, value in read if value)

    def keys(self, playbook: str) -> tuple[str, ...]:
        """The keys that are let in."""
        return tuple(value for _, value in self.values("keys", playbook))

    def _read(self, file: Path) -> str:
        try:
            return file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""


@dataclass(slots=True)
class Director:
    """Keeps ``table`` true. Nothing that fails here takes away what is served already."""

    kube: Kube
    namespace: str
    secrets: Secrets
    metrics: Metrics
    traffic: Path = Path("/traffic")
    """where claims that traffic is kept on are mounted, by Playbook."""
    table: Table = field(default_factory=Table)
    playbooks: Mirror[Wish] = field(init=False)
    versions: Mirror[Known] = field(init=False)
    _contents: dict[str, Served] = field(default_factory=dict)
    _keys: dict[str, tuple[object, Check]] = field(default_factory=dict)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _told: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wake = self._woken.set
        self.playbooks = Mirror(self.kube, PLAYBOOK_KIND, self.namespace, Wish.of, wake)
        self.versions = Mirror(self.kube, PLAYBOOK_VERSION_KIND, self.namespace, Known.of, wake)

    async def run(self) -> None:
        """For ever."""
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
        """Make a table of what is known now. Two passes: first what is at hand, so that a refusal waits
        for nothing; then what had to be fetched."""
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
            if problem != self._told.get(name, ""):
                self._told[name] = problem
                log.warning(
                    "not served" if problem else "served again", extra={"playbook": name, "why": problem}
                )
        self.table = Table(routes, known=True)

    def _route(self, name: str, wish: Wish) -> Route:
        gateway, upstream = wish.gateway, wish.gateway.get("upstream") or {}
        known = self._of(name)
        versions = [one.version for one in known]
        order = ranking(wish.wanted, versions)
        served = self._at_hand(name, wish.wanted, versions)
        key_ref = upstream.get("apiKeySecretRef")
        upstream_key = self.secrets.upstream_key(name, str(key_ref["key"])) if key_ref else ""
        problem = "" if upstream.get("url") else "spec.delivery.gateway.upstream is missing"
        if key_ref and not upstream_key:
            problem = f"the Secret {key_ref['name']} with the upstream's key is not there, or has no {key_ref['key']}"
        if order and not served.digest:
            problem = f"the content of version {order[0][:12]} cannot be read"
        return Route(
            playbook=name,
            served=served,
            upstream=str(upstream.get("url") or "").rstrip("/"),
            upstream_key=upstream_key,
            allowed=self._check(name, gateway.get("keys") or {}),
            limits=_limits(gateway.get("limits") or {}),
            mirroring=self._mirroring(name, wish, served, known),
            problem=problem,
            page=bool((gateway.get("page") or {}).get("enabled", True)),
        )

    def _at_hand(self, name: str, wanted: Wanted, versions: Sequence[Version]) -> Served:
        """The best version whose content is here. While the best of all is being fetched, the one that is
        served stays, unless it was refused."""
        order = ranking(wanted, versions)
        if not order or order[0] in self._contents:
            return self._contents[order[0]] if order else NOTHING
        now = self.table.routes.get(name)
        if now is not None:
            kept = Wanted(active=now.served.digest, refused=wanted.refused)
            if now.served.digest in ranking(kept, versions):
                return now.served
        return next((self._contents[digest] for digest in order if digest in self._contents), NOTHING)

    def _mirroring(self, name: str, wish: Wish, served: Served, known: Iterable[Known]) -> Mirroring | None:
        capture, shadow = wish.gateway.get("capture") or {}, wish.gateway.get("shadow") or {}
        tests = self._tests(served, known) if wish.shadows else ()
        captured = float(capture.get("percent", 5.0)) / 100 if capture.get("enabled") else 0.0
        if not tests and not captured:
            return None
        return Mirroring(
            place=self._place(name, capture),
            tests=tests,
            captured_share=captured,
            queue=int(shadow.get("queue", 100)),
            concurrency=int(shadow.get("concurrency", 4)),
            deadline_seconds=float(shadow.get("deadlineSeconds", 120)),
        )

    def _tests(self, served: Served, known: Iterable[Known]) -> tuple[TrafficTest, ...]:
        """Tests of which one version is served and the other one's content is here."""
        now, found = rfc3339(time.time()), []
        for one in known:
            test = one.test
            pair = one.version.digest, str(test.get("against") or "")
            if (
                test.get("mode") != "Shadow"
                or served.digest not in pair
                or now > str(test.get("until") or "9")
            ):
                continue
            other = self._contents.get(pair[pair[0] == served.digest])
            if other is None or not _TEST_ID.fullmatch(str(test.get("id"))):
                continue
            share = float(test.get("trafficPercent", 0)) / 100
            found.append(TrafficTest(str(test["id"]), *pair, share, other))
        return tuple(found)

    def _place(self, name: str, capture: Mapping[str, Any]) -> Place:
        store = capture.get("store") or {}
        return Place(
            uri=str(store.get("uri") or self.traffic / name),
            secret=self.secrets.values("store", name) if store.get("secretRef") else (),
            retention_seconds=float(capture.get("retentionSeconds", 604_800)),
        )

    def places(self) -> dict[str, Place]:
        """Where traffic of each Playbook is kept, or was when more of it was asked for: as far as this pod has it."""
        found = {}
        for name, wish in self.playbooks.objects.items():
            capture = wish.gateway.get("capture") or {}
            place = self._place(name, capture)
            keyed = (capture.get("store") or {}).get("secretRef") is not None
            if wish.gateway.get("enabled") and (place.secret or not keyed):
                found[name] = place
        return found

    def _check(self, name: str, keys: Mapping[str, Any]) -> Check:
        """The same check as long as it would be an equal one: a review remembers what it was told."""
        review = keys.get("tokenReview") or {}
        secret = keys.get("secretRef")
        made_of: object = self.secrets.keys(name) if secret else repr(review)
        held = self._keys.get(name)
        if held is not None and held[0] == made_of:
            return held[1]
        check: Check
        if secret:
            check = SecretKeys(self.secrets.keys(name))
        else:
            audiences = tuple(review.get("audiences") or ("combee-gateway",))
            accounts = frozenset(review.get("serviceAccounts") or ())
            check = Reviewed(self.kube, audiences, accounts, self.namespace)
        self._keys[name] = (made_of, check)
        return check

    def _of(self, playbook: str) -> list[Known]:
        return [one for one in self.versions.objects.values() if one.playbook == playbook]

    async def _fetch(self) -> bool:
        """Get the content of versions that are served or may soon be; whether there is anything new."""
        wanted: dict[str, str] = {}
        for name, wish in self.playbooks.objects.items():
            if wish.gateway.get("enabled"):
                known = self._of(name)
                maps = {one.version.digest: one.version.config_map for one in known}
                order = list(ranking(wish.wanted, [one.version for one in known])[:HELD_READY])
                for one in known if wish.shadows else ():
                    order += [one.version.digest, str(one.test.get("against"))] if one.test else []
                wanted |= {digest: maps[digest] for digest in order if maps.get(digest)}
        kept = set(wanted) | {route.served.digest for route in self.table.routes.values()}
        self._contents = {digest: held for digest, held in self._contents.items() if digest in kept}
        missing = [digest for digest in wanted if digest not in self._contents]
        got = await asyncio.gather(*(self._content(digest, wanted[digest]) for digest in missing))
        self._contents |= {one.digest: one for one in got if one is not None}
        return any(got)

    async def _content(self, digest: str, config_map: str) -> Served | None:
        """A version, ready to be served; None when its content cannot be had."""
        try:
            found, error = await self.content(digest, config_map), f"not in ConfigMap {config_map}"
        except CombeeError as problem:
            found, error = None, str(problem)
        if found is None:
            log.warning("no content", extra={"digest": digest[:12], "error": error})
            return None
        return Served(digest, preface_of(found.text, found.method))

    async def content(self, digest: str, config_map: str) -> Published | None:
        """What the ConfigMap of a version holds; None when it is gone or another artifact's. ClusterError."""
        found = await self.kube.get("ConfigMap", self.namespace, config_map) or {}
        held = ((found.get("metadata") or {}).get("annotations") or {}).get(DIGEST_ANNOTATION)
        data = found.get("data") or {}
        text = data.get(PLAYBOOK_KEY)
        return None if text is None or held != digest else Published(str(text), str(data.get(METHOD_KEY, "")))

    async def text(self, digest: str, config_map: str) -> str | None:
        """The text alone, for the page."""
        found = await self.content(digest, config_map)
        return None if found is None else found.text

    def seen(self, playbook: str) -> Seen:
        """A Playbook and its versions as the API server has them, for the page."""
        wish = self.playbooks.objects.get(playbook)
        return Seen(wish.raw if wish is not None else {}, tuple(one.raw for one in self._of(playbook)))


def _shown(raw: Object) -> Object:
    """An object without the bookkeeping of who wrote which field, which is most of it."""
    meta = raw.get("metadata") or {}
    kept = {name: meta[name] for name in ("name", "creationTimestamp") if name in meta}
    return {"metadata": kept, "spec": raw.get("spec") or {}, "status": raw.get("status") or {}}


def _limits(given: Mapping[str, Any]) -> Limits:
    return Limits(
        max_request_bytes=int(given.get("maxRequestBytes", 10_485_760)),
        deadline_seconds=float(given.get("deadlineSeconds", 600)),
        max_in_flight=int(given.get("maxInFlight", 1000)),
    )


def _digest(route: Route | None) -> str:
    return route.served.digest if route is not None else ""
