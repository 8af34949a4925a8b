"""The chart, rendered by helm for the ways in which it is installed."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[3]
CHART = REPOSITORY / "charts" / "combee-operator"
RELEASE, NAMESPACE = "combee", "combee-system"
# Which Kubernetes helm takes for granted depends on how it was built.
SERVER = "1.34.0"

WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "namespaces": {"namespaces": ["team-a", "team-b"], "networkPolicy": {"create": True}},
    "everything": {
        "image": {
            "operator": "registry.example.com/combee-operator:0.1.0",
            "worker": "registry.example.com/combee-worker:0.1.0",
            "vllm": "docker.io/vllm/vllm-openai:v0.32.0",
            "pullPolicy": "Always",
            "pullSecrets": ["registry"],
        },
        "engineImages": ["localhost/combee-sim", "registry.example.com/vllm"],
        "engineArguments": ["--trust-remote-code"],
        "allowedHosts": ["prometheus.monitoring.svc", "[fd00::7]"],
        "allowCustomTasks": True,
        "discipline": "Advisory",
        "agentSandbox": True,
        "readNodes": True,
        "playbooks": {"allowWaivedCanary": False},
        "operator": {
            "replicas": 2,
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"},
                {
                    "maxSkew": 2,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"team": "platform"}},
                },
            ],
            "podLabels": {"team": "platform"},
            "serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/x"},
            "extraEnv": [
                {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
                {"name": "NO_PROXY", "valueFrom": {"configMapKeyRef": {"name": "proxy", "key": "no"}}},
            ],
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [{"key": "system", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "priorityClassName": "system-cluster-critical",
            "podAnnotations": {"example.com/team": "platform"},
        },
        "engine": {"sharedMemory": "16Gi"},
        "prefetch": {"resources": {"limits": {"cpu": "8"}}},
        "gateway": {"replicas": 3, "tokenReviewNamespaces": ["team-a"]},
        "store": {"storageClassName": "shared"},
        "metrics": {
            "serviceMonitor": {"create": True, "labels": {"release": "prometheus"}},
            "dashboard": {"create": True},
            "alerts": {"create": True, "labels": {"release": "prometheus"}},
        },
        "networkPolicy": {"create": True, "egress": {"namespaces": ["minio"]}},
    },
    "one-namespace": {
        "namespaces": ["team-a"],
        "crds": {"install": False},
        "admissionPolicy": {"install": False},
        "userRoles": {"create": False},
    },
    "secured-off": {
        "operator": {"cleanUpOnUninstall": False},
        "admissionPolicy": {"install": False},
        "userRoles": {"create": False},
        "store": {"create": False},
        "metrics": {"service": False},
    },
}


@cache
def program() -> str:
    """helm: that of the PATH, or the one that ``make cluster`` has built."""
    cache_folder = os.environ.get("COMBEE_CLUSTER_CACHE", "/var/cache/combee-cluster")
    built = sorted(Path(cache_folder).glob("helm-*/helm"))
    found = shutil.which("helm") or (str(built[-1]) if built else "")
    if not found:
        message = "no cluster: helm is not on the PATH, and make cluster has not built it"
        if os.environ.get("COMBEE_REQUIRE_CLUSTER") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return found


def helm(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """What helm did, away from any cluster and any configuration of its user's."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "KUBECONFIG": "/dev/null"}
    return subprocess.run(
        [program(), *arguments], env=environment, input=stdin, capture_output=True, text=True, timeout=120
    )


@cache
def text(way: str) -> str:
    """All manifests of a way to install."""
    rendered = helm(
        "template", RELEASE, str(CHART), "-n", NAMESPACE, "--kube-version", SERVER, "-f", "-",
        stdin=yaml.safe_dump(WAYS[way]),
    )  # fmt: skip
    assert rendered.returncode == 0, rendered.stderr
    return rendered.stdout


@cache
def _parsed(way: str) -> bytes:
    """The objects, pickled: a test may change what it is given."""
    return pickle.dumps([made for made in yaml.load_all(text(way), yaml.CSafeLoader) if made])


def objects(way: str, kind: str = "") -> list[dict[str, Any]]:
    """The objects, all or those of ``kind``."""
    return [made for made in pickle.loads(_parsed(way)) if kind in ("", made["kind"])]
