"""Where a run's engines answer, and what their objects are called."""

from __future__ import annotations

from collections.abc import Collection

from combee import names
from combee.api.parts import Engine
from combee.api.run import RunSpec
from combee.errors import BugError
from combee.manifests.types import Owner

PORT = 8000


def find_engine(spec: RunSpec, name: str) -> tuple[int, Engine]:
    """The engine that the manifest calls ``name``, and its place in the list."""
    for index, engine in enumerate(spec.engines):
        if engine.name == name:
            return index, engine
    raise BugError(f"the run has no engine {name!r}")


def object_name(spec: RunSpec, owner: Owner, name: str) -> str:
    """The name of an engine's Deployment and Service."""
    index, _ = find_engine(spec, name)
    return names.engine_name(owner.name, owner.uid, index, name)


def engine_urls(spec: RunSpec, owner: Owner, roles: Collection[str]) -> dict[str, str]:
    """Addresses of the engines that ``roles`` use, by the name in the manifest."""
    used = {
        model.engine_ref.name
        for role, model in spec.roles().items()
        if role in roles and model.engine_ref is not None
    }
    return {name: engine_url(spec, owner, name) for name in sorted(used)}


def engine_url(spec: RunSpec, owner: Owner, name: str) -> str:
    """An engine's base address: its headless Service, so a client sees every server and balances."""
    return f"http://{object_name(spec, owner, name)}.{owner.namespace}.svc:{PORT}/v1"
