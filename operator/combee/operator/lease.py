"""The operator's Lease: only its holder may write, and only while it surely still holds it.

One replica runs at a time (the Deployment is of type Recreate), but a node that lost its network
may still run an operator that was replaced. The fence is asked before every write, and refuses as
soon as another operator *could* have taken the Lease, by the operator's own monotonic clock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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
    _renewed: float = float("-inf")

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
        the Lease has expired."""
        while not await self._try():  # noqa: ASYNC110 - it is another process that gives it up
            await asyncio.sleep(1.0)

    async def keep(self) -> None:
        """Renew the Lease until cancelled. A failed renewal is retried, and meanwhile the fence may close."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
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
        if holder not in ("", self.holder) and not _ran_out(spec):
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


def _ran_out(spec: dict[str, Any]) -> bool:
    try:
        renewed = datetime.fromisoformat(str(spec["renewTime"]))
    except (KeyError, ValueError):
        return True
    duration = timedelta(seconds=int(spec.get("leaseDurationSeconds") or DURATION_SECONDS))
    return datetime.now(UTC) - renewed > duration
