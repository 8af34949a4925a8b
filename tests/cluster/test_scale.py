"""Many runs at once, a small part of ``make scale``: nothing breaks, and the figures are printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster

pytestmark = pytest.mark.timeout(900, func_only=True)


def test_ten_runs_with_ten_pods_each(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _measured(cluster, tmp_path, monkeypatch, runs=10, pods=100, resync_seconds=5, settle_seconds=2.0)


@pytest.mark.long
def test_fifty_runs_with_fifty_pods_each(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _measured(cluster, tmp_path, monkeypatch, runs=50, pods=2_500, resync_seconds=15)


def _measured(
    cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch, *, runs: int, pods: int, **more: Any
) -> None:
    if not cluster.own:
        pytest.skip("the programs of a control plane come with the test node")
    monkeypatch.setenv("PATH", cluster.environment["PATH"])
    from bench.scale import RSS_TARGET_MIB, measure

    found = measure(folder, runs=runs, pods=pods, **more)
    print("\n".join(found.lines()))
    # Times depend on who else uses the machine; memory does not.
    assert (found.runs, found.pods) == (runs, pods)
    assert found.first_reconcile_seconds > 0 and found.p99_seconds < float("inf")
    assert found.rss_mib < RSS_TARGET_MIB
    log = (folder / "operator-measured.log").read_text()
    assert '"level": "error"' not in log.lower(), log[-2000:]
