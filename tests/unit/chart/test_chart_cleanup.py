"""The chart's Job at uninstall runs as an account that exists only then and reaches no data."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chart_tools import NAMESPACE, RELEASE, WAYS, objects

from combee.clients.kubernetes.kube import PLACES
from combee.objects.accounts import account_objects
from combee.objects.gateway import gateway_account
from combee.objects.types import Settings
from combee.operator import lease
from combee.operator.cleanup import ACCOUNTS, AT_WORK

sys.path.insert(0, str(Path(__file__).parents[1] / "objects"))
from pod_security import violations

CLEANED = sorted(set(WAYS) - {"secured-off"})
CLUSTER_WIDE = {"default", "everything"}
PLURALS = {kind: PLACES[kind][1] for kind in (*AT_WORK, *ACCOUNTS)}
HELM_WAITS_SECONDS = 300
"""for a hook, unless it is told otherwise."""


def hooks(way: str) -> list[dict[str, Any]]:
    return [o for o in objects(way) if "helm.sh/hook" in o["metadata"].get("annotations", {})]


def _rights(role: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(resource, name or *, verb)"""
    for rule in role["rules"]:
        for resource in rule["resources"]:
            for name in rule.get("resourceNames", ["*"]):
                yield from ((resource, name, verb) for verb in rule["verbs"])


@pytest.mark.parametrize("way", CLEANED)
def test_all_of_it_comes_when_the_release_is_gone_and_goes_however_it_ends(way: str) -> None:
    assert hooks(way)
    for made in hooks(way):
        notes = made["metadata"]["annotations"]
        assert notes["helm.sh/hook"] == "post-delete"
        policy = notes["helm.sh/hook-delete-policy"]
        assert policy == "before-hook-creation,hook-succeeded,hook-failed"
    order = sorted(hooks(way), key=lambda made: int(made["metadata"]["annotations"]["helm.sh/hook-weight"]))
    kinds = [made["kind"] for made in order]
    assert kinds[-1] == "Job"
    first_binding = next(number for number, kind in enumerate(kinds) if kind.endswith("Binding"))
    assert all(kind.endswith("Binding") for kind in kinds[first_binding:-1])


@pytest.mark.parametrize("way", CLEANED)
def test_its_account_may_list_and_delete_what_is_cleaned_and_reaches_no_data(way: str) -> None:
    roles = [made for made in hooks(way) if made["kind"] in ("Role", "ClusterRole")]
    of_lease = [role for role in roles if role["metadata"]["name"] == "combee-cleanup-lease"]
    assert [set(_rights(role)) for role in of_lease] == [
        {("leases", "*", "create"), *(("leases", lease.NAME, verb) for verb in ("get", "patch", "delete"))}
    ]
    wanted = {(PLURALS[kind], "*", verb) for kind in AT_WORK for verb in ("list", "delete")}
    if way in CLUSTER_WIDE:
        wanted |= {(PLURALS[kind], "*", "list") for kind in ACCOUNTS}
        made = [
            *account_objects("team", Settings(worker_image="w", make_accounts=True)),
            *gateway_account("team"),
        ]
        wanted |= {(PLURALS[one["kind"]], one["metadata"]["name"], "delete") for one in made}
    others = [role for role in roles if role not in of_lease]
    assert others
    for role in others:
        assert set(_rights(role)) == wanted


@pytest.mark.parametrize("way", CLEANED)
def test_it_has_rights_where_the_operator_had_some_and_nowhere_else(way: str) -> None:
    bindings = [made for made in hooks(way) if made["kind"].endswith("Binding")]
    for binding in bindings:
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "combee-cleanup", "namespace": NAMESPACE}
        ]
    there = {(made["kind"], made["metadata"].get("namespace", "")) for made in bindings}
    listed = WAYS[way].get("namespaces", [])
    where = {("RoleBinding", name) for name in listed} if listed else {("ClusterRoleBinding", "")}
    assert there == where | {("RoleBinding", NAMESPACE)}
    account = next(made for made in hooks(way) if made["kind"] == "ServiceAccount")
    assert account["automountServiceAccountToken"] is False


@pytest.mark.parametrize("way", CLEANED)
def test_its_pod_is_restricted_is_not_the_operators_and_ends_before_helm_is_tired_of_it(way: str) -> None:
    (job,) = [made for made in hooks(way) if made["kind"] == "Job"]
    (operator,) = objects(way, "Deployment")
    template, other = job["spec"]["template"], operator["spec"]["template"]["spec"]
    assert violations(template) == []
    assert job["spec"]["activeDeadlineSeconds"] < HELM_WAITS_SECONDS
    assert not operator["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert template["metadata"]["labels"]["app.kubernetes.io/instance"] == RELEASE
    for field in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert template["spec"].get(field) == other.get(field), field
    (container,) = template["spec"]["containers"]
    assert container["command"] == ["combee-operator", "cleanup"]
    for field in ("image", "imagePullPolicy", "resources"):
        assert container[field] == other["containers"][0][field], field
    told, operators = ({one["name"]: one for one in c["env"]} for c in (container, other["containers"][0]))
    assert told.items() <= operators.items()


def test_it_can_be_left_away() -> None:
    assert hooks("secured-off") == []
    assert not [made for made in objects("secured-off") if "cleanup" in made["metadata"]["name"]]
