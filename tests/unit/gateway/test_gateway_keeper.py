"""The operator keeps a namespace's gateway as its Playbooks want it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, cast

import pytest

from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError
from combee.objects.gateway import MADE_OF
from combee.objects.types import Settings
from combee.operator.gateway import GatewayKeeper
from combee.operator.sweeper import Sweeper
from combee.operator.tell import Teller
from combee.operator.tick import NEVER
from combee.plan.cluster.happenings import Happening

KEYS = {"secretRef": {"name": "keys"}}
SETTINGS = Settings(worker_image="w:1", gateway_image="o:1")


class Api:
    """Holds objects by kind and name; says what was written."""

    def __init__(self, *playbooks: Object) -> None:
        self.held: dict[tuple[str, str], Object] = {("Playbook", p["metadata"]["name"]): p for p in playbooks}
        self.written: list[str] = []
        self.told: list[str] = []

    async def list(self, kind: str, namespace: str, *, labels: str = "") -> list[Object]:
        return [copy.deepcopy(body) for (of, _), body in self.held.items() if of == kind]

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        return copy.deepcopy(self.held.get((kind, name)))

    async def create(self, body: Object) -> Object | None:
        key = body["kind"], body["metadata"]["name"]
        if key in self.held:
            return None
        self.written.append(f"create {key[0]}")
        self.held[key] = {**body, "metadata": {**body["metadata"], "uid": f"uid-of-{key[0]}"}}
        return self.held[key]

    async def patch(self, kind: str, namespace: str, name: str, patch: Object) -> Object:
        self.written.append(f"patch {kind}")
        there = self.held[kind, name]
        there["metadata"] |= patch["metadata"]
        there["spec"] |= patch["spec"]
        return there

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> bool:
        self.written.append(f"delete {kind}")
        return self.held.pop((kind, name), None) is not None

    async def tell(self, about: Object, happening: Happening) -> None:
        self.told.append(f"{about['metadata']['name']}: {happening.reason}")


def playbook(name: str, **gateway: Any) -> Object:
    meta = {"name": name, "namespace": "team-a", "uid": f"uid-of-{name}"}
    wanted = {"enabled": True, "upstream": {"url": "http://llm/v1"}, **gateway}
    return {"kind": "Playbook", "metadata": meta, "spec": {"delivery": {"gateway": wanted}}}


def keeper(api: Api, *, policy: bool = True, accounts: bool = True) -> GatewayKeeper:
    kube, settings = cast(Kube, api), replace(SETTINGS, make_accounts=accounts, secret_policy=policy)
    return GatewayKeeper(kube, settings, cast(Teller, api), Sweeper(kube, settings))


async def keep(api: Api, **given: bool) -> bool:
    return await keeper(api, **given).keep("team-a", await api.list("Playbook", "team-a"))


async def test_it_is_made_with_its_account_and_then_left_alone() -> None:
    api = Api(playbook("formula"))
    assert await keeper(api).tick(("team-a", "")) is None
    assert api.written == [
        "create ServiceAccount",
        "create RoleBinding",
        "create Deployment",
        "create Service",
    ]
    (owner,) = api.held["Service", "combee-gateway"]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Deployment", "uid-of-Deployment")
    api.written.clear()
    await keep(api)
    assert api.written == []


async def test_accounts_are_the_charts_where_namespaces_are_listed() -> None:
    api = Api(playbook("formula"))
    await keep(api, accounts=False)
    assert api.written == ["create Deployment", "create Service"]


async def test_another_playbook_changes_it_in_place_and_the_last_one_takes_it_away() -> None:
    api = Api(playbook("formula"))
    await keep(api)
    before = api.held["Deployment", "combee-gateway"]["metadata"]["annotations"][MADE_OF]
    api.held["Playbook", "more"] = playbook("more", keys=KEYS)
    api.written.clear()
    await keep(api)
    there = api.held["Deployment", "combee-gateway"]
    assert api.written == ["patch Deployment"]
    assert there["metadata"]["annotations"][MADE_OF] != before
    assert [owner["name"] for owner in there["metadata"]["ownerReferences"]] == ["formula", "more"]
    for name in ("formula", "more"):
        api.held["Playbook", name]["spec"]["delivery"]["gateway"]["enabled"] = False
    api.written.clear()
    assert await keeper(api).tick(("team-a", "")) == NEVER
    assert api.written == ["delete Deployment"]


async def test_a_service_that_somebody_deleted_comes_back() -> None:
    api = Api(playbook("formula"))
    await keep(api)
    del api.held["Service", "combee-gateway"]
    await keep(api)
    assert ("Service", "combee-gateway") in api.held


async def test_without_the_admission_policy_no_secret_is_mounted_for_anybody() -> None:
    api = Api(playbook("formula"), playbook("secretive", keys=KEYS))
    await keep(api, policy=False)
    owners = api.held["Deployment", "combee-gateway"]["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in owners] == ["formula"]
    assert api.told == ["secretive: SecretNotAllowed"]


async def test_a_playbook_of_a_later_release_takes_nothing_away() -> None:
    api = Api(playbook("formula"))
    await keep(api)
    api.written.clear()
    api.held["Playbook", "formula"]["spec"]["delivery"]["gateway"]["later"] = 1
    assert await keep(api)
    assert api.written == []


async def test_somebody_elses_deployment_is_not_touched() -> None:
    api = Api(playbook("formula"))
    api.held["Deployment", "combee-gateway"] = {
        "metadata": {"name": "combee-gateway", "uid": "x"},
        "spec": {},
    }
    with pytest.raises(ClusterError, match="the operator did not make"):
        await keep(api)
    assert api.written == []


async def test_a_playbook_being_deleted_wants_none() -> None:
    going = playbook("formula")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    api = Api(going)
    assert await keeper(api).tick(("team-a", "")) == NEVER
    assert api.written == []
