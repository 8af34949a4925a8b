"""Events that people can read with `kubectl describe`. A failed Event never stops a tick."""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import dataclass

from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError
from combee.plan.cluster.happenings import Happening
from combee.times import rfc3339

log = logging.getLogger(__name__)
MAX_MESSAGE = 1000


@dataclass(slots=True)
class Teller:
    """Writes Events about objects."""

    kube: Kube
    reporter: str

    async def tell(self, about: Object, happening: Happening) -> None:
        """Write one Event. When it is told again, since the status could not be written, it has the same name
        and is not made twice."""
        meta = about["metadata"]
        identity = f"{meta['uid']} {meta.get('resourceVersion', '')} {happening.reason} {happening.message}"
        now = rfc3339(time.time())
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{meta['name'][:200]}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}",
                "namespace": meta["namespace"],
            },
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "type": happening.type,
            "reason": happening.reason,
            "message": happening.message[:MAX_MESSAGE],
            "source": {"component": "combee-operator"},
            "reportingComponent": "combee-operator",
            "reportingInstance": self.reporter,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        log.info(
            happening.message,
            extra={"run": f"{meta['namespace']}/{meta['name']}", "reason": happening.reason},
        )
        try:
            await self.kube.create(body)
        except ClusterError as error:
            log.warning("an Event could not be written", extra={"error": str(error)})
