"""Embeddings: a call like every other one, and no answer is believed that cannot be right."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from adapters_bench import KEY, Bench, ask, embedded, refuse, reply

from combee.clients.model.embedding import PROBE, embedding_prompt, vectors_of
from combee.clients.model.limits import RunLimits
from combee.clients.model.memo import Memo
from combee.clients.model.wire import ChatRequest
from combee.errors import BudgetExhaustedError, ContextLengthError, EndpointError, TransientError
from noted_budget import NotedBudget

TEXTS = ["a lesson", "another one"]
WANTED = [[0.25, -1.5], [3.0, 0.0]]


def texts(*given: str) -> ChatRequest:
    return ChatRequest(embedding_prompt(given or TEXTS))


async def test_vectors_come_in_the_order_of_the_texts_and_tokens_are_the_servers(bench: Bench) -> None:
    mixed = embedded(WANTED)
    mixed["data"].reverse()
    bench.server.script = [reply(mixed)]
    answered = await bench.client("embedder").ask(texts())
    found = vectors_of(answered.completion.text)
    assert found.dtype == np.float32 and found.tolist() == WANTED
    done = answered.completion
    assert (done.prompt_tokens, done.completion_tokens, done.cached_tokens) == (5, 0, 0)
    assert bench.server.asked == [{"model": "m", "input": TEXTS}]


async def test_base64_a_missing_index_and_missing_usage_are_fine(bench: Bench) -> None:
    coded = [base64.b64encode(np.array(row, dtype="<f4").tobytes()).decode() for row in WANTED]
    body = {"data": [{"embedding": row} for row in coded]}
    bench.server.script = [reply(body)]
    answered = await bench.client("embedder").ask(texts())
    assert vectors_of(answered.completion.text).tolist() == WANTED
    assert answered.completion.prompt_tokens == 2 + 3


def _without(body: dict[str, Any], place: int) -> dict[str, Any]:
    del body["data"][place]
    return body


def _with_index(index: Any) -> dict[str, Any]:
    body = embedded(WANTED)
    body["data"][1]["index"] = index
    return body


WRONG: list[tuple[str, Any]] = [
    ("count", _without(embedded(WANTED), 1)),
    ("count", embedded([*WANTED, [1.0, 1.0]])),
    ("count", _with_index(0)),
    ("count", _with_index(2)),
    ("dimension", embedded([[1.0, 2.0], [1.0]])),
    ("dimension", embedded([[], []])),
    ("nonfinite", json.dumps(embedded([[1.0, float("nan")], [1.0, 1.0]]))),
    ("nonfinite", embedded([[1e39, 1.0], [1.0, 1.0]])),
    ("malformed", embedded([["1", "2"], [1.0, 1.0]])),
    ("malformed", embedded([[True, False], [1.0, 1.0]])),
    ("malformed", embedded(["!!!!", "AAAA"])),
    ("malformed", _with_index("1")),
    ("malformed", b"<html>"),
    ("malformed", {"data": None}),
]


@pytest.mark.parametrize(("reason", "body"), WRONG)
async def test_an_answer_that_cannot_be_right_is_asked_for_again(
    reason: str, body: Any, bench: Bench
) -> None:
    bench.server.script = [reply(body)]
    answered = await bench.client("embedder").ask(texts())
    assert answered.completion.attempts == 2 and answered.completion.retried_for == (reason,)
    bench.server.always = reply(body)
    with pytest.raises(TransientError, match=reason) as caught:
        await bench.client("embedder", max_attempts=2, memo=Memo(bench.store)).ask(texts("new", "one"))
    assert "models.embedder" in caught.value.where


@pytest.mark.parametrize(
    "refusal",
    [
        refuse(404, "Not Found"),
        refuse(405, "Method Not Allowed"),
        refuse(501, "This server does not support embeddings. Start it with `--embeddings`"),
        refuse(400, "The model does not support Embeddings API"),
    ],
)
async def test_a_server_without_embeddings_says_what_to_do(refusal: Any, bench: Bench) -> None:
    bench.server.always = refusal
    with pytest.raises(EndpointError, match="gives no embeddings") as caught:
        await bench.client("embedder").ask(ChatRequest(PROBE))
    assert "spec.models.embedder" in caught.value.fix and len(bench.server.asked) == 1


async def test_other_refusals_are_those_of_every_call(bench: Bench) -> None:
    client = bench.client("embedder")
    bench.server.script = [refuse(401, KEY)]
    with pytest.raises(EndpointError, match="the API key is refused") as refused:
        await client.ask(texts("a"))
    assert KEY not in str(refused.value)
    bench.server.script = [refuse(400, "maximum context length is 512 tokens")]
    with pytest.raises(ContextLengthError) as too_long:
        await client.ask(texts("b"))
    assert "longer context" in too_long.value.fix
    bench.server.script = [refuse(429), refuse(503)]
    assert (await client.ask(texts("c"))).completion.attempts == 3


async def test_it_is_remembered_apart_from_chats_and_by_its_texts(bench: Bench) -> None:
    client = bench.client("embedder")
    first = await client.ask(texts("same"))
    again = await bench.client("embedder", memo=Memo(bench.store)).ask(texts("same"))
    assert again.hit and again.completion == first.completion
    assert not (await client.ask(texts("same", "more"))).hit
    other = bench.client("embedder", endpoint=bench.endpoint(revision="2"))
    assert not (await other.ask(texts("same"))).hit
    chat = await bench.client("task").ask(ChatRequest(embedding_prompt(["same"])))
    assert not chat.hit and chat.completion.text == "same"


async def test_budget_limits_and_records_are_those_of_every_call(bench: Bench) -> None:
    budget, limits = NotedBudget(), RunLimits(1)
    client = bench.client("embedder", limits=limits, budget=budget)
    await client.ask(texts())
    assert budget.asked == [("embedder", 2 + 3, 0, False)] and limits.in_flight == 0
    (record,) = bench.calls
    assert (record.role, record.prompt_tokens, record.error) == ("embedder", 5, "")
    with pytest.raises(BudgetExhaustedError):
        await bench.client("embedder", budget=NotedBudget(refuses=True)).ask(texts("not asked"))
    assert len(bench.server.asked) == 1


async def test_chats_go_where_they_went(bench: Bench) -> None:
    assert (await bench.client("evaluator").ask(ask("hello"))).completion.text == "hello"
