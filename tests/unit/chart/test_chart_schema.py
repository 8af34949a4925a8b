"""The schema of values refuses what Kubernetes would refuse later, and takes what it takes."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import yaml
from chart_tools import CHART, SERVER, helm
from jsonschema import Draft7Validator

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
NEEDS = {"key": "a", "operator": "In", "values": ["b"]}
TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def node_affinity(**changed: Any) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [NEEDS | changed]}]}}}


def pod_affinity(weight: int = 50, **changed: Any) -> dict[str, Any]:
    return {"podAntiAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": TERM | changed}]}}


NONSENSE: list[tuple[str, Any]] = [
    *(
        ("operator.resources.limits.cpu", bad)
        for bad in ("two", "1 cpu", "-1", -1, "1kb", "", "1e", "0x10", True)
    ),
    *(("worker.resources.requests.memory", bad) for bad in ("2GB", "2 Gi", "2gi", "1Gi2", "1..5Gi", "1,5Gi")),
    ("engine.resources.limits", {"gpu": 1}),
    ("engine.resources.limits", {"nvidia.com/gpu": "half"}),
    ("engine.resources.limits", {"nvidia.com/gpu": 0.5}),
    ("prefetch.resources.limits", {"Memory": "1Gi"}),
    *(("store.size", bad) for bad in ("0", "0Gi", "10GB", "-1Gi", "10m", "ten")),
    *(("worker.scratch", bad) for bad in ("0Mi", "1Zi", "")),
    *(("store.name", bad) for bad in ("Combee", "my store", "-x", "x.", "a_b", "x" * 254)),
    ("store.storageClassName", "Fast SSD"),
    ("store.accessModes", ["ReadWriteOncePod", "ReadWriteMany"]),
    ("store.accessModes", ["ReadWriteMany", "ReadWriteMany"]),
    ("namespaces", ["x" * 64]),
    ("gateway.tokenReviewNamespaces", ["a", "a"]),
    *(
        ("image.operator", bad)
        for bad in ("http://r/x:1", "r/x:", "r/X:1", "r/x:1:2", "r/x@sha256:12", "a//b")
    ),
    ("image.vllm", "two words"),
    ("image.pullSecrets", ["My Secret"]),
    ("image.pullSecrets", [""]),
    ("engineImages", ["a,b"]),
    ("engineImages", [""]),
    *(("operator.nodeSelector", bad) for bad in ({"a b": "c"}, {"a": "b c"}, {"a": True}, {"a": "x" * 64})),
    *(("operator.nodeSelector", bad) for bad in ({"/a": "b"}, {"A.b/c": "d"}, {"a/b/c": "d"}, {"": "b"})),
    *(("operator.podLabels", bad) for bad in ({"a": "-"}, {"app.kubernetes.io/name": "x"}, {"a": 1})),
    *(("operator.podAnnotations", bad) for bad in ({"a b": "c"}, {"a": 1})),
    ("operator.serviceAccountAnnotations", {"a b": "c"}),
    *(
        ("operator.tolerations", [bad])
        for bad in (
            "NoSchedule",
            {"key": "a", "operator": "Is"},
            {"key": "a", "effect": "Never"},
            {"key": "a", "operator": "Exists", "value": "b"},
            {"operator": "Equal", "value": "b"},
            {"value": "b"},
            {"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3},
            {"key": "a", "operator": "Exists", "tolerationSeconds": 3},
            {"key": "a b", "operator": "Exists"},
            {"key": "a", "opertor": "Exists"},
        )
    ),
    ("operator.affinity", {"nodeAfinity": {}}),
    ("operator.affinity", node_affinity(operator="Is")),
    ("operator.affinity", node_affinity(values=[])),
    ("operator.affinity", node_affinity(operator="Exists")),
    ("operator.affinity", node_affinity(operator="Gt", values=["many"])),
    ("operator.affinity", {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}),
    ("operator.affinity", pod_affinity(101)),
    ("operator.affinity", pod_affinity(topologyKey="")),
    ("operator.affinity", pod_affinity(labelSelector={"matchLabels": {"a b": "c"}})),
    ("operator.affinity", {"podAffinity": {REQUIRED: [{"labelSelector": {}}]}}),
    *(
        ("operator.topologySpreadConstraints", [SPREAD | bad])
        for bad in ({"maxSkew": 0}, {"topologyKey": "a b"})
    ),
    ("operator.topologySpreadConstraints", [SPREAD | {"whenUnsatisfiable": "Never"}]),
    (
        "operator.topologySpreadConstraints",
        [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}],
    ),
    ("operator.topologySpreadConstraints", [{"maxSkew": 1}]),
    ("operator.priorityClassName", "System Critical"),
    *(("operator.extraEnv", [{"name": bad, "value": "x"}]) for bad in ("A B", "1A", "", "COMBEE_NAMESPACES")),
    ("operator.extraEnv", [{"name": "A", "value": 1}]),
    ("operator.extraEnv", [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "spec"}}}]),
    ("operator.extraEnv", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]),
    ("operator.replicas", -1),
    ("operator.replicas", 1.5),
    ("metrics.port", 65536),
    ("metrics.serviceMonitor.labels", {"a": "b c"}),
    ("metrics.serviceMonitor.interval", "0s"),
    ("metrics.dashboard.labels", {"a b": "c"}),
    ("metrics.alerts.labels", {"a": 1}),
]
SENSIBLE: list[tuple[str, Any]] = [
    *(("operator.resources.limits.cpu", good) for good in (1, 0.5, "1", "1500m", "0.5", "1e3", "2.", ".5")),
    *(
        ("worker.resources.requests.memory", good)
        for good in ("2Gi", "512M", "1.5Gi", 1073741824, "1e9", "1Ei")
    ),
    (
        "engine.resources.limits",
        {"nvidia.com/gpu": 2, "nvidia.com/mig-1g.5gb": "1", "ephemeral-storage": "9Gi"},
    ),
    ("engine.resources.limits", {"hugepages-2Mi": "100Mi"}),
    *(("store.size", good) for good in ("10Gi", "0.5Ti", "1000000000", "1G", "100Ei")),
    ("worker.scratch", "500Mi"),
    ("store.name", "combee.store-1"),
    ("store.storageClassName", "fast-ssd.example.com"),
    ("store.accessModes", ["ReadWriteOncePod"]),
    ("store.accessModes", ["ReadWriteOnce", "ReadWriteMany"]),
    ("namespaces", ["team-a", "1", "x" * 63]),
    *(
        ("image.operator", good)
        for good in (
            "x",
            "docker.io/vllm/vllm-openai:v0.32.0",
            "localhost:5000/a/b_c/d-e:1.0_x",
            f"registry.example.com/x:1@sha256:{'0' * 64}",
            "Registry.Example.com/x",
        )
    ),
    ("image.vllm", ""),
    ("image.pullSecrets", ["registry", "registry.example.com"]),
    ("engineImages", ["ghcr.io/acme/", "localhost:5000/x:", "r/x@sha256:00"]),
    ("operator.nodeSelector", {"kubernetes.io/os": "linux", "a": "", "Team_x.y": "B_c.d"}),
    ("operator.podLabels", {"team": "a", "example.com/x": ""}),
    ("operator.podAnnotations", {"example.com/note": "any text: at all", "a": ""}),
    (
        "operator.tolerations",
        [{"operator": "Exists"}, {"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    ),
    ("operator.tolerations", [{"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 0}]),
    ("operator.affinity", {}),
    ("operator.affinity", {**node_affinity(), **pod_affinity()}),
    ("operator.affinity", node_affinity(operator="Gt", values=["5"])),
    ("operator.affinity", node_affinity(operator="DoesNotExist", values=[])),
    (
        "operator.affinity",
        {"podAffinity": {REQUIRED: [TERM | {"namespaces": ["a"], "namespaceSelector": {}}]}},
    ),
    ("operator.topologySpreadConstraints", [SPREAD | {"minDomains": 2, "nodeTaintsPolicy": "Honor"}]),
    ("operator.priorityClassName", "system-cluster-critical"),
    ("operator.extraEnv", [{"name": "A"}, {"name": "b.c-D", "value": ""}]),
    ("operator.extraEnv", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
    ("operator.replicas", 0),
    ("operator.replicas", 3),
    ("metrics.serviceMonitor.interval", "1m30s"),
    ("metrics.serviceMonitor.labels", {"release": "prometheus"}),
]


def taken(path: str, value: Any) -> bool:
    """Whether the schema takes the chart's values with ``value`` at ``path``."""
    values = json.loads(json.dumps(VALUES))
    *parents, last = path.split(".")
    at = values
    for part in parents:
        at = at[part]
    at[last] = value
    return bool(SCHEMA.is_valid(values))


def test_the_schema_refuses_what_kubernetes_would_and_takes_what_it_takes() -> None:
    """Of 39 nonsense values 13 passed before."""
    assert SCHEMA.is_valid(VALUES) and len(NONSENSE) >= 39 and len(SENSIBLE) >= 39
    assert [(path, value) for path, value in NONSENSE if taken(path, value)] == []
    assert [(path, value) for path, value in SENSIBLE if not taken(path, value)] == []


def test_helm_reads_the_schema_as_we_do() -> None:
    """All sensible values at once, one of a path; of the nonsense, what needs the rarer words of a schema."""
    for path, value in NONSENSE:
        if path not in ("operator.tolerations", "store.accessModes"):
            continue
        refused = _templated({path: value})
        assert refused.returncode == 1 and f"at '/{path.replace('.', '/')}" in refused.stderr, (path, value)
    templated = _templated(dict(SENSIBLE))
    assert templated.returncode == 0, templated.stderr


def _templated(flat: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    values: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, last = path.split(".")
        at = values
        for part in parents:
            at = at.setdefault(part, {})
        at[last] = value
    given = yaml.safe_dump(values)
    return helm("template", "x", str(CHART), "--kube-version", SERVER, "-f", "-", stdin=given)
