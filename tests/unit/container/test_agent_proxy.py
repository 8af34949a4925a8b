"""The endpoint for a container's agent: OpenAI's protocol, with the run's memo, budget and limits behind
it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from answering import Reply, Request, answering
from combee.api.sampling import Sampling
from combee.clients.model.agents import AGENT
from combee.clients.model.chat import CallRecord, ChatClient, ConnectionPool, Endpoint
from combee.clients.model.limits import RunLimits
from combee.clients.model.memo import Memo
from combee.clients.model.proxy import ModelProxy
from combee.clients.store.store import Store
from noted_budget import NotedBudget

if TYPE_CHECKING:
    from openai import AsyncOpenAI

CALL = {"id": "c1", "type": "function", "function": {"name": "feel", "arguments": "{}"}}
TOOLS = [{"type": "function", "function": {"name": "feel", "parameters": {"type": "object"}}}]
ASK = [{"role": "user", "content": "How much?"}]


@dataclass
class Upstream:
    """A model that calls a tool first; ``status`` above 200 refuses."""

    url: str = ""
    status: int = 200
    said: str = "no"
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        done = any(message["role"] == "tool" for message in body["messages"])
        message = {"role": "assistant", "content": "WATER 1 ml" if done else None}
        if not done:
            message["tool_calls"] = [CALL]  # type: ignore[assignment]
        finish = "stop" if done else "tool_calls"
        choice = {"index": 0, "finish_reason": finish, "message": message}
        return {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    served = Upstream()

    def answer(request: Request) -> Reply:
        body = json.loads(request.body)
        served.bodies.append(body)
        reply = served.answer(body) if served.status == 200 else {"error": {"message": served.said}}
        return served.status, {}, json.dumps(reply).encode()

    with answering(answer) as server:
        served.url = f"{server.url}/v1"
        yield served


@dataclass
class Bench:
    proxy: ModelProxy
    records: list[CallRecord]

    def client(self, key: str) -> AsyncOpenAI:
        from openai import AsyncOpenAI  # it takes a second to import

        return AsyncOpenAI(base_url=self.proxy.url, api_key=key, max_retries=0)


async def _never(seconds: float) -> None:
    return None


def drive(upstream: Upstream, folder: Path, work: Any, *, budget: Any = None, attempts: int = 2) -> Any:
    """Run ``work(bench)`` with a proxy on a store in ``folder``."""

    async def driven() -> Any:
        records: list[CallRecord] = []
        store, pool = Store.open(str(folder)), ConnectionPool()
        client = ChatClient(
            Endpoint(upstream.url, "the-model"),
            AGENT,
            Memo(store),
            RunLimits(4),
            pool=pool,
            budget=budget,
            on_call=records.append,
            max_attempts=attempts,
            sleep=_never,
        )
        proxy = ModelProxy(client)
        try:
            async with proxy.serve():
                return await work(Bench(proxy, records))
        finally:
            await pool.aclose()
            store.close()

    return asyncio.run(driven())


def test_an_agent_with_tools_is_served_and_what_it_asked_is_remembered(
    upstream: Upstream, tmp_path: Path
) -> None:
    async def talk(bench: Bench) -> tuple[str | None, int]:
        with bench.proxy.admit(0, sampling=Sampling(temperature=0.3, topP=0.9)) as visit:
            client = bench.client(visit.key)
            assert [model.id async for model in client.models.list()] == ["the-model"]
            first = await client.chat.completions.create(model="whatever", messages=ASK, tools=TOOLS)  # type: ignore[arg-type,call-overload]
            (call,) = first.choices[0].message.tool_calls
            told = [
                *ASK,
                {"role": "assistant", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": call.id, "content": "dry"},
            ]
            second = await client.chat.completions.create(
                model="m", messages=told, tools=TOOLS, max_tokens=50
            )  # type: ignore[arg-type,call-overload]
            assert second.usage.total_tokens == 10
            assert (visit.calls, visit.prompt_tokens, visit.completion_tokens) == (2, 14, 6)
            return second.choices[0].message.content, sum(not record.hit for record in bench.records)

    assert drive(upstream, tmp_path, talk) == ("WATER 1 ml", 2)
    assert drive(upstream, tmp_path, talk) == ("WATER 1 ml", 0)
    first, second = upstream.bodies
    assert first["model"] == "the-model"
    assert (first["temperature"], first["top_p"], first["max_tokens"], first["seed"]) == (0.3, 0.9, 4096, 0)
    assert first["tools"] == TOOLS
    assert second["max_tokens"] == 50


def test_a_repeat_of_an_example_is_asked_anew(upstream: Upstream, tmp_path: Path) -> None:
    async def talk(bench: Bench) -> None:
        for ordinal in (0, 1, 0):
            with bench.proxy.admit(ordinal) as visit:
                await bench.client(visit.key).chat.completions.create(model="m", messages=ASK)  # type: ignore[arg-type,call-overload]

    drive(upstream, tmp_path, talk)
    assert [body["seed"] for body in upstream.bodies] == [0, 1]


def test_a_stream_has_the_whole_answer(upstream: Upstream, tmp_path: Path) -> None:
    async def talk(bench: Bench) -> list[Any]:
        with bench.proxy.admit(0) as visit:
            stream = await bench.client(visit.key).chat.completions.create(  # type: ignore[call-overload]
                model="m", messages=ASK, stream=True, stream_options={"include_usage": True}
            )
            return [chunk async for chunk in stream]

    chunks = drive(upstream, tmp_path, talk)
    assert chunks[0].choices[0].delta.tool_calls[0].function.name == "feel"
    assert chunks[1].choices[0].finish_reason == "tool_calls"
    assert chunks[2].usage.total_tokens == 10
    assert "stream" not in upstream.bodies[0]


def test_a_key_is_good_for_its_rollout_alone(upstream: Upstream, tmp_path: Path) -> None:
    async def talk(bench: Bench) -> list[int]:
        with bench.proxy.admit(0) as visit:
            key = visit.key
        found = []
        async with httpx2.AsyncClient(timeout=120) as client:
            for headers in ({"Authorization": f"Bearer {key}"}, {"Authorization": key}, {}):
                sent = await client.post(
                    f"{bench.proxy.url}/chat/completions", json={"messages": ASK}, headers=headers
                )
                found.append(sent.status_code)
        return found

    assert drive(upstream, tmp_path, talk) == [401, 401, 401]
    assert upstream.bodies == []


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'{"messages": []}', 400),
        (b'{"messages": [1]}', 400),
        (b'{"messages": [{"role": "user", "content": "x"}], "n": 2}', 400),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": -1}', 400),
        (b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}', 400),
        (b" " * (8 * 1024 * 1024 + 1), 413),
    ],
)
def test_a_request_that_is_none_is_the_agents_to_mend(
    upstream: Upstream, tmp_path: Path, content: bytes, status: int
) -> None:
    async def talk(bench: Bench) -> tuple[int, Any, bool]:
        with bench.proxy.admit(0) as visit:
            async with httpx2.AsyncClient(timeout=120) as client:
                headers = {"Authorization": f"Bearer {visit.key}"}
                sent = await client.post(
                    f"{bench.proxy.url}/chat/completions", content=content, headers=headers
                )
            return sent.status_code, visit.lost, visit.fatal.done()

    assert drive(upstream, tmp_path, talk) == (status, None, False)
    assert upstream.bodies == []


def refused(upstream: Upstream, folder: Path, **more: Any) -> tuple[int, str, str, str]:
    """Status and code that the agent gets; what it means for the rollout, and for the run."""

    async def talk(bench: Bench) -> tuple[int, str, str, str]:
        with bench.proxy.admit(0) as visit:
            async with httpx2.AsyncClient(timeout=120) as client:
                headers = {"Authorization": f"Bearer {visit.key}"}
                sent = await client.post(
                    f"{bench.proxy.url}/chat/completions", json={"messages": ASK}, headers=headers
                )
            fatal = visit.fatal.result().code if visit.fatal.done() else ""
            return (
                sent.status_code,
                sent.json()["error"]["code"],
                visit.lost.code if visit.lost else "",
                fatal,
            )

    found: tuple[int, str, str, str] = drive(upstream, folder, talk, **more)
    return found


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (400, "tools are not well formed", (400, "invalid_request_error", "", "")),
        (400, "maximum context length is 8", (400, "context_length_exceeded", "", "")),
        (503, "busy", (503, "no_answer", "Transient", "")),
        (401, "bad key", (503, "unavailable", "", "Endpoint")),
    ],
)
def test_what_the_model_refuses_is_the_agents_the_rollouts_or_the_runs_matter(
    upstream: Upstream, tmp_path: Path, status: int, said: str, expected: tuple[int, str, str, str]
) -> None:
    upstream.status, upstream.said = status, said
    assert refused(upstream, tmp_path, attempts=2) == expected


def test_a_spent_budget_ends_the_run_and_the_agent_is_told_so(upstream: Upstream, tmp_path: Path) -> None:
    spent = NotedBudget(refuses=True)
    assert refused(upstream, tmp_path, budget=spent) == (429, "insufficient_quota", "", "BudgetExhausted")
    ((role, _, tokens, _),) = spent.asked
    assert role == "agent"
    assert tokens >= 4096
