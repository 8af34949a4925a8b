"""Make, change or delete the gateway of a namespace as its Playbooks want it, and sweep the traffic it has
kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from combee import names
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError
from combee.objects.gateway import (
    gateway_account,
    gateway_change,
    gateway_deployment,
    gateway_service,
)
from combee.objects.types import Settings
from combee.observe.gateway import see_gateway
from combee.operator.sweeper import Sweeper
from combee.operator.tell import Teller
from combee.operator.tick import NEVER, Key
from combee.plan.cluster.happenings import Happening
from combee.plan.gateway import GatewayPlan, Served, decide_gateway
from combee.records import Owner


@dataclass(frozen=True, slots=True)
class GatewayKeeper:
    """Keeps gateways; ``keep`` may be called at any time and as often as needed."""

    kube: Kube
    settings: Settings
    teller: Teller
    sweeper: Sweeper
    """Sweeps the traffic that the gateway has kept."""
    clock: Callable[[], float] = time.time

    async def tick(self, key: Key) -> float | None:
        """Keep the gateway of a namespace and sweep its traffic. Return NEVER where it has neither a gateway
        nor kept traffic, else None."""
        playbooks = await self.kube.list(names.PLAYBOOK_KIND, key[0])
        served = await self.keep(key[0], playbooks)
        keeps_traffic = await self.sweeper.keep(key[0], playbooks, self.clock())
        return None if served or keeps_traffic else NEVER

    async def keep(self, namespace: str, playbooks: list[Object]) -> bool:
        """Keep the gateway for the Playbooks of a namespace, and return whether there is one. This takes two
        reads where there is nothing to do. Raises ClusterError when an object of the gateway's name is not
        the operator's."""
        observed = await see_gateway(
            self.kube, namespace, playbooks, secret_policy=self.settings.secret_policy
        )
        plan = decide_gateway(observed.seen)
        by_name = {playbook["metadata"]["name"]: playbook for playbook in playbooks}
        for refused in plan.refused:
            await self.teller.tell(by_name[refused.owner.name], _secret_refused(refused))
        await self._apply(plan, namespace, observed.deployment)
        return plan.keeps

    async def _apply(self, plan: GatewayPlan, namespace: str, deployment: Object | None) -> None:
        """Carry out the plan."""
        if plan.foreign:
            raise ClusterError(
                "a Deployment of the gateway's name is there that the operator did not make",
                where=f"Deployment {namespace}/{names.GATEWAY}",
                fix="Rename or delete it",
                status=409,
            )
        if plan.delete_uid:
            await self.kube.delete("Deployment", namespace, names.GATEWAY, uid=plan.delete_uid)
        if plan.serve:
            deployment = await self._deploy(plan, namespace, deployment)
        if plan.make_service and deployment is not None:
            owner = Owner(names.GATEWAY, namespace, deployment["metadata"]["uid"])
            await self.kube.create(gateway_service(owner))

    async def _deploy(self, plan: GatewayPlan, namespace: str, deployment: Object | None) -> Object | None:
        """Make or change the Deployment and return it; None when another writer has just made or deleted
        it."""
        wanted_deployment = gateway_deployment(plan.serve, self.settings)
        if deployment is None:
            for body in gateway_account(namespace) if self.settings.make_accounts else ():
                await self.kube.create(body)
            return await self.kube.create(wanted_deployment)
        patch = gateway_change(wanted_deployment, deployment)
        if patch is None:
            return deployment
        return await self.kube.patch("Deployment", namespace, names.GATEWAY, patch)


def _secret_refused(refused: Served) -> Happening:
    """Return the Event for a Playbook whose Secrets are not mounted, since nothing has checked whether its
    author may read them."""
    message = (
        f"the gateway is not given {', '.join(refused.secrets)}: "
        "without the chart's admission policy Secrets are refused. "
        "Ask whoever installed the chart for admissionPolicy.install"
    )
    return Happening("Warning", "SecretNotAllowed", message)
