"""Where a model server answers that a run refers to, read from the objects that tell. Pure: objects in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from combee.api.common import one_line
from combee.api.engines import ServiceRef
from combee.plan.cluster.seen import ServiceSeen

Object = Mapping[str, Any]
Key = tuple[str, str]
"""The (namespace, name) of a Gateway."""
MAX_QUOTED = 300
"""The most bytes of somebody else's message that are quoted."""
_POOLS = ("inference.networking.k8s.io", "InferencePool")
_PORTS = {"http": 80, "https": 443}


def kserve_service(ref: ServiceRef, raw: Object | None) -> ServiceSeen:
    """Return how an ``LLMInferenceService`` stands: ready with an address, or what it lacks."""
    if raw is None:
        return _absent(ref)
    status, generation = raw.get("status") or {}, raw["metadata"].get("generation", 0)
    if status.get("observedGeneration", generation) < generation:
        return _lacks(ref, "KServe has not looked at its last change yet")
    if lack := _not_true(status, "Ready"):
        return _lacks(ref, lack)
    model = ref.model or str(raw["spec"].get("model", {}).get("name") or raw["metadata"]["name"])
    url = _kserve_url(status, model)
    return ServiceSeen(api_base(url), model) if url else _lacks(ref, "its status names no address")


def _kserve_url(status: Object, model: str) -> str:
    """Return the address to ask: one inside the cluster and without TLS, whose certificate only KServe's own
    pods may know; else the one that KServe prefers. An address may be for other models."""
    urls = [
        str(address["url"])
        for address in status.get("addresses") or ()
        if address.get("url") and model in _names(address, model)
    ]
    inside = (url for url in urls if url.startswith("http://") and _in_cluster(url))
    preferred = str(status.get("url") or "")
    return next(inside, "") or (preferred if preferred in urls or not urls else urls[0])


def _names(address: Object, model: str) -> list[str]:
    return [str(served["name"]) for served in address.get("models") or ()] or [model]


