"""The gateway of a namespace, as tests wait for it and reach it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cluster_tools import eventually
from playbooks import Playbooks

from combee.names import GATEWAY


def gateway_pods(there: Playbooks) -> list[dict[str, Any]]:
    """Return the gateway's pods."""
    chosen = "app.kubernetes.io/component=gateway"
    pods: list[dict[str, Any]] = there.cluster.get("pods", "-l", chosen, namespace=there.namespace)["items"]
    return pods


def gateway_ready(there: Playbooks) -> None:
    """Wait until all pods of the gateway are ready. The pods say it themselves: a Deployment counts them, and
    goes on counting one that was killed a moment ago."""

    def true() -> bool:
        deployment = there.cluster.find("deployment", GATEWAY, namespace=there.namespace) or {}
        status = deployment.get("status", {})
        counted = status.get("observedGeneration") == deployment.get("metadata", {}).get("generation")
        pods = gateway_pods(there)
        return (
            bool(pods)
            and counted
            and status.get("updatedReplicas") == status.get("replicas")
            and all(_is_ready(pod) for pod in pods)
        )

    try:
        eventually("the gateway is ready", true, seconds=120)
    except BaseException:
        for command in (
            ("describe", "pods"),
            ("logs", f"deployment/{GATEWAY}", "--tail=50"),
            ("get", "events"),
        ):
            print(there.cluster.try_kubectl(*command, namespace=there.namespace).stdout[-4000:])
        raise


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


@contextmanager
def forwarded(there: Playbooks) -> Iterator[int]:
    """Give a port of this machine that leads through the API server to the gateway's Service, wherever the
    cluster is."""
    place = ("-n", there.namespace, f"service/{GATEWAY}", ":80", "--address", "127.0.0.1")
    forward = subprocess.Popen(
        ["kubectl", "port-forward", *place],
        stdout=subprocess.PIPE,
        text=True,
        env=there.cluster.environment,
    )
    try:
        assert forward.stdout is not None
        port = re.search(r":(\d+) ->", forward.stdout.readline())
        assert port, "kubectl port-forward says nothing"
        yield int(port[1])
    finally:
        forward.kill()
        forward.wait()
