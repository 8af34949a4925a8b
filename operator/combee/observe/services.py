"""Read the model servers that a run refers to. They are polled: a cluster may have none of their kinds."""

from __future__ import annotations

import asyncio

from combee.api.engines import ServiceRef
from combee.api.run import RunSpec
from combee.clients.kubernetes.kube import Kube
from combee.errors import ClusterError
from combee.plan.cluster.engines import engines_in_use
from combee.plan.cluster.seen import ServiceSeen
from combee.plan.cluster.services import gateways_of, kserve_service, pool_service, routes_to, unreadable


async def see_services(kube: Kube, spec: RunSpec, namespace: str) -> dict[str, ServiceSeen]:
    """Return engine -> the server that its ``ref`` names, for the engines in use: one request for an
    LLMInferenceService, three for an InferencePool behind one Gateway. Raises ClusterError where the cluster
    does not answer."""
    used = engines_in_use(spec)
    refs = {engine.name: engine.ref for engine in spec.engines if engine.ref and engine.name in used}
    seen = await asyncio.gather(*(_service(kube, ref, namespace) for ref in refs.values()))
    return dict(zip(refs, seen, strict=True))


async def _service(kube: Kube, ref: ServiceRef, namespace: str) -> ServiceSeen:
    try:
        raw = await kube.get(ref.kind, namespace, ref.name)
        if ref.kind == "LLMInferenceService":
            return kserve_service(ref, raw)
        routes = routes_to(ref, await kube.list("HTTPRoute", namespace))
        keys = gateways_of(routes)
        gateways = await asyncio.gather(*(kube.get("Gateway", *key) for key in keys))
        return pool_service(ref, raw, routes, dict(zip(keys, gateways, strict=True)))
    except ClusterError as error:
        if error.status not in (403, 404):
            raise
        return unreadable(ref, error.what)
