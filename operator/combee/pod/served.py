"""Which servers answered a run, in their own words: noted while they are there, for its report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from combee.clients.model.connection import ServedModel
from combee.clients.model.ready import Gate
from combee.clients.model.wire import Endpoint
from combee.clients.store.store import Store
from combee.errors import CombeeError
from combee.jsonread import read_json
from combee.work.context import WorkContext, served_path

if TYPE_CHECKING:
    from combee.report.result import ModelInfo


async def note_servers(context: WorkContext) -> None:
    """Write what the server of each role that was asked says about itself; the first word stays."""
    for role, client in context.clients.items():
        served = client.ready.answer if isinstance(client.ready, Gate) else None
        if isinstance(served, ServedModel):
            words = {"servedBy": served.owned_by, "contextTokens": served.context_tokens}
            statement = json.dumps(words).encode()
            try:
                await context.store.aput_new(served_path(context.prefix, role), statement)
            except CombeeError:
                return  # a report says that it is missing; a step does not fail for it


async def served_models(
    store: Store, prefix: str, endpoints: Mapping[str, Endpoint]
) -> tuple[dict[str, ModelInfo], list[str]]:
    """Return role -> model, and the roles whose servers were not noted."""
    # The pods of steps do not load what only a report needs.
    from combee.report.outcome import model_info

    models: dict[str, ModelInfo] = {}
    unknown: list[str] = []
    for role, endpoint in endpoints.items():
        words = ""
        try:
            words = str(read_json(await store.aget(served_path(prefix, role)) or b"").get("servedBy", ""))
        except (ValueError, AttributeError):  # gone, or damaged
            unknown.append(role)
        models[role] = model_info(endpoint.model, endpoint.host, words)
    return models, unknown
