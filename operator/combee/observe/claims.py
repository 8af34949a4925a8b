"""Read the claims of a run's pods of rollouts out of a warm pool of agent-sandbox, and the pool."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from combee import names
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError
from combee.plan.cluster.seen import RolloutsSeen

_GONE = (403, 404)
"""what the API server answers of kinds that it does not serve, or not to us."""


@dataclass(frozen=True, slots=True)
class WarmSeen:
    """What there is of warm pools."""

    served: bool = False
    """whether there may be any: agent-sandbox may be removed while the operator is at work."""
    claims: tuple[RolloutsSeen, ...] = ()
    pool: bool = False
    ready: int = 0
    """how many pods of the pool are ready to be taken."""


async def list_claims(kube: Kube, namespace: str, selector: str) -> tuple[list[Object], list[Object]] | None:
    """The claims and pools that a label selector matches; None where agent-sandbox is gone."""
    try:
        claims, pools = await asyncio.gather(
            kube.list("SandboxClaim", namespace, labels=selector),
            kube.list("SandboxWarmPool", namespace, labels=selector),
        )
    except ClusterError as error:
        if error.status not in _GONE:
            raise
        return None
    return claims, pools


def claim_seen(raw: Object) -> RolloutsSeen:
    """The claim of one pod of rollouts as ``decide_cluster`` sees it."""
    meta = raw["metadata"]
    conditions = raw.get("status", {}).get("conditions", ())
    true = {one["type"] for one in conditions if one.get("status") == "True"}
    return RolloutsSeen(
        name=meta["name"],
        attempt=int(meta["labels"].get(names.LABEL_ATTEMPT, "0")),
        kind="SandboxClaim",
        used_up=True,
        proven="Ready" in true,
        over="Finished" in true,
        deleting="deletionTimestamp" in meta,
    )
