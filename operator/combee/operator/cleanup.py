"""``combee-operator cleanup``: delete what the operator made, once it is uninstalled.

Helm deletes what the chart made. The rest belongs to runs and Playbooks, which stay, or to nobody. The chart
runs this when everything of the release is gone, with an account of its own. It holds the operator's Lease
meanwhile, so that no operator writes: neither the one that is being stopped nor one that is installed next.

Data stays: runs, Playbooks and versions, every ConfigMap, claims, and what is in stores.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from combee import names
from combee.clients.kubernetes.kube import Kube
from combee.errors import ClusterError
from combee.operator.lease import NAME, Fence
from combee.settings import CleanupSettings

log = logging.getLogger(__name__)
MADE = f"{names.LABEL_NAME}=combee,{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
"""the labels of all that the operator makes."""
WARM_POOLS = ("SandboxTemplate", "SandboxWarmPool", "SandboxClaim")
AT_WORK = ("Deployment", "Job", "Service", "NetworkPolicy", "Workload", *WARM_POOLS)
"""Kinds of steps, engines and gateways with their Services and policies, of runs' places in queues, and of
warm pools; their pods, which hold GPUs, go with them."""
ACCOUNTS = ("RoleBinding", "ServiceAccount")


async def clean_up(settings: CleanupSettings) -> None:
    """Wait until no operator holds the Lease, then delete everything, the Lease last.

    ClusterError when something cannot be deleted: begin again.
    """
    kube = await Kube.connect()
    try:
        await clean(kube, settings)
    finally:
        await kube.aclose()


async def clean(kube: Kube, settings: CleanupSettings) -> None:
    """The same, on a connection that is there."""
    fence = Fence(kube, settings.pod_namespace, settings.pod_name)
    fenced = kube.fenced(fence.check)
    log.info("waiting for the operator's Lease", extra={"holder": settings.pod_name})
    await fence.acquire()
    keeping = asyncio.create_task(fence.keep())
    try:
        for kind in (*AT_WORK, *(ACCOUNTS if settings.made_accounts else ())):
            for namespace in settings.namespaces or ("",):
                count = await _delete_all(fenced, kind, namespace)
                log.info("deleted", extra={"kind": kind, "namespace": namespace or "all", "count": count})
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
    await fenced.delete("Lease", settings.pod_namespace, NAME)


async def _delete_all(kube: Kube, kind: str, namespace: str) -> int:
    """How many there were; none of a kind that the cluster does not serve."""
    try:
        objects = await kube.list(kind, namespace, labels=MADE, bare=True)
    except ClusterError as error:
        if error.status != 404:
            raise
        return 0
    for one in objects:
        meta = one["metadata"]
        await kube.delete(kind, meta["namespace"], meta["name"], uid=meta["uid"])
    return len(objects)
