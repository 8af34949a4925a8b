"""Which addresses the policy refuses: its patterns, on which RE2 and Python agree."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from chart_tools import objects

KINDS = ("promptlearningruns", "playbooks")
REFUSED = [
    "http://localhost/v1",
    "http://localhost:8000/v1",
    "https://LOCALHOST./v1",
    "http://a.localhost/v1",
    "http://127.0.0.1:8000/v1",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://0x7f.1/",
    "http://0.0.0.0:80/v1",
    "http://0/",
    "http://169.254.169.254/latest/meta-data",
    "http://169.254.169.254.",
    "http://user:pw@169.254.169.254/",
    "http://2852039166/",
    "http://0xa9.0xfe.0xa9.0xfe/",
    "http://0251.0376.0251.0376/",
    "http://[::1]:8000/v1",
    "http://[fe80::1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://metadata/",
    "http://metadata.google.internal/computeMetadata/v1",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "https://kubernetes/api",
    "https://kubernetes.default/api",
    "https://kubernetes.default.svc:443/api",
    "https://kubernetes.default.svc.cluster.local",
    "http://llm.other.svc/v1",
    "http://llm.other.svc.cluster.local:8000/v1",
    "http://llm.other.svc.corp.internal/v1",
    "http://x.mine.svc.other.svc.cluster.local/",
    "http://x.mine.svc.svc/",
    "https://kubernetes.default.svc.corp.internal/api",
    "https://10-0-0-1.kubernetes.default.svc/api",
    "http://169-254-169-254.default.pod.cluster.local/",
    "http://169-254-169-254.default.pod/",
    "http://metadata.goog/",
    "http://192.0.0.192/opc/v2/",
    "http://ip6-localhost:8000/",
    "http://ip6-loopback/",
    "http://169%2e254.169.254/",
    "http://evil\\x/y/",
    "http://１６９.254.169.254/",
    "http://169.254.169.254?x",
    "http://169.254.169.254#x",
    "http://a%40b@127.0.0.1/",
]
TAKEN = [
    "https://api.openai.com/v1",
    "http://llm:8000/v1",
    "http://llm.mine.svc/v1",
    "http://llm.mine.svc.cluster.local:8000/v1",
    "http://llm.mine.svc.corp.internal:8000/v1",
    "http://llm-0.llm.mine.svc:8000/v1",
    "http://a.b.mine.svc/",
    "http://svc.example.com/v1",
    "http://pod.example.com/v1",
    "http://192.0.2.1:9/v1",
    "http://10.0.0.7:8000/v1",
    "http://echo.example.com/v1",
    "https://localhost.example.com/",
    "http://metadata.example.com/",
    "s3://kubernetes/rows.jsonl",
    "s3://localhost/x",
    "https://example.com/169.254.169.254",
    "https://127.example.com/",
    "http://1270.example.com/",
    "https://example.com/?u=http://localhost",
    "https://a%40b:c@example.com/v1",
]


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
