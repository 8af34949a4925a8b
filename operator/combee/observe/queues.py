"""Read a run's place in its queue: its Workload in Kueue, and where that sends its pods.

A cluster may have no Kueue: then the list of Workloads is not there, which is no error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from combee import names
from combee.api.stores import Queue
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError
from combee.objects.meta import owned
from combee.objects.queues import condition_of
from combee.plan.cluster.seen import Assigned, QueueSeen
from combee.records import Owner

ABSENT = f"Kueue is not installed in this cluster, or is older than 0.15, which does not serve {names.KUEUE}"


async def see_queue(kube: Kube, queue: Queue | None, owner: Owner) -> QueueSeen | None:
    """Return the run's place in its queue: one request, and one for each flavor that it was assigned. None
    where it names no queue. Raises ClusterError where the cluster does not answer."""
    if queue is None:
        return None
    hidden = True
    try:
        listed = await kube.list("Workload", owner.namespace, labels=f"{names.LABEL_RUN_UID}={owner.uid}")
        hidden = False
        own = next((one for one in listed if _made_for(owner, one)), None)
        return await (_before(kube, queue) if own is None else _place(kube, own))
    except ClusterError as error:
        if error.status not in (403, 404):
            raise
        absent = error.status == 404
        return QueueSeen(hidden=hidden and not absent, lacks=ABSENT if absent else error.what)


def _made_for(owner: Owner, workload: Object) -> bool:
    """Return whether a Workload is the run's place: anybody may make one with its label."""
    name = names.workload_name(owner.name, owner.uid)
    return workload["metadata"]["name"] == name and owned(workload, owner)


async def _before(kube: Kube, queue: Queue) -> QueueSeen:
    """Return what is known while the run has no place yet. Raises ClusterError where flavors may not be read:
    the run would be admitted, and not know where its pods go."""
    await kube.get("ResourceFlavor", "", queue.name)
    if queue.priority_class is None:
        return QueueSeen()
    wanted = await kube.get("WorkloadPriorityClass", "", queue.priority_class)
    if wanted is None:
        return QueueSeen(lacks=f"the WorkloadPriorityClass {queue.priority_class} is not there")
    return QueueSeen(priority=int(wanted["value"]))


async def _place(kube: Kube, workload: Object) -> QueueSeen:
    true = {
        type
        for type in ("Admitted", "QuotaReserved", "Evicted", "Finished", "PodsReady")
        if condition_of(workload, type).get("status") == "True"
    }
    going = "deletionTimestamp" in workload["metadata"]
    admitted = "Admitted" in true and not going and not true & {"Evicted", "Finished"}
    why = condition_of(workload, "Evicted" if {"Evicted", "QuotaReserved"} <= true else "QuotaReserved")
    place = QueueSeen(
        made=True,
        admitted=admitted,
        evicted={"Evicted", "QuotaReserved"} <= true,
        stale="Finished" in true,
        because="" if admitted else " ".join(str(why.get("message", "")).split())[:300],
        ready="PodsReady" in true,
    )
    if not admitted:
        return place
    try:
        return await _assigned(kube, workload, place)
    except ClusterError as error:
        if error.status != 403:
            raise
        return replace(place, admitted=False, lacks=error.what)


async def _assigned(kube: Kube, workload: Object, place: QueueSeen) -> QueueSeen:
    """Return the place with where its pods go. A flavor that cannot be read sends them nobody knows where."""
    assignments = workload["status"].get("admission", {}).get("podSetAssignments", ())
    used = sorted({flavor for one in assignments for flavor in one.get("flavors", {}).values()})
    read = await asyncio.gather(*(kube.get("ResourceFlavor", "", name) for name in used))
    flavors = {name: flavor["spec"] if flavor else {} for name, flavor in zip(used, read, strict=True)}
    updates = [
        update
        for check in workload["status"].get("admissionChecks", ())
        for update in check.get("podSetUpdates", ())
    ]
    return replace(place, assigned={one["name"]: _set(one, flavors, updates) for one in assignments})


def _set(
    assignment: Mapping[str, Any], flavors: Mapping[str, Mapping[str, Any]], updates: list[Mapping[str, Any]]
) -> Assigned:
    """Return where the pods of a set go: as the flavors of its resources say, and checks of its admission."""
    name = assignment["name"]
    chosen = [flavors[flavor] for flavor in sorted(set(assignment.get("flavors", {}).values()))]
    checked = [update for update in updates if update["name"] == name]
    selectors = [
        *(one.get("nodeLabels", {}) for one in chosen),
        *(one.get("nodeSelector", {}) for one in checked),
    ]
    tolerations = tuple(
        toleration for one in [*chosen, *checked] for toleration in one.get("tolerations", ())
    )
    return Assigned(
        count=int(assignment.get("count", 0)),
        node_selector={label: value for selector in selectors for label, value in selector.items()},
        tolerations=tolerations,
        annotations={key: value for one in checked for key, value in one.get("annotations", {}).items()},
    )
