"""Read the objects of a namespace's gateway, and which Playbooks want one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from combee import names
from combee.api.gateway import Gateway
from combee.clients.kubernetes.kube import Kube, Object
from combee.plan.gateway import DeploymentSeen, GatewaySeen, Served
from combee.plan.playbook.watch import mirrors
from combee.records import Owner


@dataclass(frozen=True, slots=True)
class GatewayObserved:
    """The facts, and the Deployment that they were read from."""

    seen: GatewaySeen
    deployment: Object | None


async def see_gateway(
    kube: Kube, namespace: str, playbooks: Iterable[Object], *, secret_policy: bool
) -> GatewayObserved:
    """Return the facts for ``decide_gateway``. This takes two reads, or one where no Playbook wants a
    gateway."""
    try:
        wishes = tuple(served for playbook in playbooks if (served := served_of(playbook)) is not None)
    except ValidationError:
        return GatewayObserved(GatewaySeen(unread=True, secret_policy=secret_policy), None)
    deployment = await kube.get("Deployment", namespace, names.GATEWAY)
    service = await kube.get("Service", namespace, names.GATEWAY) if wishes else None
    seen = GatewaySeen(
        wanted=wishes,
        deployment=_deployment_seen(deployment) if deployment is not None else None,
        has_service=service is not None,
        secret_policy=secret_policy,
    )
    return GatewayObserved(seen, deployment)


def served_of(playbook: Object) -> Served | None:
    """Return what the gateway serves for a Playbook, or None where it wants no gateway. Raises
    ValidationError when this release cannot read its gateway."""
    meta, spec = playbook["metadata"], playbook.get("spec") or {}
    if "deletionTimestamp" in meta:
        return None
    gateway = Gateway.model_validate((spec.get("delivery") or {}).get("gateway") or {})
    if not gateway.enabled:
        return None
    owner = Owner(meta["name"], meta["namespace"], meta["uid"])
    return Served(owner, gateway, mirrors(spec.get("canary")))


def _deployment_seen(deployment: Object) -> DeploymentSeen:
    meta = deployment["metadata"]
    is_ours = (meta.get("labels") or {}).get(names.LABEL_MANAGED_BY) == names.MANAGED_BY
    return DeploymentSeen(meta["uid"], is_ours, deleting="deletionTimestamp" in meta)
