"""What servers other than vLLM say, on their own replies, all of SmolLM2-135M-Instruct.

``tests/record_servers.py`` recorded them: llama.cpp's server of xllamacpp 2026.10.11549, ``transformers
serve`` 5.19.0, LiteLLM's proxy 1.108.7 before vLLM, and the same with a provider that takes no seed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from adapters_bench import Behaviour, Bench, ask
from starlette.requests import Request
from starlette.responses import Response

from combee.api.sampling import Sampling
from combee.clients.model.embedding import PROBE
from combee.clients.model.wire import ChatRequest
from combee.errors import ContextLengthError, EndpointError
from combee.work.traffic.record import answer_record
from record_servers import MODEL, NAMES, facts

RECORDED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("servers.json").read_text())
LLAMA, TRANSFORMERS, LITELLM = NAMES
EVERY = pytest.mark.parametrize("name", NAMES)


def said(name: str, what: str) -> Behaviour:
    """Answer as the server did."""
    one = RECORDED[name][what]

    async def behave(_: Request, __: dict[str, Any]) -> Response:
        body = one["body"] if isinstance(one["body"], str) else json.dumps(one["body"])
        return Response(body, one["status"], media_type="application/json")

    return behave


@EVERY
async def test_the_model_is_among_those_that_are_listed(bench: Bench, name: str) -> None:
    bench.server.models_script = [said(name, "models")]
    served = await bench.client(endpoint=bench.endpoint(model=MODEL)).check()
    assert served.context_tokens == (4096 if name == LLAMA else None)
    assert bench.server.asked == []


async def test_a_server_that_cannot_list_a_models_folder_is_asked_for_a_token(bench: Bench) -> None:
    bench.server.models_script = [said(f"{TRANSFORMERS} FOLDER", "models")]
    assert (await bench.client().check()).id == "m"
    assert len(bench.server.asked) == 1


@EVERY
async def test_a_schema_is_followed_or_given_in_words_in_the_end(bench: Bench, name: str) -> None:
    bench.server.always = said(name, "schema")
    client = bench.client()
    texts = [(await client.ask(ask(text, schema=True))).completion.text for text in "abcd"]
    in_words = ["follow this JSON schema" in body["messages"][-1]["content"] for body in bench.server.asked]
    assert in_words == [False, False, False, name == TRANSFORMERS]
    if name != TRANSFORMERS:
        assert all(set(json.loads(text)) == {"colour", "animals"} for text in texts)


@EVERY
async def test_tokens_are_those_that_the_server_counts(bench: Bench, name: str) -> None:
    bench.server.script = [said(name, "seed")]
    done = (await bench.client().ask(ask())).completion
    usage = RECORDED[name]["seed"]["body"]["usage"]
    assert (done.prompt_tokens, done.completion_tokens) == (37, usage["completion_tokens"])
    assert done.cached_tokens == usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)


@EVERY
async def test_thinking_without_a_budget_of_its_own_is_asked_for_again(bench: Bench, name: str) -> None:
    bench.server.script = [said(name, "thinking")]
    await bench.client().ask(ask(sampling=Sampling(reasoningTokens=10)))
    sent = ["thinking_token_budget" in body for body in bench.server.asked]
    assert sent == ([True] if name == LLAMA else [True, False])


async def test_a_provider_without_seed_is_asked_without_it(bench: Bench) -> None:
    bench.server.script = [said("LiteLLM, a provider without seed", "seed")]
    await bench.client().ask(ask())
    assert ["seed" in body for body in bench.server.asked] == [True, False]


@pytest.mark.parametrize("name", [LLAMA, LITELLM])
async def test_a_prompt_over_the_context_is_called_that(bench: Bench, name: str) -> None:
    bench.server.always = said(name, "too long")
    with pytest.raises(ContextLengthError, match="longer than the model's context"):
        await bench.client().ask(ask())


@EVERY
async def test_a_server_without_embeddings_is_called_that(bench: Bench, name: str) -> None:
    bench.server.always = said(name, "embeddings")
    with pytest.raises(EndpointError, match="gives no embeddings"):
        await bench.client("embedder").ask(ChatRequest(PROBE))


@EVERY
def test_a_stream_is_put_together_again(name: str) -> None:
    kept = answer_record(RECORDED[name]["stream"]["body"].encode(), streamed=True)
    assert kept is not None
    assert (kept["content"], kept["finish_reason"]) == ("The colour of the", "length")
    assert kept["usage"]["completion_tokens"] == 4


@EVERY
def test_the_table_says_what_the_servers_do(name: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / "engines.md").read_text()
    table = [line.strip("| ").split(" | ") for line in text.split("\n") if line.startswith("| ")]
    heads = next(row for row in table if "llama.cpp's server" in row)
    column = next(place for place, head in enumerate(heads, 1) if name in head)
    said_of = {
        row[0]: row[column].split(":")[0].split(",")[0].split(";")[0] for row in table if len(row) == 5
    }
    assert {what: said_of[what] for what in facts(RECORDED[name])} == {
        what: "yes" if holds else "no" for what, holds in facts(RECORDED[name]).items()
    }
