"""``combee-operator cleanup``: delete what the operator made, once it is uninstalled.

Helm deletes what the chart made. Other objects belong to runs and Playbooks, which stay, or to nobody. The
chart starts this program when everything of the release is gone, under its own account. It holds the
operator's Lease meanwhile, so that no operator writes: neither the one that is being stopped nor one that is
installed next.

Data stays: runs, Playbooks and versions, every ConfigMap, claims, and the content of stores.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from combee import names
from combee.clients.kubernetes.kube import Kube
from combee.operator.lease import NAME, Fence
from combee.settings import CleanupSettings

log = logging.getLogger(__name__)
MADE = f"{names.LABEL_NAME}=combee,{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
"""The labels of all objects that the operator makes."""
AT_WORK = ("Deployment", "Job", "Service")
"""The kinds of steps, engines, gateways and their Services; those that hold GPUs come first. Their pods are
deleted with them."""
ACCOUNTS = ("RoleBinding", "ServiceAccount")


async def clean_up(settings: CleanupSettings) -> None:
    """Wait until no operator holds the Lease, then delete all objects, and the Lease last.

    Raises ClusterError when something cannot be deleted; the cleanup can then be started again.
    """
    kube = await Kube.connect()
    try:
        await clean(kube, settings)
    finally:
        await kube.aclose()


async def clean(kube: Kube, settings: CleanupSettings) -> None:
    """Do the work of ``clean_up`` on an open connection."""
    fence = Fence(kube, settings.pod_namespace, settings.pod_name)
    log.info("waiting for the operator's Lease", extra={"holder": settings.pod_name})
    await fence.acquire()
    keeping = asyncio.create_task(fence.keep())
    try:
        for kind in (*AT_WORK, *(ACCOUNTS if settings.made_accounts else ())):
            for namespace in settings.namespaces or ("",):
                count = await _delete_all(kube, fence.check, kind, namespace)
                log.info("deleted", extra={"kind": kind, "namespace": namespace or "all", "count": count})
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
    fence.check()
    await kube.delete("Lease", settings.pod_namespace, NAME)


async def _delete_all(kube: Kube, fence: Callable[[], None], kind: str, namespace: str) -> int:
    """Delete all objects of a kind that the operator made, and return how many there were."""
    objects = await kube.list(kind, namespace, labels=MADE, bare=True)
    for metadata in objects:
        meta = metadata["metadata"]
        fence()
        await kube.delete(kind, meta["namespace"], meta["name"], uid=meta["uid"])
    return len(objects)
