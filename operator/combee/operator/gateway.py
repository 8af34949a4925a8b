"""Keep the gateway of a namespace as its Playbooks want it: made, changed in place, or taken away; and what it kept
of traffic for no longer than was said."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationError

from combee import names
from combee.api.gateway import Gateway
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError
from combee.objects.gateway import (
    Served,
    gateway_account,
    gateway_change,
    gateway_deployment,
    gateway_service,
)
from combee.objects.types import Owner, Settings
from combee.operator.sweeper import Sweeper
from combee.operator.tell import Teller
from combee.operator.tick import NEVER, Key
from combee.plan.cluster.happenings import Happening


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
        """Whether there is a gateway for the Playbooks of a namespace. Two reads where nothing is to be done.
        ClusterError when something of the gateway's name is not ours."""
        try:
            wanted = [(raw, one) for raw in playbooks if (one := wanting(raw)) is not None]
        except ValidationError:
            # Written for a later release: nothing is taken away from what it asked for.
            return True
        served = [one for raw, one in wanted if await self._may(raw, one)]
        there = await self.kube.get("Deployment", namespace, names.GATEWAY)
        if there is not None and not _ours(there):
            raise ClusterError(
                "a Deployment of the gateway's name is there that the operator did not make",
                where=f"Deployment {namespace}/{names.GATEWAY}",
                fix="Rename or delete it",
                status=409,
            )
        if served:
            await self._serve(namespace, served, there)
        elif there is not None:
            self.fence()
            await self.kube.delete("Deployment", namespace, names.GATEWAY, uid=there["metadata"]["uid"])
        return bool(served)

    async def _may(self, raw: Object, one: Served) -> bool:
        """Secrets are mounted only where somebody asked whether the author may get them."""
        named = secrets_of(one)
        if self.secret_policy or not named:
            return True
        said = (
            f"the gateway is not given {', '.join(named)}: without the chart's admission policy Secrets are refused. "
            "Ask whoever installed the chart for admissionPolicy.install"
        )
        await self.teller.tell(raw, Happening("Warning", "SecretNotAllowed", said))
        return False

    async def _serve(self, namespace: str, served: list[Served], there: Object | None) -> None:
        wished = gateway_deployment(served, self.settings)
        if there is None:
            if self.make_accounts:
                for body in gateway_account(namespace):
                    self.fence()
                    await self.kube.create(body)
            self.fence()
            there = await self.kube.create(wished)
        elif (patch := gateway_change(wished, there)) is not None:
            self.fence()
            there = await self.kube.patch("Deployment", namespace, names.GATEWAY, patch)
        if there is None or "deletionTimestamp" in there["metadata"]:
            return
        if await self.kube.get("Service", namespace, names.GATEWAY) is None:
            self.fence()
            await self.kube.create(gateway_service(Owner(names.GATEWAY, namespace, there["metadata"]["uid"])))


def wanting(playbook: Object) -> Served | None:
    """A Playbook that wants a gateway, or None. ValidationError when this version cannot read what it asks for."""
    meta, spec = playbook["metadata"], playbook.get("spec") or {}
    if "deletionTimestamp" in meta:
        return None
    gateway = Gateway.model_validate((spec.get("delivery") or {}).get("gateway") or {})
    if not gateway.enabled:
        return None
    mirrors = (spec.get("canary") or {}).get("mode") == "Shadow"
    return Served(Owner(meta["name"], meta["namespace"], meta["uid"]), gateway, mirrors)


def secrets_of(one: Served) -> list[str]:
    """Names of the Secrets that a gateway is given for a Playbook."""
    upstream, keys, store = one.gateway.upstream, one.gateway.keys, one.gateway.capture.store
    refs = (
        upstream.api_key_secret_ref if upstream is not None else None,
        keys.secret_ref if keys is not None else None,
        store.secret_ref,
    )
    return sorted({ref.name for ref in refs if ref is not None})


def _ours(there: Object) -> bool:
    return (there["metadata"].get("labels") or {}).get(names.LABEL_MANAGED_BY) == names.MANAGED_BY
