"""The names of a run's engines, and where they answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from combee import names
from combee.algo.seeds import digest_of
from combee.api.engines import Engine
from combee.api.run import RunSpec
from combee.objects.types import Settings
from combee.records import Owner

PORT = 8000
NO_SERVICES: Mapping[str, str] = {}
Answers = Literal["chat", "embeddings"]
"""What a server is for."""
_DIGITS = 16


def engine_urls(
    spec: RunSpec, owner: Owner, roles: Collection[str], services: Mapping[str, str], settings: Settings
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
        else f"http://{engine_name(spec, owner, index, settings)}.{owner.namespace}.svc:{PORT}/v1"
        for index, engine in enumerate(spec.engines)
        if engine.name in used
    }


def engine_name(spec: RunSpec, owner: Owner, index: int, settings: Settings) -> str:
    """Return the name of an engine's Deployment and Service. ``index``: its place in the spec."""
    engine = spec.engines[index]
    if engine.shared:
        return names.shared_engine_name(shared_digest(spec, engine, settings), engine.name)
    return names.engine_name(owner.name, owner.uid, index, engine.name)


def shared_digest(spec: RunSpec, engine: Engine, settings: Settings) -> str:
    """Return what says that two runs declare the same shared engine: 16 hex digits over its name, server and
    template as written, its image, and what it is for.

    Defaults are left out, so that an upgrade that adds a field names no other engine; ``settings`` have the
    images that the run began with.
    """
    declared = engine.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, include={"name", "vllm", "template"}
    )
    image = engine.server.image or settings.vllm_image
    return digest_of({"engine": declared, "image": image, "answers": answers_of(spec, engine)})[:_DIGITS]


def answers_of(spec: RunSpec, engine: Engine) -> Answers:
    """Return what an engine is for: embeddings where it serves only the embedder, else chat."""
    roles = {
        role
        for role, model in spec.roles().items()
        if model.engine_ref is not None and model.engine_ref.name == engine.name
    }
    return "embeddings" if roles == {"embedder"} else "chat"
