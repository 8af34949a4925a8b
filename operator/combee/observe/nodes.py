"""Read the nodes with GPUs, where the operator may: one list a minute, whoever asks."""

from __future__ import annotations

from dataclasses import dataclass

from combee.api.discipline import untyped
from combee.api.run import RunSpec
from combee.clients.kubernetes.kube import Kube
from combee.errors import ClusterError
from combee.plan.cluster.hardware import EngineGpus, Node, engine_gpus, node_of

FRESH_SECONDS = 60.0


@dataclass(slots=True)
class Nodes:
    """The nodes of a cluster. ``may_read``: whether the chart gives the operator the right to list them."""

    kube: Kube
    may_read: bool = False
    _seen: tuple[Node, ...] | None = None
    _read_at: float = float("-inf")

    async def gpus_of(self, spec: RunSpec, now: float) -> EngineGpus:
        """Return what the nodes say of the GPUs that a run counts and does not name; nothing is read for a
        run without such."""
        return engine_gpus(spec, await self._with_gpus(now)) if untyped(spec) else EngineGpus()

    async def _with_gpus(self, now: float) -> tuple[Node, ...] | None:
        if not self.may_read:
            return None
        if not 0 <= now - self._read_at < FRESH_SECONDS:
            try:
                nodes = [node_of(raw) async for page in self.kube.pages("Node", "") for raw in page]
            except ClusterError as error:
                if error.status == 403 or self._seen is not None:
                    return self._seen
                raise
            self._seen, self._read_at = tuple(node for node in nodes if node is not None), now
        return self._seen
