"""The version before this one: its code, and its operator at work."""

from __future__ import annotations

import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest
from cluster_tools import REPOSITORY, Cluster
from runs import make_accounts, operator_environment

BEFORE = "761c1caa"
"""the version before: N-1 of this one."""


def tree_before(folder: Path) -> Path:
    """The working tree of the version before, in a folder."""
    archived = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", BEFORE, "operator", "crds"],
        capture_output=True,
        check=False,
    )
    if archived.returncode:
        pytest.skip(f"the history has no {BEFORE}")
    tree = folder / "before"
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as archive:
        archive.extractall(tree, filter="data")
    return tree


@contextmanager
def earlier(cluster: Cluster, namespace: str, tree: Path, log: Path) -> Iterator[None]:
    """The operator of the version before, with its definitions."""
    crds = ("apply", "--server-side", "--force-conflicts", "-f", str(tree / "crds"))
    cluster.kubectl(*crds)
    make_accounts(cluster, namespace)
    environment = operator_environment(cluster, namespace) | {"PYTHONPATH": str(tree / "operator")}
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "combee.operator.program"], env=environment, stdout=output, stderr=output
        )
    try:
        yield
        assert process.poll() is None, log.read_text()[-2000:]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
