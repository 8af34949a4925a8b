"""What the tests on a cluster have in common."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

NODE = Path(__file__).resolve().parent / "node"
REPOSITORY = NODE.parents[2]
VERSION = re.search(r'__version__ = "(.+)"', (REPOSITORY / "operator/combee/__init__.py").read_text())[1]  # type: ignore[index]


@dataclass(frozen=True)
class Cluster:
    """``environment`` is what every program that talks to the cluster is started with."""

    environment: dict[str, str]

    def image(self, name: str) -> str:
        """The image that was loaded as worker, operator or sim."""
        return f"localhost/combee-{name}:{VERSION}"

    @property
    def own(self) -> bool:
        """Whether it is the test node of this machine, whose parts a test may stop and start."""
        return "COMBEE_CLUSTER_OWN" in self.environment

    def part(self, action: str, name: str) -> str:
        """Does start, stop, kill or pids to one part of the test node; what it printed."""
        return subprocess.run(
            [NODE / "part.sh", action, name], check=True, capture_output=True, text=True
        ).stdout

    def kubectl(
        self, *arguments: str, namespace: str = "", stdin: str | dict[str, Any] | list[Any] = ""
    ) -> str:
        """What kubectl printed. ``stdin`` may be a manifest, or a list of them. CalledProcessError names stderr."""
        result = self.try_kubectl(*arguments, namespace=namespace, stdin=stdin)
        if result.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def try_kubectl(
        self, *arguments: str, namespace: str = "", stdin: str | dict[str, Any] | list[Any] = ""
    ) -> subprocess.CompletedProcess[str]:
        """The same, whatever its exit status."""
        if isinstance(stdin, list):
            stdin = {"apiVersion": "v1", "kind": "List", "items": stdin}
        if isinstance(stdin, dict):
            stdin = json.dumps(stdin)
        command = ["kubectl", *(["-n", namespace] if namespace else []), *arguments]
        return subprocess.run(
            command, env=self.environment, input=stdin, capture_output=True, text=True, timeout=300
        )

    def get(self, *arguments: str, namespace: str = "") -> Any:
        """One object, or a list, as data."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json", namespace=namespace))


@contextmanager
def sharing(*, alone: bool = False) -> Iterator[None]:
    """Hold the cluster together with other tests, or ``alone``: what serves or breaks the whole cluster
    must not meet the runs of another test."""
    with (Path(tempfile.gettempdir()) / "combee-cluster-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def eventually(what: str, true: Callable[[], Any], *, seconds: float = 60, every: float = 0.3) -> Any:
    """The first true value; fails, naming ``what``, when there is none in time."""
    end = time.monotonic() + seconds
    while True:
        value = true()
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds:g} s: {what}; last: {value!r}")
        time.sleep(every)


def restricted_pod(name: str, image: str, command: list[str], **spec: Any) -> dict[str, Any]:
    """A pod of one container ``main`` that the restricted level admits and that runs once."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "runAsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            **spec,
        },
    }


def run_python(
    cluster: Cluster, kubectl: Callable[..., str], program: str, *, image: str = "worker", **spec: Any
) -> str:
    """What ``program`` printed, run by an image's Python in a restricted pod."""
    command = ["python", "-c", textwrap.dedent(program)]
    kubectl("create", "-f", "-", stdin=restricted_pod("probe", cluster.image(image), command, **spec))
    ended = ("Succeeded", "Failed")
    phase = eventually(
        "the pod ends",
        lambda: (p := kubectl("get", "pod", "probe", "-o", "jsonpath={.status.phase}")) in ended and p,
    )
    printed = kubectl("logs", "probe")
    assert phase == "Succeeded", printed
    return printed