def _in_cluster(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host.endswith((".svc", ".svc.cluster.local"))


def routes_to(ref: ServiceRef, routes: Iterable[Object]) -> list[Object]:
    """Return the HTTPRoutes that lead to an InferencePool, by name."""
    leading = (route for route in routes if any(_leads(rule, route, ref) for rule in _rules(route)))
    return sorted(leading, key=lambda route: str(route["metadata"]["name"]))


def gateways_of(routes: Iterable[Object]) -> list[Key]:
    """Return the Gateways that took these routes."""
    return sorted({_gateway(route, parent) for route in routes for parent in _parents(route)})


def pool_service(
    ref: ServiceRef, raw: Object | None, routes: Sequence[Object], gateways: Mapping[Key, Object | None]
) -> ServiceSeen:
    """Return how an InferencePool stands: an address that leads to it, or what it lacks.

    ``routes``: of ``routes_to``; ``gateways``: those of ``gateways_of``, as far as they are there.
    """
    if raw is None:
        return _absent(ref)
    if not routes:
        return _lacks(ref, "no HTTPRoute of its namespace leads to it")
    lacks = []
    for route in routes:
        for parent in _parents(route) or [{}]:
            url, lack = _route_url(ref, route, parent, gateways)
            if url:
                return ServiceSeen(url, ref.model or "")
            lacks.append(f"HTTPRoute {route['metadata']['name']}: {lack}")
    return _lacks(ref, lacks[0])


def _route_url(
    ref: ServiceRef, route: Object, parent: Object, gateways: Mapping[Key, Object | None]
) -> tuple[str, str]:
    """Return the address by which a Gateway serves a route, or what is missing for that."""
    if not parent:
        return "", "no Gateway has taken it yet"
    for needed in ("Accepted", "ResolvedRefs"):
        if lack := _not_true(parent, needed):
            return "", lack
    key = _gateway(route, parent)
    gateway = gateways.get(key)
    if gateway is None:
        return "", f"its Gateway {'/'.join(key)} is not there"
    status = gateway.get("status") or {}
    if lack := _not_true(status, "Programmed"):
        return "", f"Gateway {'/'.join(key)}: {lack}"
    listener = _listener(gateway, parent.get("parentRef") or {})
    host = _host(route, listener, status)
    prefix = next(_prefixes(route, ref), None)
    if not listener or not host:
        return "", f"Gateway {'/'.join(key)} has no address with a listener for HTTP"
    if prefix is None:
        return "", "no rule that leads to the pool begins with a path (PathPrefix)"
    scheme = str(listener["protocol"]).lower()
    port = "" if listener["port"] == _PORTS[scheme] else f":{listener['port']}"
    return api_base(f"{scheme}://{host}{port}{prefix}"), ""


def _listener(gateway: Object, parent_ref: Object) -> Object:
    """Return the first listener that the route may use; empty when there is none."""
    section, port = parent_ref.get("sectionName"), parent_ref.get("port")
    for listener in gateway["spec"].get("listeners") or ():
        fits = section in (None, listener["name"]) and port in (None, listener["port"])
        if fits and str(listener["protocol"]).lower() in _PORTS:
            return dict(listener)
    return {}


def _host(route: Object, listener: Object, status: Object) -> str:
    names = [*(route["spec"].get("hostnames") or ()), listener.get("hostname") or ""]
    named = next((str(name) for name in names if name and not name.startswith("*")), "")
    address = next((str(one["value"]) for one in status.get("addresses") or ()), "")
    return named or (f"[{address}]" if ":" in address else address)


def _prefixes(route: Object, ref: ServiceRef) -> Iterator[str]:
    for rule in _rules(route):
        if not _leads(rule, route, ref):
            continue
        for match in rule.get("matches") or [{}]:
            path = match.get("path") or {}
            if path.get("type", "PathPrefix") == "PathPrefix":
                yield str(path.get("value", "/"))


def _rules(route: Object) -> Sequence[Object]:
    return route["spec"].get("rules") or ()


def _leads(rule: Object, route: Object, ref: ServiceRef) -> bool:
    own = route["metadata"].get("namespace")
    return any(
        (backend.get("group"), backend.get("kind"), backend.get("name")) == (*_POOLS, ref.name)
        and backend.get("namespace", own) == own
        for backend in rule.get("backendRefs") or ()
    )


def _parents(route: Object) -> list[Object]:
    """Return what Gateways say of a route; a mesh takes routes, too, and has no address."""
    parents = (route.get("status") or {}).get("parents") or ()
    return [one for one in parents if one["parentRef"].get("kind", "Gateway") == "Gateway"]


def _gateway(route: Object, parent: Object) -> Key:
    ref = parent["parentRef"]
    return str(ref.get("namespace") or route["metadata"].get("namespace", "")), str(ref["name"])


def api_base(url: str) -> str:
    """Return the base address of the OpenAI-compatible API at a server's address.

    >>> api_base("http://gw.svc/team/qwen/"), api_base("http://gw.svc/v1/chat/completions")
    ('http://gw.svc/team/qwen/v1', 'http://gw.svc/v1')
    """
    head, version, _ = f"{url.rstrip('/')}/".partition("/v1/")
    return f"{head.rstrip('/')}{(version or '/v1/').rstrip('/')}"


def _not_true(status: Object, type: str) -> str:
    """Return how a condition that must be True stands; empty when it is."""
    condition = next((one for one in status.get("conditions") or () if one.get("type") == type), None)
    if condition is None:
        return f"{type} is not known yet"
    if condition.get("status") == "True":
        return ""
    why = one_line(f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": "), MAX_QUOTED)
    return f"{type} is {condition.get('status')}" + (f" ({why})" if why else "")


def _absent(ref: ServiceRef) -> ServiceSeen:
    return _lacks(ref, "it is not there, or its kind is not installed")


def _lacks(ref: ServiceRef, lack: str) -> ServiceSeen:
    return ServiceSeen(waits_for=f"{ref.kind} {ref.name}: {lack}")


def unreadable(ref: ServiceRef, why: str) -> ServiceSeen:
    """Return a service of which the operator may not read what it must."""
    return _lacks(ref, f"the operator cannot read it ({one_line(why, MAX_QUOTED)})")
