"""Who may do what: the operator never reads Secrets, and needs the cluster only where it serves all of it."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import yaml
from chart_tools import CHART, NAMESPACE, RELEASE, REPOSITORY, WAYS, helm, objects

from combee import names
from combee.clients.kubernetes.kube import PLACES
from combee.generate.crd import CHART_FOLDER, FOLDER, files
from combee.objects.accounts import account_objects
from combee.objects.types import Settings
from combee.operator.cleanup import WARM_POOLS

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
            assert not {"secrets", "pods/exec", "pods/attach", "serviceaccounts/token"} & set(
                rule["resources"]
            )
            assert not {"bind", "escalate", "impersonate"} & set(rule["verbs"])


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/install.md"])
def test_pages_name_the_editors_role_as_the_chart_does(page: str) -> None:
    roles = {role["metadata"]["name"].replace(NAMESPACE, "NAMESPACE") for role in _roles("default")}
    named = set(re.findall(r"`(combee-[a-zA-Z-]*(?:editor|viewer))`", (REPOSITORY / page).read_text()))
    assert named and named <= roles


@pytest.mark.parametrize("way", WAYS)
def test_publish_may_make_and_read_configmaps_only(way: str) -> None:
    found = [role for role in _roles(way) if role["metadata"]["name"] == "combee-publish"]
    assert found
    for role in found:
        assert role["rules"] == [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}]


def test_accounts_that_the_operator_makes_it_may_look_for_and_no_others() -> None:
    (role,) = (one for one in _roles("default") if one["metadata"]["name"] == f"combee-operator-{NAMESPACE}")
    settings = Settings(worker_image="worker:1", make_accounts=True)
    made = account_objects("team-a", settings)
    for resource, kind in (("serviceaccounts", "ServiceAccount"), ("rolebindings", "RoleBinding")):
        rules = [rule for rule in role["rules"] if resource in rule["resources"]]
        (looked_for,) = (rule["resourceNames"] for rule in rules if rule["verbs"] == ["get"])
        assert looked_for == [one["metadata"]["name"] for one in made if one["kind"] == kind]
        assert [rule["verbs"] for rule in rules if "resourceNames" not in rule] == [["create"]]


@pytest.mark.parametrize("way", WAYS)
def test_nodes_are_listed_where_the_chart_says_so_and_by_the_operator_alone(way: str) -> None:
    found = {
        role["metadata"]["name"]: rule["verbs"]
        for role in _roles(way)
        for rule in role["rules"]
        if "nodes" in rule["resources"]
    }
    allowed = WAYS[way].get("readNodes", False)
    assert found == ({"combee-operator-combee-system-nodes": ["list"]} if allowed else {})
    bound = [
        binding["subjects"]
        for binding in objects(way, "ClusterRoleBinding")
        if binding["roleRef"]["name"] in found
    ]
    operator = {"kind": "ServiceAccount", "name": "combee-operator", "namespace": NAMESPACE}
    assert bound == ([[operator]] if allowed else [])


@pytest.mark.parametrize("way", WAYS)
def test_the_operator_may_make_policies_where_custom_tasks_are_allowed_and_change_none(way: str) -> None:
    found = [
        rule["verbs"]
        for role in _roles(way)
        for rule in role["rules"]
        if "networkpolicies" in rule["resources"] and "cleanup" not in role["metadata"]["name"]
    ]
    assert all(verbs == ["create"] for verbs in found)
    assert bool(found) == WAYS[way].get("allowCustomTasks", False)
    names = {made["metadata"]["name"] for made in objects(way, "NetworkPolicy")}
    assert not names & {"combee-rollouts", "combee-desks"}


@pytest.mark.parametrize("way", WAYS)
def test_the_operator_may_make_warm_pools_where_the_chart_says_so(way: str) -> None:
    roles = [role for role in _roles(way) if "cleanup" not in role["metadata"]["name"]]
    rules = [rule for role in roles for rule in role["rules"]]
    kinds = {
        one
        for rule in rules
        if rule["apiGroups"] == [names.SANDBOXES.split("/")[0]]
        for one in rule["resources"]
    }
    pools = {PLACES[kind][1] for kind in WARM_POOLS}
    assert kinds == (pools if WAYS[way].get("agentSandbox", False) else set())


def test_with_namespaces_the_operator_has_no_rights_in_the_cluster() -> None:
    assert not objects("namespaces", "ClusterRoleBinding")
    bound = {binding["metadata"]["namespace"] for binding in objects("namespaces", "RoleBinding")}
    assert bound == {NAMESPACE, "team-a", "team-b"}
    roles = {role["metadata"]["name"] for role in objects("namespaces", "ClusterRole")}
    assert roles == {f"combee-operator-{NAMESPACE}-{who}" for who in ("viewer", "editor")}


@pytest.mark.parametrize(
    ("values", "role"),
    [
        ({}, "combee-operator-combee-system"),
        ({"namespaces": ["team-a"]}, ""),
        ({"namespaces": ["team-a"], "readQueues": True}, "combee-operator-combee-system-queues"),
    ],
    ids=["everywhere", "namespaces", "namespaces and queues"],
)
def test_what_no_namespace_has_of_queues_is_read_by_a_role_of_the_cluster(
    values: dict[str, Any], role: str
) -> None:
    made = helm("template", RELEASE, str(CHART), "-n", NAMESPACE, "-f", "-", stdin=yaml.safe_dump(values))
    objects = [one for one in yaml.safe_load_all(made.stdout) if one]
    asked = {"apiGroups": ["kueue.x-k8s.io"], "resources": ["resourceflavors", "workloadpriorityclasses"]}
    rule = {**asked, "verbs": ["get"]}
    found = [o["metadata"]["name"] for o in objects if o["kind"] == "ClusterRole" and rule in o["rules"]]
    bound = [o["roleRef"]["name"] for o in objects if o["kind"] == "ClusterRoleBinding"]
    assert found == [role] * bool(role) and set(found) <= set(bound)


def test_one_namespace_needs_no_rights_in_the_cluster_to_install() -> None:
    assert not {made["kind"] for made in objects("one-namespace")} & CLUSTER_KINDS


def test_the_policy_holds_in_the_namespaces_of_the_release_only() -> None:
    bindings = objects("namespaces", "ValidatingAdmissionPolicyBinding")
    for binding in bindings:
        if binding["metadata"]["name"].endswith("-own"):
            assert "matchResources" not in binding["spec"]  # it is about the operator, wherever that is
            continue
        chosen = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        name = "kubernetes.io/metadata.name"
        assert chosen == [{"key": name, "operator": "In", "values": ["team-a", "team-b"]}]
    for binding in objects("default", "ValidatingAdmissionPolicyBinding"):
        assert "matchResources" not in binding["spec"]


@pytest.mark.parametrize(
    ("plural", "below", "name"),
    [("promptlearningruns", "", "runs"), ("playbooks", "learn.template.", "playbooks")],
)
def test_the_policy_asks_for_every_secret_that_a_manifest_can_name(
    plural: str, below: str, name: str
) -> None:
    schema = _spec(plural)
    references = {path for path in _paths(schema) if path.endswith("ecretRef") and path.startswith(below)}
    references -= {path for path in references if path.startswith("delivery.gateway.")}
    assert len(references) == 10
    policy = _policy(name)
    variables = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}
    assert {
        path for path in references if f"[[object.spec.{path}.name]]" in variables["secrets0"]
    } == references
    assert {path for path in _paths(schema) if path.endswith(("imagePullSecrets", "serviceAccountName"))} == {
        f"{below}{place}.template.spec.{field}"
        for place in ("engines", "workers")
        for field in ("imagePullSecrets", "serviceAccountName")
    }


@pytest.mark.parametrize(
    ("plural", "below", "name"),
    [("promptlearningruns", "", "runs-data"), ("playbooks", "learn.template.", "playbooks-data")],
)
def test_the_policy_asks_for_every_configmap_and_claim_that_a_manifest_can_name(
    plural: str, below: str, name: str
) -> None:
    paths = {path for path in _paths(_spec(plural)) if path.startswith(below)}
    paths -= {path for path in paths if path.startswith(("delivery.", "canary."))}
    variables = {one["name"]: one["expression"] for one in _policy(name)["spec"]["variables"]}
    config_maps = {path for path in paths if path.endswith(".configMap")}
    claims = {path.removesuffix(".claimName") for path in paths if path.endswith(".claimName")}
    caches = {path for path in claims if ".modelCache" in path}
    assert len(config_maps) == 4 and len(claims) == 6 and len(caches) == 2
    for path in config_maps:
        assert f"[[object.spec.{path}.name]]" in variables["configMaps0"], path
    for path in claims - caches:
        assert f"[[object.spec.{path}.claimName]]" in variables["claims0"], path
    assert "variables.caches.map(c, [c.claimName])" in variables["claims0"]
    assert "map(c, [c.source.pvc.claimName])" in variables["claims0"]
    asked = [one["expression"] for one in _policy(name)["spec"]["validations"]]
    assert sum("resource('configmaps')" in one for one in asked) == 4
    assert sum("resource('persistentvolumeclaims')" in one for one in asked) == 12


def test_the_policy_lets_judges_alone_make_pairs() -> None:
    (rule,) = _policy("pairs")["spec"]["validations"]
    wanted = "request.userInfo.username == 'system:serviceaccount:' + request.namespace + ':combee-publish'"
    assert rule["expression"] == wanted
    assert wanted.endswith(f"{Settings(worker_image='w').publish_account}'")
    assert names.LABEL_CANARY in str(_policy("pairs"))


def test_the_policy_asks_for_every_secret_that_a_gateway_or_a_judge_is_given() -> None:
    given = {path for path in _paths(_spec("playbooks")) if path.endswith("ecretRef")}
    references = {path for path in given if not path.startswith("learn.template.")}
    assert len(references) == 6
    asked = [one["expression"] for one in _policy("gateways")["spec"]["validations"]]
    mounted = {path for path in _paths(_spec("playbooks")) if path.endswith((".pvc", ".configMap"))}
    mounted -= {path for path in mounted if path.startswith("learn.template.")} | {"delivery.configMap"}
    assert len(mounted) == 3 and len(asked) == 9
    names = {path: "name" if path.endswith("configMap") else "claimName" for path in mounted}
    for path, name in names.items():
        assert any(f".name(object.spec.{path}.{name}).check('get').allowed()" in one for one in asked), path
    for path in references:
        assert any(f".name(object.spec.{path}.name).check('get').allowed()" in one for one in asked), path


BESIDE_SECRETS = {
    "canary": {
        *("trafficPercent", "durationSeconds", "deadlineSeconds", "minSamples", "epsilon"),
        *("maxLatencyRatio", "maxCostRatio", "watchSeconds", "expectedRequestsPerDay"),
        "waived",  # instead of a mode: it reaches no Secret that was not asked about when it was named
    },
    "delivery": {"configMap", "deletionPolicy"},
    "delivery.gateway": {"limits", "shadow", "page"},
    "delivery.gateway.capture": {"percent"},
}
"""Whoever may edit a Playbook can send no Secret elsewhere and use none for another purpose."""


def test_a_change_of_all_that_could_reach_a_secret_is_asked_about() -> None:
    """Each new field of a gateway or a canary needs a check, or an entry here that says why it needs none."""
    schema, (_, condition) = _spec("playbooks"), _policy("gateways")["spec"]["matchConditions"]
    asked = condition["expression"]
    for part, harmless in BESIDE_SECRETS.items():
        fields = schema
        for name in part.split("."):
            fields = fields["properties"][name]
        for field in set(fields["properties"]) - harmless:
            path = f"{part}.{field}"
            compared = f"object.spec.{path} != oldObject.spec.{path}", f"!oldObject.spec.{path})"
            assert path in BESIDE_SECRETS or any(one in asked for one in compared), path


@pytest.mark.parametrize("way", WAYS)
def test_a_gateway_may_watch_playbooks_and_read_configmaps_only(way: str) -> None:
    (role,) = {repr(one["rules"]) for one in _roles(way) if one["metadata"]["name"] == "combee-gateway"}
    assert role == repr(
        [
            {
                "apiGroups": ["combee.dev"],
                "resources": ["playbooks", "playbookversions"],
                "verbs": ["get", "list", "watch"],
            },
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        ]
    )


def test_only_named_namespaces_may_review_tokens() -> None:
    found = {
        subject["namespace"]
        for binding in objects("everything", "ClusterRoleBinding")
        for subject in binding["subjects"]
        if binding["roleRef"]["name"].endswith("-tokenreview")
    }
    assert found == {"team-a"}
    for way in set(WAYS) - {"everything"}:
        assert not any("tokenreviews" in str(role["rules"]) for role in _roles(way))


def _spec(plural: str) -> dict[str, Any]:
    crd = yaml.safe_load(files()[f"{plural}.yaml"])
    spec: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def _policy(name: str) -> dict[str, Any]:
    (policy,) = [
        found
        for found in objects("default", "ValidatingAdmissionPolicy")
        if found["metadata"]["name"].endswith(f"-{name}")
    ]
    return dict(policy)


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


def test_step_pods_reach_no_metadata_service_and_only_what_is_named() -> None:
    (policy,) = [p for p in objects("everything", "NetworkPolicy") if p["metadata"]["name"] == "combee-steps"]
    spec = policy["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"] and "ingress" not in spec
    blocks = [to["ipBlock"] for rule in spec["egress"] for to in rule.get("to", ()) if "ipBlock" in to]
    for block in blocks:
        whole, left_out = ip_network(block["cidr"]), [*map(ip_network, block["except"])]
        for address in ("169.254.169.254", "fe80::1", "fd00:ec2::254"):
            there = ip_address(address)
            reached = there in whole and not any(there in one for one in left_out)
            assert there.version != whole.version or not reached, address
    others = [rule for rule in spec["egress"] if not any("ipBlock" in to for to in rule.get("to", ()))]
    dns = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
    team = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "minio"}}}
    assert others == [{"ports": dns}, {"to": [{"podSelector": {}}]}, {"to": [team]}]
