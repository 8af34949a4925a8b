"""A real cluster for the tests below: the one that ``make cluster`` brings up, or that of KUBECONFIG."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import NODE, Cluster, fresh_namespace, sharing
from playbooks import Playbooks
from releases import apply_crds
from runs import Operator, operating


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The first test waits until the cluster is up, which on a bare machine is until it is built.
    for item in items:
        if NODE.parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(600, func_only=True))


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """Brought up when it is not, with the definitions of this working copy; several processes may ask at
    once, for the script takes a lock."""
    foreign = os.environ.get("KUBECONFIG")
    if not foreign and not (sys.platform == "linux" and os.geteuid() == 0):
        message = "no cluster: it needs root on Linux, or KUBECONFIG set to one"
        if os.environ.get("COMBEE_REQUIRE_CLUSTER") == "1":
            pytest.fail(message)
        pytest.skip(message)
    script = NODE / "node.sh"
    up = subprocess.run(
        [script, "up"],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    if up.returncode:
        pytest.fail(f"make cluster failed:\n{up.stdout}{up.stderr}")
    lines = subprocess.run([script, "env"], capture_output=True, text=True, check=True).stdout
    shell = subprocess.run(
        ["bash", "-c", f"{lines}\nenv -0"], capture_output=True, text=True, check=True
    ).stdout
    found = Cluster(dict(pair.split("=", 1) for pair in shell.split("\0") if "=" in pair))
    apply_crds(found)
    return found


@pytest.fixture
def together(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests of other processes may use the cluster meanwhile, unless this one is marked ``alone``."""
    with sharing(alone=request.node.get_closest_marker("alone") is not None):
        yield


@pytest.fixture
def namespace(cluster: Cluster, together: None) -> Iterator[str]:
    """A new namespace that admits restricted pods only; deleted afterwards with all in it."""
    with fresh_namespace(cluster) as name:
        yield name


@pytest.fixture
def there(cluster: Cluster, namespace: str) -> Playbooks:
    """The Playbook of the test's own namespace, which is still to be applied."""
    return Playbooks(cluster, namespace)


@pytest.fixture
def operator(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    """An operator for that namespace, which must not log an error."""
    with operating(cluster, namespace, tmp_path / "operator.log") as started:
        yield started
        # Libraries call it an error when they ask again over a connection that was cut.
        ours = [line for line in started.lines() if line.get("logger", "").startswith("combee")]
        errors = [line for line in ours if line["level"] == "error"]
        assert not errors, errors[:3]


@pytest.fixture
def team(cluster: Cluster) -> Iterator[str]:
    """A second namespace, for runs."""
    with fresh_namespace(cluster) as name:
        yield name


@pytest.fixture
def minio(cluster: Cluster) -> None:
    """The test needs the MinIO of the test node."""
    if cluster.try_kubectl("get", "service", "minio", namespace="minio").returncode:
        pytest.skip("no MinIO at minio.minio.svc:9000; the test node of `make cluster` has one")


@pytest.fixture
def kubectl(cluster: Cluster, namespace: str) -> Callable[..., str]:
    """kubectl in the test's own namespace: ``kubectl("get", "pods")`` is what it printed."""

    def call(*arguments: str, stdin: str | dict[str, Any] | list[Any] = "") -> str:
        return cluster.kubectl(*arguments, namespace=namespace, stdin=stdin)

    return call
