"""Read what there is of a namespace's gateway, and which Playbooks want one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from combee import names
from combee.api.gateway import Gateway
from combee.clients.kubernetes.kube import Kube, Object
from combee.plan.gateway import DeploymentSeen, GatewaySeen, Served
from combee.records import Owner


@dataclass(frozen=True, slots=True)
class GatewayObserved:
    """The facts, and the Deployment that they were read from."""

    seen: GatewaySeen
    deployment: Object | None


async def see_gateway(
    kube: Kube, namespace: str, playbooks: Iterable[Object], *, secret_policy: bool
) -> GatewayObserved:
    """Return what ``decide_gateway`` needs: two reads, one where nobody wants a gateway."""
    try:
        wanted = tuple(one for playbook in playbooks if (one := served_of(playbook)) is not None)
    except ValidationError:
        return GatewayObserved(GatewaySeen(unread=True, secret_policy=secret_policy), None)
    deployment = await kube.get("Deployment", namespace, names.GATEWAY)
    service = await kube.get("Service", namespace, names.GATEWAY) if wanted else None
    seen = GatewaySeen(
        wanted=wanted,
        deployment=_deployment_seen(deployment) if deployment is not None else None,
        has_service=service is not None,
        secret_policy=secret_policy,
    )
    return GatewayObserved(seen, deployment)


def served_of(playbook: Object) -> Served | None:
    """Return a Playbook that wants a gateway, or None. ValidationError when this version cannot read what it asks
    for."""
    meta, spec = playbook["metadata"], playbook.get("spec") or {}
    if "deletionTimestamp" in meta:
        return None
    gateway = Gateway.model_validate((spec.get("delivery") or {}).get("gateway") or {})
    if not gateway.enabled:
        return None
    mirrors = (spec.get("canary") or {}).get("mode") == "Shadow"
    return Served(Owner(meta["name"], meta["namespace"], meta["uid"]), gateway, mirrors)


def _deployment_seen(deployment: Object) -> DeploymentSeen:
    meta = deployment["metadata"]
    ours = (meta.get("labels") or {}).get(names.LABEL_MANAGED_BY) == names.MANAGED_BY
    return DeploymentSeen(meta["uid"], ours, deleting="deletionTimestamp" in meta)
