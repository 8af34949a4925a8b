"""Role -> endpoint, for a laptop and for a pod: they differ in where an engine is and where a key lies."""

from __future__ import annotations

from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from pydantic import SecretStr

from combee.api.common import SecretKeyRef
from combee.api.parts import RoleModel
from combee.api.run import RunSpec
from combee.clients.model.wire import Endpoint
from combee.errors import BugError, CombeeError, UserError

ROLES_IN_USE = ("task", "proposer", "embedder")
"""Roles that a run has a client for, in the order that they are checked in."""
URL_FIX = "Write it like http://127.0.0.1:8000/v1, without a key in it"

EngineUrl = Callable[[str], tuple[str, str]]
"""engine name -> (base URL, where that was said)."""
KeyOf = Callable[[str, SecretKeyRef], tuple[str, str]]
"""(role, reference) -> (the key, where it comes from in the user's words)."""


def role_endpoints(
    spec: RunSpec,
    *,
    engine_url: EngineUrl,
    key_of: KeyOf,
    only: Collection[str] = ROLES_IN_USE,
    balanced: bool = False,
) -> dict[str, Endpoint]:
    """The endpoints of the roles in use, ``only`` these. UserError naming the place that holds a wrong
    URL or key.

    ``balanced``: an engine's host name stands for several servers that share the calls.
    """
    roles = spec.roles_in_use()
    return {
        role: _endpoint(spec, role, roles[role], engine_url, key_of, balanced)
        for role in ROLES_IN_USE
        if role in roles and role in only
    }


def _endpoint(
    spec: RunSpec, role: str, model: RoleModel, engine_url: EngineUrl, key_of: KeyOf, balanced: bool
) -> Endpoint:
    if model.engine_ref is not None:
        engine = next(engine for engine in spec.engines if engine.name == model.engine_ref.name)
        url, where = engine_url(engine.name)
        return Endpoint(
            url=checked_url(url, where),
            model=engine.vllm.model,
            revision=engine.vllm.revision or "",
            engine_args=engine.vllm.args,
            balanced=balanced,
        )
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
    """``key`` when it can go into an HTTP header; UserError that does not show it. ``shown``: what holds it."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UserError(
            f"the value of {shown} is not a key: it holds a blank, a line end or a character outside ASCII",
            where=where,
            fix=fix,
        )
    return key
