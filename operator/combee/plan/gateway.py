"""Which Playbooks of a namespace its gateway serves, and whether there is to be one. Pure.

Playbooks, Deployment, Service -> observe -> GatewaySeen -> decide_gateway(seen) -> GatewayPlan -> apply
"""

from __future__ import annotations

from dataclasses import dataclass

from combee.api.gateway import Gateway
from combee.records import Owner


@dataclass(frozen=True, slots=True)
class Served:
    """A Playbook that wants a gateway."""

    owner: Owner
    gateway: Gateway
    mirrors: bool = False
    """whether its canary, or the watch after it, compares mirrored requests; they are kept."""

    @property
    def keeps_traffic(self) -> bool:
        return self.gateway.capture.enabled or self.mirrors

    @property
    def secrets(self) -> tuple[str, ...]:
        upstream, keys, store = self.gateway.upstream, self.gateway.keys, self.gateway.capture.store
        refs = (
            upstream.api_key_secret_ref if upstream is not None else None,
            keys.secret_ref if keys is not None else None,
            store.secret_ref,
        )
        return tuple(sorted({ref.name for ref in refs if ref is not None}))


@dataclass(frozen=True, slots=True)
class DeploymentSeen:
    """The Deployment of the gateway's name."""

    uid: str
    ours: bool
    """whether the operator made it."""
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class GatewaySeen:
    """A namespace's gateway, and the Playbooks that want one."""

    wanted: tuple[Served, ...] = ()
    unread: bool = False
    """whether a Playbook was written for a later release."""
    deployment: DeploymentSeen | None = None
    has_service: bool = False
    secret_policy: bool = True
    """whether the admission policy that guards Secrets is installed."""


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """What is done about the gateway of a namespace, in this order."""

    refused: tuple[Served, ...] = ()
    """Playbooks whose Secrets are not mounted, since nobody checked whether their author may read them."""
    foreign: bool = False
    """whether a Deployment has the gateway's name that the operator did not make: nothing is written."""
    serve: tuple[Served, ...] = ()
    """the Playbooks for which the Deployment is made, or changed where it differs."""
    make_service: bool = False
    delete_uid: str = ""
    """the uid of a Deployment that nobody wants any more."""
    keeps: bool = False
    """whether there is a gateway, or may be one."""


def decide_gateway(seen: GatewaySeen) -> GatewayPlan:
    """Return what the namespace's gateway needs.

    A Playbook of a later release stops everything, so that nothing it asked for is taken away.
    """
    if seen.unread:
        return GatewayPlan(keeps=True)
    served = tuple(playbook for playbook in seen.wanted if seen.secret_policy or not playbook.secrets)
    refused = tuple(playbook for playbook in seen.wanted if playbook not in served)
    deployment = seen.deployment
    if deployment is not None and not deployment.ours:
        return GatewayPlan(refused=refused, foreign=True)
    if not served:
        return GatewayPlan(refused=refused, delete_uid=deployment.uid if deployment is not None else "")
    leaving = deployment is not None and deployment.deleting
    return GatewayPlan(
        refused=refused, serve=served, make_service=not seen.has_service and not leaving, keeps=True
    )
