"""The operator's Lease: only its holder may write, and only while it surely still holds it.

Of several replicas one holds it and the others stand by. A node that lost its network may still run an
operator whose Lease another has taken. So the fence is asked before every write, and refuses as soon as
another operator *could* have taken the Lease, by the operator's own monotonic clock. Another's Lease has run
out once it stood unchanged for its whole duration by that clock, as client-go judges it: the times that are
written in it come from another machine, whose clock may be wrong.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from combee.clients.kubernetes.kube import Kube
from combee.errors import ClusterError

log = logging.getLogger(__name__)
NAME = "combee-operator"
DURATION_SECONDS = 15
RENEW_SECONDS = 4.0
MARGIN_SECONDS = 3.0
"""Writes stop so long before the Lease expires, so that a write under way ends before it."""


class NotOursError(ClusterError):
    """Another operator may hold the Lease: nothing may be written."""

    code = "NotOurs"


@dataclass(slots=True)
class Fence:
    """Holds the Lease of ``namespace`` in the name of ``holder``."""

    kube: Kube
    namespace: str
    holder: str
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _renewed: float = float("-inf")
    _seen: tuple[object, float] = (None, 0.0)
    """the Lease's spec as it was read last, and since when it is as it is."""

    def check(self) -> None:
        """Raise NotOursError unless this operator surely holds the Lease now."""
        if not self.held:
            raise NotOursError("the Lease is not held", where=f"{self.namespace}/{NAME}")

    @property
    def held(self) -> bool:
        """Whether this operator surely holds the Lease now."""
        return self.clock() - self._renewed < DURATION_SECONDS - MARGIN_SECONDS

    async def acquire(self) -> None:
        """Wait until this operator holds the Lease: at once when it is free, given up or its own, else until
        nobody renewed it for its whole duration."""
        while not await self._try():
            await self.sleep(1.0)

    async def keep(self) -> None:
        """Renew the Lease until cancelled. A failed renewal is retried, and meanwhile the fence may close."""
        while True:
            await self.sleep(RENEW_SECONDS)
            try:
                if not await self._try():
                    log.error("another operator took the Lease; nothing is written until it is free again")
            except ClusterError as error:
                log.warning("the Lease could not be renewed", extra={"error": str(error)})

    async def release(self) -> None:
        """Give the Lease up, so that the next operator does not have to wait."""
        if self.held:
            self._renewed = float("-inf")
            await self.kube.patch("Lease", self.namespace, NAME, {"spec": {"holderIdentity": ""}})

    async def _try(self) -> bool:
        asked_at = self.clock()
        lease = await self.kube.get("Lease", self.namespace, NAME)
        if lease is None:
            created = await self.kube.create(
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": NAME, "namespace": self.namespace},
                    "spec": self._spec(transitions=0),
                }
            )
            return self._ours(asked_at, created is not None)
        spec = lease.get("spec", {})
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self.holder) and not self._ran_out(spec):
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + (holder != self.holder)
        version = {"resourceVersion": lease["metadata"]["resourceVersion"]}
        try:
            body = {"metadata": version, "spec": self._spec(transitions)}
            patched = await self.kube.patch("Lease", self.namespace, NAME, body)
        except ClusterError as error:
            if error.status != 409:
                raise
            return False
        return self._ours(asked_at, patched is not None)

    def _ran_out(self, spec: dict[str, Any]) -> bool:
        now = self.clock()
        if spec != self._seen[0]:
            self._seen = (spec, now)
        return now - self._seen[1] > int(spec.get("leaseDurationSeconds") or DURATION_SECONDS)

    def _ours(self, asked_at: float, success: bool) -> bool:
        if success:
            self._renewed = asked_at
        return success

    def _spec(self, transitions: int) -> dict[str, Any]:
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "leaseTransitions": transitions,
        }
