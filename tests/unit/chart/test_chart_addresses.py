"""Which addresses the policy refuses: its patterns, on which RE2 and Python agree."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from chart_tools import objects

from host_lists import REFUSED, TAKEN

KINDS = ("promptlearningruns", "playbooks")


def policy(way: str, kind: str) -> dict[str, Any]:
    (found,) = [
        one
        for one in objects(way, "ValidatingAdmissionPolicy")
        if one["metadata"]["name"].endswith(f"-{kind}-addresses")
    ]
    return dict(found)


def refused(kind: str, address: str) -> bool:
    """What the policy says of an address in the namespace mine: its expression, in Python's words."""
    expression = {one["name"]: one["expression"] for one in policy("default", kind)["spec"]["variables"]}[
        "refused"
    ]
    condition = expression.removeprefix("variables.asked.filter(a, ").removesuffix(")")
    condition = condition.replace("||", " or ").replace("&&", " and ").replace("!a.", " not a.")
    condition = condition.replace("request.namespace", "'mine'")

    class Text(str):
        def matches(self, pattern: str) -> bool:
            return re.search(pattern, self) is not None

    return bool(eval(f"({condition})", {"a": Text(address.lower())}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("address", REFUSED)
def test_what_leads_into_the_node_or_the_cluster_is_refused(kind: str, address: str) -> None:
    assert refused(kind, address)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("address", TAKEN)
def test_other_addresses_are_taken(kind: str, address: str) -> None:
    assert not refused(kind, address)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("http://prometheus.monitoring.svc:9090/", True),
        ("http://prometheus-monitoring.svc/", False),
        ("http://prometheus.monitoring.svc.cluster.local/", False),
        ("http://[fd00::7]:8000/v1", True),
        ("http://[FD00::7]/v1", True),
        ("http://[fd00::8]/v1", False),
        ("http://7/v1", False),
    ],
)
def test_a_host_that_the_chart_allows_is_not_asked_about(kind: str, address: str, allowed: bool) -> None:
    said = {one["name"]: one["expression"] for one in policy("everything", kind)["spec"]["variables"]}
    before, after = re.findall(r"'([^']*)'", said["asked"])
    hosts = yaml.safe_load(said["allowed"])
    assert allowed is any(re.search(before + host + after, address.lower()) for host in hosts)


@pytest.mark.parametrize("kind", KINDS)
def test_every_address_of_a_manifest_is_looked_at(kind: str) -> None:
    (crd,) = [
        o
        for o in objects("default", "CustomResourceDefinition")
        if o["metadata"]["name"] == f"{kind}.combee.dev"
    ]
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    (addresses,) = [
        v["expression"] for v in policy("default", kind)["spec"]["variables"] if v["name"] == "addresses"
    ]
    named = {
        path for path in paths(schema) if path.endswith((".url", ".uri")) and not path.endswith("store.uri")
    }
    assert {path for path in named if f"[object.spec.{path}.lowerAscii()]" not in addresses} == set()


def paths(schema: dict[str, Any], path: str = "") -> list[str]:
    found = [path] if path else []
    for key, part in schema.get("properties", {}).items():
        found += paths(part, f"{path}.{key}" if path else key)
    return found + (paths(schema["items"], path) if "items" in schema else [])
