"""Headers of a server that is referred to: what they hold, that each request has them, that no key has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from adapters_bench import Bench, ask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from combee.api.engines import ServiceRef
from combee.assembly.endpoints import flow_headers
from combee.clients.model.chat import ConnectionPool
from combee.clients.model.wire import CanonicalRequest

BOTH = {
    "x-llm-d-inference-objective": "learning",
    "x-gateway-inference-objective": "learning",
    "x-llm-d-inference-fairness-id": "team-a/x",
    "x-gateway-inference-fairness-id": "team-a/x",
}


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({}, {}),
        ({"objective": "learning"}, {n: v for n, v in BOTH.items() if n.endswith("objective")}),
        ({"objective": "learning", "fairnessId": "team-a/x"}, BOTH),
    ],
)
def test_the_fields_become_headers(fields: dict[str, str], headers: dict[str, str]) -> None:
    ref = ServiceRef.model_validate({"kind": "LLMInferenceService", "name": "qwen", **fields})
    assert dict(flow_headers(ref)) == headers


async def test_each_request_has_them_and_no_key_of_the_memo(bench: Bench) -> None:
    asked: list[dict[str, str]] = []

    async def models(request: Request, _: object) -> Response:
        asked.append(dict(request.headers))
        return JSONResponse({"data": [{"id": "m"}]})

    bench.server.models_script = [models]
    plain = bench.endpoint()
    flowing = replace(plain, headers=tuple(BOTH.items()))
    pool = ConnectionPool()
    await pool.to(flowing).models()
    await bench.client(endpoint=flowing, pool=pool).ask(ask("hello"))
    await pool.aclose()
    (called,) = bench.server.headers
    assert BOTH.items() <= called.items() and BOTH.items() <= asked[0].items()
    again = await bench.client(endpoint=plain).ask(ask("hello"))
    assert again.hit and len(bench.server.asked) == 1
    assert CanonicalRequest(plain, ask()).key == CanonicalRequest(flowing, ask()).key
