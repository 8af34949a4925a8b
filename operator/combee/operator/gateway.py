"""Keep the gateway of a namespace as its Playbooks want it: made, changed in place, or taken away; and what it kept
of traffic for no longer than was said."""

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
    """``keep`` may be called at any time, as often as one likes."""

    kube: Kube
    fence: Callable[[], None]
    """raises unless we may write."""
    settings: Settings
    make_accounts: bool
    """whether accounts are made where they are needed; otherwise the chart has made them."""
    teller: Teller
    secret_policy: bool
    """whether the admission policy that guards Secrets is installed."""
    sweeper: Sweeper
    """of what the gateway has kept."""
    clock: Callable[[], float] = time.time

    async def tick(self, key: Key) -> float | None:
        """``keep`` as the queue calls it, and the sweeper's; a namespace without a gateway in which nothing is kept is
        not looked at again."""
        playbooks = await self.kube.list(names.PLAYBOOK_KIND, key[0])
        served = await self.keep(key[0], playbooks)
        kept = await self.sweeper.keep(key[0], playbooks, self.clock())
        return None if served or kept else NEVER

    async def keep(self, namespace: str, playbooks: list[Object]) -> bool:
        """Return whether there is a gateway for the Playbooks of a namespace. Two reads where nothing is to be done.
        ClusterError when something of the gateway's name is not ours."""
        observed = await see_gateway(self.kube, namespace, playbooks, secret_policy=self.secret_policy)
        plan = decide_gateway(observed.seen)
        by_name = {playbook["metadata"]["name"]: playbook for playbook in playbooks}
        for refused in plan.refused:
            await self.teller.tell(by_name[refused.owner.name], _secret_refused(refused))
        await self._apply(plan, namespace, observed.deployment)
        return plan.keeps

    async def _apply(self, plan: GatewayPlan, namespace: str, deployment: Object | None) -> None:
        """Make the plan true, each write asked of the fence first."""
        if plan.foreign:
            raise ClusterError(
                "a Deployment of the gateway's name is there that the operator did not make",
                where=f"Deployment {namespace}/{names.GATEWAY}",
                fix="Rename or delete it",
                status=409,
            )
        if plan.delete_uid:
            self.fence()
            await self.kube.delete("Deployment", namespace, names.GATEWAY, uid=plan.delete_uid)
        if plan.serve:
            deployment = await self._deploy(plan, namespace, deployment)
        if plan.make_service and deployment is not None:
            self.fence()
            owner = Owner(names.GATEWAY, namespace, deployment["metadata"]["uid"])
            await self.kube.create(gateway_service(owner))

    async def _deploy(self, plan: GatewayPlan, namespace: str, deployment: Object | None) -> Object | None:
        """Make or change the Deployment; return it as it is now, None where another one was just made."""
        wished = gateway_deployment(plan.serve, self.settings)
        if deployment is None:
            for body in gateway_account(namespace) if self.make_accounts else ():
                self.fence()
                await self.kube.create(body)
            self.fence()
            return await self.kube.create(wished)
        patch = gateway_change(wished, deployment)
        if patch is None:
            return deployment
        self.fence()
        return await self.kube.patch("Deployment", namespace, names.GATEWAY, patch)


def _secret_refused(refused: Served) -> Happening:
    """Return the Event for a Playbook whose Secrets are not mounted: nobody asked whether its author may read them."""
    message = (
        f"the gateway is not given {', '.join(refused.secrets)}: without the chart's admission policy Secrets are "
        "refused. Ask whoever installed the chart for admissionPolicy.install"
    )
    return Happening("Warning", "SecretNotAllowed", message)
