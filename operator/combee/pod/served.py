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
from combee.work.context import WorkContext

if TYPE_CHECKING:
    from combee.report.result import ModelInfo


async def note_servers(context: WorkContext) -> None:
    """Write what the server of each role that was asked says about itself; the first word stays."""
    for role, client in context.clients.items():
        served = client.ready.answer if isinstance(client.ready, Gate) else None
        if isinstance(served, ServedModel):
            statement = json.dumps({"servedBy": served.owned_by}).encode()
            try:
                await context.store.aput_new(_path(context.prefix, role), statement)
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
        data = await store.aget(_path(prefix, role))
        words = str(json.loads(data).get("servedBy", "")) if data else ""
        unknown += [] if data else [role]
        models[role] = model_info(endpoint.model, endpoint.host, words)
    return models, unknown


def _path(prefix: str, role: str) -> str:
    return f"{prefix}/models/{role}.json"
