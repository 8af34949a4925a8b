"""Every way in which a server misbehaves, and what the client makes of it."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from typing import Any

import pytest
from adapters_bench import LATE, Behaviour, Bench, Server, answer, ask, refuse, reply, slow, truncated

from combee.clients.backoff import wait_seconds
from combee.clients.model.wire import ChatRequest
from combee.errors import ContextLengthError, EndpointError, TransientError
from combee.records import Message, Prompt

DATE = {"Date": formatdate(1_000_000, usegmt=True), "Retry-After": formatdate(1_000_007, usegmt=True)}


@pytest.mark.parametrize(
    ("behaviour", "reason", "at_least"),
    [
        pytest.param(refuse(429, headers={"Retry-After": "3"}), "429", 3.0, id="429, seconds"),
        pytest.param(refuse(429, headers={"retry-after-ms": "2500"}), "429", 2.5, id="429, milliseconds"),
        pytest.param(refuse(503, headers=DATE), "503", 7.0, id="503, a date by the server's own clock"),
        pytest.param(refuse(429, headers={"Retry-After": "9999"}), "429", 120.0, id="429, capped"),
        pytest.param(refuse(429, headers={"Retry-After": "soon"}), "429", 0.0, id="429, unreadable"),
        pytest.param(refuse(500), "500", 0.0, id="500"),
        pytest.param(refuse(502), "502", 0.0, id="502"),
        pytest.param(refuse(408), "408", 0.0, id="408"),
        pytest.param(truncated, "reset", 0.0, id="truncated body"),
        pytest.param(reply(b'{"choices": ['), "malformed", 0.0, id="half a document"),
        pytest.param(reply(b"<html>"), "malformed", 0.0, id="a page"),
        pytest.param(reply({"choices": []}), "malformed", 0.0, id="no choices"),
        pytest.param(reply(b"[1]"), "malformed", 0.0, id="another shape"),
        pytest.param(reply(answer(finish_reason="abort")), "aborted", 0.0, id="stopped in the middle"),
    ],
)
async def test_passing_trouble_is_waited_out(
    bench: Bench, behaviour: Behaviour, reason: str, at_least: float
) -> None:
    bench.server.script = [behaviour]
    answered = await bench.client().ask(ask())
    assert answered.completion.attempts == 2 and len(bench.server.asked) == 2
    (wait,) = bench.time.waits
    assert at_least <= wait <= at_least + 0.5
    assert bench.calls[0].retried_for == answered.completion.retried_for == (reason,)
    again = await bench.client().ask(ask())
    assert again.hit and again.completion == answered.completion, "the memo keeps what it took"


async def test_a_call_that_keeps_failing_ends_and_is_not_remembered(bench: Bench) -> None:
    bench.server.always = refuse(503)
    client = bench.client(max_attempts=4)
    with pytest.raises(TransientError, match="no answer after 4 attempts"):
        await client.ask(ask())
    assert len(bench.server.asked) == 4 and len(bench.time.waits) == 3
    assert bench.calls[0].error == "Transient" and bench.calls[0].attempts == 4
    bench.server.always = None
    assert not (await client.ask(ask())).hit


def test_waits_grow_are_capped_and_the_same_in_every_process() -> None:
    waits = [wait_seconds("k", attempt, None) for attempt in range(1, 40)]
    assert all(0 <= wait <= min(30.0, 0.5 * 2.0**i) for i, wait in enumerate(waits))
    assert waits == [wait_seconds("k", attempt, None) for attempt in range(1, 40)]
    assert wait_seconds("k", 1, None) != wait_seconds("other", 1, None)
    assert wait_seconds("k", 3, 5.0) == wait_seconds("k", 3, None) + 5.0


async def test_a_hang_is_cut_at_the_deadline_and_tried_once_more(bench: Bench) -> None:
    bench.server.always = slow(LATE)

    async def patient_from_now_on(_: float) -> None:
        bench.server.always = None
        client.deadline_seconds = LATE

    client = bench.client(deadline_seconds=0.2, sleep=patient_from_now_on)
    began = time.monotonic()
    answered = await client.ask(ask())
    assert answered.completion.attempts == 2 and answered.completion.retried_for == ("timeout",)
    assert answered.completion.latency_seconds < time.monotonic() - began - 0.2, "that of the second attempt"
    bench.server.always = slow(LATE)
    with pytest.raises(TransientError, match="timeout, timeout"):
        await bench.client(deadline_seconds=0.2).ask(ask("another"))


async def test_slow_is_not_an_error(bench: Bench) -> None:
    bench.server.script = [slow(0.3)]
    answered = await bench.client().ask(ask())
    assert answered.completion.attempts == 1 and answered.completion.latency_seconds >= 0.3


@pytest.fixture
async def resetting() -> AsyncIterator[dict[str, Any]]:
    """A port that reads a request and answers with a TCP reset."""
    seen: dict[str, Any] = {"requests": 0}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        seen["requests"] += 1
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    seen["url"] = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    yield seen
    listening.close()


async def test_a_reset_connection_is_tried_again(bench: Bench, resetting: dict[str, Any]) -> None:
    client = bench.client(endpoint=bench.endpoint(url=resetting["url"]), max_attempts=3)
    with pytest.raises(TransientError, match="reset, reset, reset"):
        await client.ask(ask())
    assert resetting["requests"] == 3


async def test_nobody_listening_is_passing_for_a_call_and_final_for_the_check(bench: Bench) -> None:
    client = bench.client(endpoint=bench.endpoint(url="http://127.0.0.1:9/v1"), max_attempts=2)
    with pytest.raises(TransientError):
        await client.ask(ask())
    bench.time.waits.clear()
    with pytest.raises(EndpointError, match=r"cannot be reached.*listening at http://127.0.0.1:9/v1"):
        await client.check()
    assert bench.time.waits == [], "the user waited for the back-off"


@pytest.mark.parametrize(
    ("behaviour", "kind", "words"),
    [
        pytest.param(refuse(401), EndpointError, "API key is refused.*--secret vendor", id="wrong key"),
        pytest.param(refuse(403), EndpointError, "API key is refused", id="forbidden"),
        pytest.param(
            refuse(404, "no such path"),
            EndpointError,
            r"refuses the request \(404\): .*no such path.*Check the endpoint's URL",
            id="404 though it lists the model",
        ),
        pytest.param(
            refuse(400, "This model's maximum context length is 4096 tokens", code="context_length_exceeded"),
            ContextLengthError,
            "longer than the model's context.*maxInputTokens",
            id="context",
        ),
        pytest.param(refuse(413, "too large"), ContextLengthError, "longer", id="413"),
        pytest.param(refuse(400, "temperature must be at most 2"), EndpointError, "at most 2", id="400"),
        pytest.param(refuse(429, code="insufficient_quota"), EndpointError, "no credit left", id="quota"),
        pytest.param(refuse(501), EndpointError, "refuses the request", id="501"),
        pytest.param(refuse(307, headers={"Location": "/v2"}), EndpointError, "redirects", id="redirect"),
    ],
)
async def test_a_refusal_is_final_and_not_remembered(
    bench: Bench, behaviour: Behaviour, kind: type[EndpointError], words: str
) -> None:
    bench.server.script = [behaviour]
    client = bench.client()
    with pytest.raises(kind, match=words) as caught:
        await client.ask(ask())
    assert type(caught.value) is kind and "models.task (127.0.0.1:" in str(caught.value)
    assert len(bench.server.asked) == 1 and bench.time.waits == []
    assert bench.calls[0].error == kind.code
    assert not (await client.ask(ask())).hit


@pytest.mark.parametrize("status", [404, 400])
async def test_an_unknown_model_is_told_what_is_served(bench: Bench, status: int) -> None:
    bench.server.always = refuse(status, "Model Not Exist")
    client = bench.client(endpoint=bench.endpoint(model="gpt-nope"))
    for i in range(3):
        with pytest.raises(EndpointError, match=r"'gpt-nope' is not served there. It serves: m, other"):
            await client.ask(ask(str(i)))
    assert bench.server.models_asked == 1


async def test_equal_requests_share_a_refusal(bench: Bench) -> None:
    bench.server.script = [refuse(400, "no"), refuse(400, "never asked")]
    client = bench.client()
    results = await asyncio.gather(*(client.ask(ask()) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(result, EndpointError) for result in results)
    assert len(bench.server.asked) == 1


async def test_an_echo_of_the_prompt_is_cut_from_the_message(bench: Bench) -> None:
    bench.server.script = [refuse(422, "bad input: 'what is six times seven' is not allowed")]
    with pytest.raises(EndpointError) as caught:
        await bench.client().ask(ask())
    assert "bad input" in str(caught.value) and "six times" not in str(caught.value)


@pytest.mark.parametrize("status", [400, 422])
async def test_a_server_without_response_format_is_asked_in_words_from_then_on(
    bench: Bench, status: int
) -> None:
    bench.server.script = [refuse(status, "response_format type json_schema is not supported")]
    client = bench.client()
    await client.ask(ask("a", schema=True))
    await client.ask(ask("b", schema=True))
    first, second, third = bench.server.asked
    assert "response_format" in first and "response_format" not in second and "response_format" not in third
    assert "follow this JSON schema" in second["messages"][-1]["content"]
    assert '"required":["answer"]' in second["messages"][-1]["content"]
    assert bench.calls[0].retried_for == ("response_format",) and bench.time.waits == []
    assert (await client.ask(ask("a", schema=True))).hit, "the key does not depend on how it was asked"


async def test_a_server_that_complains_about_it_still_is_believed(bench: Bench) -> None:
    bench.server.always = refuse(400, "response_format is not supported")
    with pytest.raises(EndpointError, match="even without response_format"):
        await bench.client().ask(ask(schema=True))
    assert len(bench.server.asked) == 2


PROSE = "It is $\\frac{84}{2}$."


async def test_a_server_that_ignores_schemas_gets_them_in_words(bench: Bench) -> None:
    bench.server.always = reply(answer(PROSE))
    client = bench.client()
    for text in "abcd":
        done = (await client.ask(ask(text, schema=True))).completion
        assert (done.text, done.attempts) == (PROSE, 1), "what was answered stands, and is charged"
    assert ["response_format" in sent for sent in bench.server.asked] == [True, True, True, False]
    assert "follow this JSON schema" in bench.server.asked[3]["messages"][-1]["content"]


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(answer('Here it is: {"answer" = 42'), id="an object, if broken"),
        pytest.param(answer("It is", finish_reason="length"), id="cut"),
        pytest.param(answer(""), id="nothing"),
    ],
)
async def test_what_shows_no_ignored_schema_changes_nothing(bench: Bench, kept: dict[str, Any]) -> None:
    bench.server.always = reply(kept)
    client = bench.client()
    for text in "abcd":
        await client.ask(ask(text, schema=True))
    assert all("response_format" in sent for sent in bench.server.asked) and len(bench.server.asked) == 4


async def test_a_server_that_once_followed_a_schema_is_believed_for_good(bench: Bench) -> None:
    bench.server.script = [reply(answer("It is 42.")), reply(answer('{"answer": "42"}'))]
    bench.server.always = reply(answer("It is 42."))
    client = bench.client()
    for text in "abcdef":
        await client.ask(ask(text, schema=True))
    assert all("response_format" in sent for sent in bench.server.asked)


async def test_a_server_that_takes_no_bounds_gets_the_schema_without_them(bench: Bench) -> None:
    """As OpenAI refuses keywords in strict schemas."""
    entry = {"type": "object", "properties": {"maxLength": {"type": "string", "maxLength": 9}}}
    schema = {
        "type": "object",
        "properties": {"entries": {"type": "array", "items": entry, "maxItems": 3}},
    }
    bench.server.always = reply(answer('{"entries": []}'))
    refusal = "Invalid schema for response_format 'x': In context=(), 'maxLength' is not permitted."
    bench.server.script = [refuse(400, refusal, param="response_format")]
    await bench.client().ask(ChatRequest(Prompt((Message("user", "q"),), "x", schema)))
    first, second = (sent["response_format"]["json_schema"]["schema"] for sent in bench.server.asked)
    assert first == schema
    assert second["properties"]["entries"] == {
        "type": "array",
        "items": {"type": "object", "properties": {"maxLength": {"type": "string"}}},
    }


async def test_newer_and_stricter_servers_are_met_halfway(bench: Bench) -> None:
    bench.server.script = [
        refuse(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.", param="max_tokens"),
        refuse(422, "Extra inputs are not permitted", param="seed"),
    ]
    await bench.client().ask(ask())
    last = bench.server.asked[-1]
    assert last["max_completion_tokens"] == 1024 and "max_tokens" not in last and "seed" not in last


async def test_a_reply_without_usage_or_with_odd_text_is_read(bench: Bench) -> None:
    bare = answer("x" * 40)
    del bare["usage"]
    odd = answer()
    odd["choices"][0]["message"]["content"] = [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "\ud800b"},
    ]
    empty = answer()
    empty["choices"][0]["message"]["content"] = None
    bench.server.script = [reply(bare), reply(odd), reply(empty)]
    client = bench.client()
    counted = (await client.ask(ask("1"))).completion
    assert (counted.completion_tokens, counted.cached_tokens) == (10, 0) and counted.prompt_tokens > 0
    assert (await client.ask(ask("2"))).completion.text == "a\ufffdb"
    assert (await client.ask(ask("3"))).completion.text == ""


async def test_the_check_gives_the_servers_own_words(bench: Bench) -> None:
    served = await bench.client().check()
    assert (served.id, served.owned_by, served.context_tokens) == ("m", "tests", 4096)
    assert bench.server.asked == []


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        pytest.param(refuse(401), "API key is refused", id="wrong key"),
        pytest.param(refuse(404), "does it end in /v1", id="wrong path"),
        pytest.param(
            reply({"data": [{"id": "other"}]}), "'m' is not served there. It serves: other", id="model"
        ),
        pytest.param(reply(b"<html>"), "does it end in /v1", id="a page"),
        pytest.param(reply({"data": [{"name": "m"}]}), "does it end in /v1", id="another shape"),
    ],
)
async def test_the_check_says_what_is_wrong(
    server: Server, bench: Bench, behaviour: Behaviour, words: str
) -> None:
    server.models_script = [behaviour]
    server.always = refuse(404)
    with pytest.raises(EndpointError, match=words):
        await bench.client().check()


@pytest.mark.parametrize(
    "behaviour",
    [refuse(404), refuse(405), refuse(500), refuse(501), reply(b"<html>"), reply({"data": []})],
)
@pytest.mark.parametrize("role", ["task", "embedder"])
async def test_a_server_without_a_list_is_asked_for_a_token(
    bench: Bench, behaviour: Behaviour, role: str
) -> None:
    bench.server.models_script = [behaviour] * 2
    served = await bench.client(role).check()
    assert (served.id, served.context_tokens) == ("m", None)
    (asked,) = bench.server.asked
    assert asked.get("max_tokens", 1) == 1 and ("input" in asked) == (role == "embedder")
    bench.server.always = refuse(401)
    with pytest.raises(EndpointError, match="API key is refused"):
        await bench.client(role).check()


async def test_a_server_without_a_list_that_refuses_the_token_says_why(bench: Bench) -> None:
    bench.server.models_script = [refuse(404)] * 4
    bench.server.script = [refuse(400, "no chat template"), refuse(429), refuse(503), reply(answer())]
    with pytest.raises(EndpointError, match="no chat template"):
        await bench.client().check()
    served = await bench.client().check()
    assert served.id == "m" and len(bench.time.waits) == 2


async def test_a_server_without_a_list_may_want_another_parameter_for_the_token(bench: Bench) -> None:
    bench.server.models_script = [refuse(404)]
    bench.server.script = [refuse(400, "max_tokens is unsupported: use max_completion_tokens")]
    assert (await bench.client().check()).id == "m"


async def test_a_server_without_a_list_that_gives_no_token_is_waited_for_once(bench: Bench) -> None:
    bench.server.models_script = [refuse(404)]
    bench.server.always = slow(LATE)
    with pytest.raises(TransientError, match=r"no answer after 1 attempt \(timeout\)"):
        await bench.client(deadline_seconds=0.1).check()
    assert len(bench.server.asked) == 1 and bench.time.waits == []


async def test_the_check_waits_for_a_server_that_is_starting(bench: Bench) -> None:
    bench.server.models_script = [refuse(503), refuse(503)]
    await bench.client().check()
    assert len(bench.time.waits) == 2
    bench.server.models_script = [refuse(503)] * 3
    with pytest.raises(TransientError, match="503, 503, 503"):
        await bench.client().check()


async def test_a_server_that_answers_nothing_yet_is_starting(bench: Bench) -> None:
    bench.server.models_script = [refuse(500)] * 3
    bench.server.always = refuse(500)
    with pytest.raises(TransientError, match="500, 500, 500"):
        await bench.client().check()
