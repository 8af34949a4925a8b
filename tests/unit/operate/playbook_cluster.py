"""A Playbook, its versions and their ConfigMaps in a small API server, and the operator's tick over them."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

from combee import names
from combee.api.playbook import PlaybookSpec
from combee.errors import ClusterError
from combee.objects.types import Settings
from combee.objects.versions import version_labels
from combee.observe.nodes import Nodes
from combee.observe.playbooks import PlaybookObserver
from combee.operator.playbooks.apply import PlaybookExecutor
from combee.operator.playbooks.datawatch import DataWatch
from combee.operator.playbooks.history import History
from combee.operator.playbooks.judges import Judges
from combee.operator.playbooks.restore import Restorer
from combee.operator.playbooks.tick import PlaybookTicker
from combee.operator.tell import Teller
from combee.plan.gatescores import GateScores
from combee.records import Owner

Object = dict[str, Any]
NOW = 1_800_000_000.0
HELD_OUT = "e" * 64
KEY = ("team", "formula")
SPEC: Object = {"canary": {"waived": "a test of how plans are followed"}}


def digest_of(name: str) -> str:
    """``a`` -> 64 digits that begin with it."""
    return (name + "0" * 64)[:64]


@dataclass
class FakeKube:
    """Objects by kind and name, with resource versions, merge patches and selectors by label."""

    objects: dict[str, dict[str, Object]] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)
    """names of ConfigMaps got one by one."""
    conflicts: set[tuple[str, str]] = field(default_factory=set)
    """(kind, name) whose next patch finds that somebody else was there first."""
    versions: int = 0

    def of(self, kind: str) -> dict[str, Object]:
        return self.objects.setdefault(kind, {})

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        if kind == "ConfigMap":
            self.read.append(name)
        return copy.deepcopy(self.of(kind).get(name))

    async def list(
        self, kind: str, namespace: str, *, labels: str = "", fields: str = "", **_: Any
    ) -> list[Object]:
        asked = dict(one.split("=") for one in labels.split(",") if "=" in one)
        found = [
            o for o in self.of(kind).values() if asked.items() <= o["metadata"].get("labels", {}).items()
        ]
        return copy.deepcopy(found)

    async def create(self, body: Object) -> Object | None:
        name = body["metadata"]["name"]
        if name in self.of(body["kind"]):
            return None
        made = copy.deepcopy(body)
        made["metadata"] |= {"uid": f"uid-{self._next()}", "resourceVersion": self._next()}
        made["metadata"].setdefault(
            "creationTimestamp", f"2026-01-01T00:{self.versions // 60:02d}:{self.versions % 60:02d}Z"
        )
        self.of(body["kind"])[name] = made
        return copy.deepcopy(made)

    async def patch(
        self, kind: str, namespace: str, name: str, body: Object, *, part: str = ""
    ) -> Object | None:
        there = self.of(kind).get(name)
        if there is None:
            return None
        asked = body.get("metadata", {}).get("resourceVersion", there["metadata"]["resourceVersion"])
        if (kind, name) in self.conflicts or asked != there["metadata"]["resourceVersion"]:
            self.conflicts.discard((kind, name))
            raise ClusterError("the object has been modified", where=f"{kind} {name}", status=409)
        merged: Object = _merged(there, {"status": body["status"]} if part == "status" else body)
        merged["metadata"]["resourceVersion"] = self._next()
        self.of(kind)[name] = merged
        return copy.deepcopy(merged)

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> bool:
        return self.of(kind).pop(name, None) is not None

    def _next(self) -> str:
        self.versions += 1
        return str(self.versions)


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(new, dict):
        return copy.deepcopy(new)
    base = old if isinstance(old, dict) else {}
    kept = {k: v for k, v in base.items() if k not in new}
    return {**kept, **{k: _merged(base.get(k), v) for k, v in new.items() if v is not None}}


@dataclass
class Team:
    """A namespace with the Playbook ``formula``, which a tick is about."""

    kube: FakeKube = field(default_factory=FakeKube)
    now: float = NOW

    def __post_init__(self) -> None:
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.PLAYBOOK_KIND,
            "metadata": {
                "name": "formula",
                "namespace": "team",
                "uid": "u-1",
                "generation": 1,
                "resourceVersion": "0",
            },
            "spec": copy.deepcopy(SPEC),
        }
        self.kube.of(names.PLAYBOOK_KIND).setdefault("formula", body)
        kube: Any = self.kube
        self.observer = PlaybookObserver(kube)
        settings = Settings(worker_image="combee/worker:1", secret_policy=True)
        self.ticker = PlaybookTicker(
            kube,
            self.observer,
            PlaybookExecutor(kube),
            Teller(kube, "test"),
            Judges(kube, settings),
            DataWatch(kube, settings),
            Nodes(kube),
            History(kube),
            Restorer(kube, settings),
            clock=lambda: self.now,
        )

    @property
    def playbook(self) -> Object:
        return self.kube.of(names.PLAYBOOK_KIND)["formula"]

    @property
    def delivered(self) -> Object:
        return self.kube.of("ConfigMap")["formula-playbook"]

    @property
    def active(self) -> str:
        return str(self.playbook.get("status", {}).get("activeDigest", ""))[:1]

    def version(self, name: str) -> Object:
        return self.kube.of(names.PLAYBOOK_VERSION_KIND)[f"formula-{digest_of(name)[:12]}"]

    def content(self, name: str) -> Object:
        return self.kube.of("ConfigMap")[f"formula-{digest_of(name)[:12]}"]

    def spec(self, **spec: Any) -> Team:
        """Somebody applies another spec."""
        self.playbook["spec"] = {**self.playbook["spec"], **spec}
        self.playbook["metadata"]["generation"] += 1
        return self

    def decide(self, name: str, decision: str) -> Team:
        self.version(name)["spec"]["decision"] = decision
        return self

    async def add(self, name: str, *, parent: str = "") -> Team:
        """A run made a version, better than its parent by 0.2."""
        digest = digest_of(name)
        baseline, best = ({f"x{i}": float(i < n) for i in range(200)} for n in (100, 140))
        data = {
            names.PROMPT_KEY: f"## Rules\n[x-1] Use net sales, as {name} says.\n",
            names.ARTIFACT_KEY: json.dumps({"name": name}),
            names.GATE_KEY: GateScores(HELD_OUT, baseline, best).to_json(),
        }
        meta = {"name": f"formula-{digest[:12]}", "namespace": "team", "labels": version_labels("formula")}
        await self.kube.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": meta | {"annotations": {names.DIGEST_ANNOTATION: digest}},
                "immutable": True,
                "data": data,
            }
        )
        spec = {"playbookRef": {"name": "formula"}, "digest": digest, "configMapName": meta["name"]}
        await self.kube.create(
            {
                "apiVersion": names.API_VERSION,
                "kind": names.PLAYBOOK_VERSION_KIND,
                "metadata": meta,
                "spec": spec | ({"parentDigest": digest_of(parent)} if parent else {}),
            }
        )
        return self

    async def tick(self, times: int = 1) -> float | None:
        """So many ticks, a second apart; what the last one returned."""
        again: float | None = None
        for _ in range(times):
            self.now += 1
            again = await self.ticker.tick(KEY)
        return again

    def ticker_owner(self) -> tuple[Owner, PlaybookSpec]:
        """The Playbook, as the observer is asked about it."""
        spec = PlaybookSpec.model_validate(self.playbook["spec"])
        return Owner("formula", "team", self.playbook["metadata"]["uid"]), spec

    def why(self, type_: str) -> tuple[str, str]:
        found = next(c for c in self.playbook["status"]["conditions"] if c["type"] == type_)
        return found["status"], found["reason"]

    def told(self) -> list[str]:
        """Reasons of the events about the Playbook, in their order."""
        events = self.kube.of("Event").values()
        return [e["reason"] for e in events if e["involvedObject"]["kind"] == names.PLAYBOOK_KIND]


async def promoted() -> Team:
    """``b`` is active and delivered, ``a`` is the one before it."""
    team = Team()
    await (await team.add("a")).tick(2)
    await (await team.add("b", parent="a")).tick(2)
    assert (team.active, team.why("Ready")) == ("b", ("True", "Delivered"))
    return team
