"""The gateway's Deployment and Service, whole, and when they change."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from combee.api.gateway import Gateway
from combee.objects.gateway import (
    MADE_OF,
    gateway_account,
    gateway_change,
    gateway_deployment,
    gateway_service,
)
from combee.objects.types import Settings
from combee.plan.gateway import Served
from combee.records import Owner

sys.path.insert(0, str(Path(__file__).parents[1] / "objects"))
from pod_security import violations

GOLDEN = Path(__file__).parent / "golden"
SETTINGS = Settings(
    worker_image="combee/worker:1", gateway_image="combee/operator:1", image_pull_secrets=("registry",)
)
URL = "https://llm.example.com/v1"


def wants(name: str, *, mirrors: bool = False, **gateway: Any) -> Served:
    made = Gateway.model_validate({"enabled": True, "upstream": {"url": URL}, **gateway})
    return Served(Owner(name, "team-a", f"uid-of-{name}"), made, mirrors)


PLAIN = (wants("formula"),)
SEVERAL = (
    wants(
        "invoices",
        upstream={"url": URL, "apiKeySecretRef": {"name": "llm", "key": "token"}},
        keys={"secretRef": {"name": "gateway-keys"}},
        capture={"enabled": True, "store": {"uri": "s3://traffic/here", "secretRef": {"name": "s3"}}},
    ),
    wants("formula", mirrors=True),
    wants("answers", capture={"enabled": True}),
)
MADE = {"plain": gateway_deployment(PLAIN, SETTINGS), "several": gateway_deployment(SEVERAL, SETTINGS)}
WAYS = {
    **{name: (made,) for name, made in MADE.items()},
    "service": (gateway_service(Owner("combee-gateway", "team-a", "uid-of-deployment")),),
    "account": gateway_account("team-a"),
}


@pytest.mark.parametrize("way", WAYS)
def test_objects_are_as_reviewed(way: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / f"{way}.yaml"
    made = yaml.safe_dump_all(copy.deepcopy(WAYS[way]), sort_keys=False, width=110)
    if request.config.getoption("--update-golden", default=False):
        path.parent.mkdir(exist_ok=True)
        path.write_text(made, encoding="utf-8")
    assert made == path.read_text(encoding="utf-8"), "review with --update-golden and git diff"


@pytest.mark.parametrize("way", MADE)
def test_pods_are_restricted(way: str) -> None:
    assert list(violations(MADE[way]["spec"]["template"])) == []


def test_the_order_of_playbooks_does_not_matter() -> None:
    assert gateway_deployment(SEVERAL[::-1], SETTINGS) == MADE["several"]


def test_a_deployment_is_patched_when_something_else_is_wanted_for() -> None:
    there, wanted = MADE["plain"], gateway_deployment((*PLAIN, wants("more")), SETTINGS)
    assert gateway_change(there, there) is None
    patch = gateway_change(wanted, there)
    assert patch is not None
    assert patch["spec"] == {"template": wanted["spec"]["template"]}
    assert [owner["name"] for owner in patch["metadata"]["ownerReferences"]] == ["formula", "more"]
    assert patch["metadata"]["annotations"][MADE_OF] != there["metadata"]["annotations"][MADE_OF]
    assert gateway_change(wanted, {"metadata": {}}) == patch


@pytest.mark.parametrize("way", MADE)
def test_no_volume_or_mount_is_in_the_way_of_another(way: str) -> None:
    pod = MADE[way]["spec"]["template"]["spec"]
    names = [volume["name"] for volume in pod["volumes"]]
    mounts = pod["containers"][0]["volumeMounts"]
    assert len(set(names)) == len(names)
    assert {mount["name"] for mount in mounts} == set(names)
    assert len({mount["mountPath"] for mount in mounts}) == len(mounts)
