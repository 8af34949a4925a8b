"""Role -> endpoint, for a laptop and for a pod: they differ in where an engine is and where a key lies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from urllib.parse import urlsplit

from pydantic import SecretStr

from combee.api.common import SecretKeyRef
from combee.api.engines import ServiceRef
from combee.api.parts import RoleModel
from combee.api.run import RunSpec
from combee.clients.model.wire import Endpoint
from combee.errors import BugError, CombeeError, UserError

ROLES_IN_USE = ("task", "proposer", "evaluator", "proxy", "referee", "embedder")
"""Roles that a run has a client for, in the order that they are checked in."""
OBJECTIVE_HEADERS = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
FAIRNESS_HEADERS = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
URL_FIX = "Write it like http://127.0.0.1:8000/v1, without a key in it"

EngineUrl = Callable[[str], tuple[str, str]]
"""engine name -> (base URL, where that was said)."""
KeyOf = Callable[[str, SecretKeyRef], tuple[str, str]]
"""(role, reference) -> (the key, where it comes from in the user's words)."""
EngineKey = Callable[[str], tuple[str, str]]
"""engine name -> the same; the empty key for a server that asks for none."""


def role_endpoints(
    spec: RunSpec,
    *,
    engine_url: EngineUrl,
    key_of: KeyOf,
    engine_key: EngineKey = lambda _: ("", ""),
    only: Collection[str] = ROLES_IN_USE,
    balanced: bool = False,
) -> dict[str, Endpoint]:
    """The endpoints of the roles in use, ``only`` these. UserError naming the place that holds a wrong
    URL or key.

    ``balanced``: an engine's host name stands for several servers that share the calls.
    """
    roles = spec.roles_in_use()
    return {
        role: _engine(spec, ref.name, engine_url, engine_key, balanced)
        if (ref := roles[role].engine_ref) is not None
        else _endpoint(role, roles[role], key_of)
        for role in ROLES_IN_USE
        if role in roles and role in only
    }


def _engine(
    spec: RunSpec, name: str, engine_url: EngineUrl, engine_key: EngineKey, balanced: bool
) -> Endpoint:
    engine = next(engine for engine in spec.engines if engine.name == name)
    url, where = engine_url(name)
    checked = checked_url(url, where)
    key, source = engine_key(name)
    ref = engine.ref
    return Endpoint(
        url=checked,
        model=engine.model,
        api_key=SecretStr(key),
        revision=(ref or engine.server).revision or "",
        engine_args=() if ref else engine.served_with,
        key_source=source,
        balanced=balanced and ref is None,
        headers=tuple(flow_headers(ref)) if ref else (),
    )


def flow_headers(ref: ServiceRef) -> Iterator[tuple[str, str]]:
    """Yield the headers by which a Gateway's endpoint picker orders calls: llm-d's names, and those of the
    inference extension from before that llm-d still reads and other pickers only know."""
    for value, names in ((ref.objective, OBJECTIVE_HEADERS), (ref.fairness_id, FAIRNESS_HEADERS)):
        yield from ((name, value) for name in names if value is not None)


def _endpoint(role: str, model: RoleModel, key_of: KeyOf) -> Endpoint:
    if model.endpoint is None:
        raise BugError(f"the role {role} has neither engine nor endpoint")
    key, source = "", ""
    if (ref := model.endpoint.api_key_secret_ref) is not None:
        key, source = key_of(role, ref)
    return Endpoint(
        url=checked_url(model.endpoint.url, f"spec.models.{role}.endpoint.url"),
        model=model.endpoint.model,
        api_key=SecretStr(key),
        revision=model.endpoint.revision or "",
        key_source=source,
    )


def checked_url(url: str, where: str) -> str:
    """``url`` when Endpoint and the HTTP client will take it; it is not quoted, it may hold a key."""
    try:
        parts = urlsplit(url)
        good = parts.port != 0 and bool(parts.hostname) and url.isprintable() and " " not in url
        Endpoint(url=url, model="")
    except (ValueError, CombeeError) as error:
        what = error.what if isinstance(error, CombeeError) else "not a URL"
        raise UserError(what, where=where, fix=URL_FIX) from None
    if not good:
        raise UserError("not a URL", where=where, fix=URL_FIX)
    return url


def checked_key(key: str, *, shown: str, where: str, fix: str) -> str:
    """``key`` when it can go into an HTTP header. UserError that does not show it; ``shown`` holds it."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UserError(
            f"the value of {shown} is not a key: it holds a blank, a line end or a character outside ASCII",
            where=where,
            fix=fix,
        )
    return key
