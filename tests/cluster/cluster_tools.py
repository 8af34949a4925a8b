"""What the tests on a cluster have in common."""

from __future__ import annotations

import fcntl
import json
import re
import secrets
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from reading import NotThereError, Reader, question

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
        """Run kubectl and return what it printed. ``stdin`` is a manifest or a list of them. A
        CalledProcessError has stderr."""
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
        # So short a life needs no garbage collected.
        env = {**self.environment, "GOGC": "off"}
        return subprocess.run(command, env=env, input=stdin, capture_output=True, text=True, timeout=300)

    def get(self, *arguments: str, namespace: str = "") -> Any:
        """One object, or a list, as data."""
        asked = question(*arguments)
        if asked is not None:
            return self.reader.read(asked, namespace)
        return json.loads(self.kubectl("get", *arguments, "-o", "json", namespace=namespace))

    def find(self, *arguments: str, namespace: str = "") -> Any:
        """The same; None where it is not there."""
        try:
            return self.get(*arguments, namespace=namespace)
        except NotThereError:
            return None

    @cached_property
    def reader(self) -> Reader:
        return Reader(self.environment["KUBECONFIG"])


_sharing = False


@contextmanager
def sharing(*, alone: bool = False) -> Iterator[None]:
    """Hold the cluster together with other tests, or ``alone``: what serves or breaks the whole cluster
    must not meet the runs of another test."""
    global _sharing
    if _sharing and not alone:  # by a fixture of the test's module
        yield
        return
    folder = Path(tempfile.gettempdir())
    with (folder / "combee-cluster-tests.lock").open("w") as lock:
        # Whoever waits stands in the door: others that would share go on behind it.
        with (folder / "combee-cluster-tests.door").open("w") as door:
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        _sharing = True
        try:
            yield
        finally:
            _sharing = False


@contextmanager
def fresh_namespace(cluster: Cluster) -> Iterator[str]:
    """A new namespace that admits restricted pods only; deleted afterwards with all in it.

    Jobs go first: the server deletes a namespace's pods before its Jobs, and the controller of a Job with
    ``backoffLimitPerIndex`` lets go of a failed pod only when it has made another, which it cannot there."""
    name = f"test-{secrets.token_hex(4)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    cluster.reader.apply([manifest])
    furnished(cluster, name)
    try:
        yield name
    finally:
        cluster.reader.delete_jobs(name)
        cluster.reader.delete(manifest)


def everything(cluster: Cluster, *namespaces: str, wide: bool = False) -> set[str]:
    """All there is, of every kind that the server lists: ``namespace/kind.group/name`` of what is in these
    namespaces and, if ``wide``, ``/kind.group/name`` of what is in none. Events apart, which the server
    forgets by itself."""
    return {
        f"{namespace}/{name}"
        for namespace in (*namespaces, *([""] if wide else []))
        for name in cluster.reader.names(namespace)
        if not name.startswith(("event/", "event.", "componentstatus/"))
    }


def furnished(cluster: Cluster, *namespaces: str) -> None:
    """Wait until new namespaces have what Kubernetes itself puts into each."""
    own = (("serviceaccount", "default"), ("configmap", "kube-root-ca.crt"))
    for namespace in namespaces:
        eventually(
            f"{namespace} is furnished",
            lambda at=namespace: all(cluster.find(*one, namespace=at) for one in own),
        )


def nothing_left(left: Callable[[], set[str]], *, seconds: float = 300) -> None:
    """Wait until ``left()`` is empty; fails naming what is in it when that takes longer."""
    end = time.monotonic() + seconds
    while found := left():
        if time.monotonic() > end:
            pytest.fail(f"still there after {seconds:g} s: {', '.join(sorted(found))}")
        time.sleep(2)


def eventually(what: str, true: Callable[[], Any], *, seconds: float = 180, every: float = 0.3) -> Any:
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


def run_python(cluster: Cluster, namespace: str, program: str, *, image: str = "worker", **spec: Any) -> str:
    """What ``program`` printed, run by an image's Python in a restricted pod."""
    command, name = ["python", "-c", textwrap.dedent(program)], f"probe-{secrets.token_hex(4)}"
    pod = restricted_pod(name, cluster.image(image), command, **spec)
    cluster.reader.apply([pod], namespace)

    def ended() -> str:
        phase: str = cluster.get("pod", name, namespace=namespace)["status"].get("phase", "")
        return phase if phase in ("Succeeded", "Failed") else ""

    phase = eventually("the pod ends", ended)
    printed = cluster.reader.log(name, namespace)
    assert phase == "Succeeded", printed
    return printed
