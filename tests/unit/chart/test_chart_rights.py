"""Who may do what: the operator never reads Secrets, and needs the cluster only where it serves all of it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from chart_tools import NAMESPACE, REPOSITORY, WAYS, objects

from combee.api.crd import CHART_FOLDER, FOLDER, files

ROLES = ("Role", "ClusterRole")
CLUSTER_KINDS = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def _roles(way: str) -> list[dict[str, Any]]:
    return [role for kind in ROLES for role in objects(way, kind)]


@pytest.mark.parametrize("way", WAYS)
def test_no_role_reaches_secrets_or_everything_or_more_rights(way: str) -> None:
    assert _roles(way)
    for role in _roles(way):
        for rule in role["rules"]:
            assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"], role["metadata"]["name"]
            assert not {"secrets", "pods/exec", "pods/attach", "serviceaccounts/token", "nodes"} & set(
                rule["resources"]
            )
            assert not {"bind", "escalate", "impersonate"} & set(rule["verbs"])


@pytest.mark.parametrize("way", WAYS)
def test_publish_may_make_and_read_configmaps_only(way: str) -> None:
    found = [role for role in _roles(way) if role["metadata"]["name"] == "combee-publish"]
    assert found
    for role in found:
        assert role["rules"] == [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}]


def test_with_namespaces_the_operator_has_no_rights_in_the_cluster() -> None:
    assert not objects("namespaces", "ClusterRoleBinding")
    bound = {binding["metadata"]["namespace"] for binding in objects("namespaces", "RoleBinding")}
    assert bound == {NAMESPACE, "team-a", "team-b"}
    roles = {role["metadata"]["name"] for role in objects("namespaces", "ClusterRole")}
    assert roles == {"combee-viewer", "combee-editor"}


def test_one_namespace_needs_no_rights_in_the_cluster_to_install() -> None:
    assert not {made["kind"] for made in objects("one-namespace")} & CLUSTER_KINDS


def test_the_policy_holds_in_the_namespaces_of_the_release_only() -> None:
    for binding in objects("namespaces", "ValidatingAdmissionPolicyBinding"):
        chosen = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        name = "kubernetes.io/metadata.name"
        assert chosen == [{"key": name, "operator": "In", "values": ["team-a", "team-b"]}]
    for binding in objects("default", "ValidatingAdmissionPolicyBinding"):
        assert "matchResources" not in binding["spec"]


@pytest.mark.parametrize(("plural", "below"), [("promptlearningruns", ""), ("playbooks", "learn.template.")])
def test_the_policy_asks_for_every_secret_that_a_manifest_can_name(plural: str, below: str) -> None:
    crd = yaml.safe_load(files()[f"{plural}.yaml"])
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    references = {path for path in _paths(schema) if path.endswith("ecretRef")}
    assert len(references) == 8
    (policy,) = [
        found
        for found in objects("default", "ValidatingAdmissionPolicy")
        if found["spec"]["matchConstraints"]["resourceRules"][0]["resources"] == [plural]
    ]
    variables = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}
    assert {
        path for path in references if f"[[object.spec.{path}.name]]" in variables["secrets0"]
    } == references
    assert {path for path in _paths(schema) if path.endswith(("imagePullSecrets", "serviceAccountName"))} == {
        f"{below}{place}.template.spec.{field}"
        for place in ("engines", "workers")
        for field in ("imagePullSecrets", "serviceAccountName")
    }


def _paths(schema: dict[str, Any], path: str = "") -> list[str]:
    found = [path] if path else []
    for key, part in schema.get("properties", {}).items():
        found += _paths(part, f"{path}.{key}" if path else key)
    return found + (_paths(schema["items"], path) if "items" in schema else [])


def test_the_definitions_are_the_generated_ones_and_stay_at_uninstall() -> None:
    keep = {"helm.sh/resource-policy": "keep"}
    made = {crd["metadata"]["name"]: crd for crd in objects("default", "CustomResourceDefinition")}
    generated = [yaml.safe_load(text) for text in files().values()]
    assert len(made) == len(generated) == 3
    for crd in generated:
        assert made[crd["metadata"]["name"]] == {**crd, "metadata": {**crd["metadata"], "annotations": keep}}
    for folder in (FOLDER, CHART_FOLDER):
        written = {path.name: path.read_text() for path in (REPOSITORY / folder).iterdir()}
        assert written == files()
    assert not objects("one-namespace", "CustomResourceDefinition")


def test_the_store_stays_at_uninstall() -> None:
    claims = objects("namespaces", "PersistentVolumeClaim")
    assert [claim["metadata"]["namespace"] for claim in claims] == ["team-a", "team-b"]
    for claim in claims:
        assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert not objects("secured-off", "PersistentVolumeClaim")
