"""The operator lists nodes only for runs that need it, where it may, and once a minute."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from combee.clients.kubernetes.kube import Answer, Kube
from combee.errors import ClusterError
from combee.observe.nodes import FRESH_SECONDS, Nodes
from combee.plan.cluster.hardware import EngineGpus

sys.path.append(str(Path(__file__).parents[1] / "plan"))
from cluster_bench import GPUS, spec_of

RUN = spec_of(**GPUS)
GPU_NODE = {
    "metadata": {"labels": {"nvidia.com/gpu.product": "L4"}},
    "status": {"allocatable": {"nvidia.com/gpu": "4"}},
}
NO_GPUS: dict[str, Any] = {"metadata": {}, "status": {"allocatable": {"cpu": "4"}}}


class Server(Kube):
    """Answers with its pages, and counts; or refuses."""

    def __init__(self, *pages: list[dict[str, Any]], status: int = 200) -> None:
        self.given, self.status = pages, status
        self.asked: list[tuple[str, dict[str, str]]] = []

    async def request(self, method: str, path: str, *, query: Any = None, **_: Any) -> Answer:
        self.asked.append((path, dict(query or {})))
        if self.status != 200:
            raise ClusterError("refused", status=self.status)
        page = int((query or {}).get("continue", "0"))
        more = {"continue": str(page + 1)} if page + 1 < len(self.given) else {}
        return Answer(200, {"items": self.given[page], "metadata": more})


async def test_nodes_are_read_page_by_page_and_again_after_a_minute() -> None:
    server = Server([NO_GPUS], [GPU_NODE])
    nodes = Nodes(server, may_read=True)
    known = EngineGpus({"main": "2 x 2 L4"})
    assert await nodes.gpus_of(RUN, 1000.0) == known
    assert [(path, query.get("continue")) for path, query in server.asked] == [
        ("/api/v1/nodes", None),
        ("/api/v1/nodes", "1"),
    ]
    assert all(query["limit"] == "500" for _, query in server.asked)
    server.given = ([NO_GPUS],)
    assert await nodes.gpus_of(RUN, 1000.0 + FRESH_SECONDS - 1) == known and len(server.asked) == 2
    assert "No node" in (await nodes.gpus_of(RUN, 1000.0 + FRESH_SECONDS)).unknown["main"]
    assert len(server.asked) == 3


async def test_nothing_is_read_that_need_not_or_may_not_be() -> None:
    server = Server([GPU_NODE])
    assert await Nodes(server, may_read=True).gpus_of(spec_of(), 0.0) == EngineGpus()
    assert "may not read nodes" in (await Nodes(server).gpus_of(RUN, 0.0)).unknown["main"]
    assert server.asked == []


async def test_a_missing_right_is_a_reason_and_a_fault_is_a_fault() -> None:
    denied = await Nodes(Server(status=403), may_read=True).gpus_of(RUN, 0.0)
    assert "may not read nodes" in denied.unknown["main"]
    with pytest.raises(ClusterError):
        await Nodes(Server(status=500), may_read=True).gpus_of(RUN, 0.0)
