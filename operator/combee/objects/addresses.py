"""Where a run's engines answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from combee import names
from combee.api.run import RunSpec
from combee.records import Owner

PORT = 8000
NO_SERVICES: Mapping[str, str] = {}


def engine_urls(
    spec: RunSpec, owner: Owner, roles: Collection[str], services: Mapping[str, str]
) -> dict[str, str]:
    """Return the base addresses of the engines that ``roles`` use, by the name in the manifest.

    ``services``: engine -> the address of the server that its ``ref`` names. That of the run's own is a
    headless Service: a client sees every server behind it, and balances.
    """
    used = {
        model.engine_ref.name
        for role, model in spec.roles_in_use().items()
        if role in roles and model.engine_ref is not None
    }
    return {
        engine.name: services[engine.name]
        if engine.vllm is None
        else f"http://{names.engine_name(owner.name, owner.uid, index, engine.name)}"
        f".{owner.namespace}.svc:{PORT}/v1"
        for index, engine in enumerate(spec.engines)
        if engine.name in used
    }
