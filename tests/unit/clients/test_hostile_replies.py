"""Any bytes whatever from an endpoint end a call, never a run, and nothing of them is remembered that a run
could not go on with."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hostile import Hostile, Raw, body, chat, hostile_server, http
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from combee.api.sampling import DEFAULT
from combee.clients.energy import EnergyMeter, UnreadableError
from combee.clients.model.agents import AGENT, agent_prompt
from combee.clients.model.body import MOST_TOKENS
from combee.clients.model.chat import ChatClient, ChatRequest, Completion, Endpoint
from combee.clients.model.embedding import embedding_prompt, vectors_of
from combee.clients.model.forms import EMBEDDER
from combee.clients.model.lanes import MAX_BODY_BYTES
from combee.clients.model.limits import RunLimits
from combee.clients.model.looks import Looks
from combee.clients.model.memo import MEMO, Memo
from combee.clients.model.proxy import _answer
from combee.clients.model.wire import canonical_json
from combee.clients.prometheus import PrometheusApi
from combee.clients.store.store import Store
from combee.errors import BudgetExhaustedError, BugError, CombeeError, EndpointError, TransientError
from combee.jsonread import read_json
from combee.methods import judging
from combee.methods.ace import answers as ace
from combee.methods.components import answers as components
from combee.methods.protocol import ParseError, Rendered
from combee.methods.textgrad.answers import parse_criticism
from combee.plan.playbook.queries import Query, read_answer
from combee.records import Message, Prompt, Trajectory
from combee.work.traffic.record import answer_record

SEED, CASES, MANY_CASES = 18, 300, 10_000
DEADLINE_SECONDS, LONGEST = 1.0, 300.0
"""Seconds of a call, and after which a test says that one hangs, however busy its machine."""
PROMPTS = {
    "task": Prompt((Message("user", "hi"),)),
    AGENT: agent_prompt({"messages": [{"role": "user", "content": "hi"}]}, DEFAULT),
    EMBEDDER: embedding_prompt(["a"]),
}


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


def counted(tokens: Any) -> bytes:
    return http(body(chat(usage={"prompt_tokens": tokens, "completion_tokens": tokens})))


def late(retry_after: bytes) -> bytes:
    return http(b"{}", b"retry-after: " + retry_after, status=b"429 Too Many")


def refusal(charset: bytes, text: bytes = b'{"error": "no"}') -> bytes:
    return http(text, status=b"400 Bad", content_type=b"text/plain; charset=" + charset)


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
BOMB = gzip.compress(b'{"a":"' + b"x" * (1 << 26) + b'"}')
CASES_BY_NAME: dict[str, bytes | Callable[[], Iterator[bytes]]] = {
    "64 MB in 65 KB of gzip": http(BOMB, b"content-encoding: gzip"),
    "a refusal in gzip": http(BOMB, b"content-encoding: gzip", status=b"400 Bad"),
    "10^400 tokens": counted(10**400),
    "10^12 tokens": counted(10**12),
    "tokens that are true": counted(True),
    "1e999 tokens": http(body(chat()).replace(b"11", b"1e999")),
    "a charset that is no text": refusal(b"rot13"),
    "a charset that is undefined": refusal(b"undefined"),
    "a charset of bytes": refusal(b"zlib"),
    "a charset that replaces nothing": refusal(b"idna", b"\xff" * 300),
    "deep": http(b"[" * 100_000 + b"]" * 100_000),
    "a deep refusal": http(b"[" * 100_000, status=b"400 Bad"),
    "a deep message": http(body(chat(tool_calls=nested(900)))),
    "NaN in a message": http(body(chat(tool_calls=[float("nan")]))),
    "1e999 in a message": http(body(chat(tool_calls=[1])).replace(b"[1]", b"[1e999]")),
    "a lone surrogate in a message": http(body(chat("a", tool_calls=["\ud800"]))),
    "a lone surrogate as the reason": http(body(chat()).replace(b"stop", b"\\ud800")),
    "a reason of a megabyte": http(body(chat()).replace(b"stop", b"y" * 1_000_000)),
    "a Retry-After beyond all years": late(b"Mon, 01 Jan 99999999999999999999 00:00:00 GMT"),
    "a Retry-After in no time zone": late(b"Mon, 01 Jan 2020 00:00:00 +9999999999999999"),
    "a refusal of backslashes": http(b"\\" * 60_000, status=b"400 Bad"),
    "a refusal of 9 MB": http(b"x" * (9 << 20), status=b"400 Bad"),
    "10 MB of header": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 10_000_000 + b"\r\n\r\n",
    "nothing": b"",
    "no HTTP": b"\x00\xff" * 1000,
    "a protocol that nobody asked for": b"HTTP/1.1 101 Hi\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nx",
    "a length below 0": b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n{}",
    "a broken chunk": CHUNKED + b"zz\r\n",
    "a body without an end": lambda: itertools.chain(
        [b"HTTP/1.1 200 OK\r\n\r\n"], itertools.repeat(b"x" * 65_536)
    ),
    "chunks without an end": lambda: itertools.chain([CHUNKED], itertools.repeat(b"2\r\nxx\r\n" * 1000)),
    "trailers without an end": lambda: itertools.chain(
        [CHUNKED + b"0\r\n"], itertools.repeat(b"x: y\r\n" * 1000)
    ),
    "heads without an end": lambda: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
}


def raw_of(name: str) -> Raw:
    made = CASES_BY_NAME[name]
    return made if isinstance(made, bytes) else made()


async def asked(hostile: Hostile, role: str, memo: Memo, ordinal: int = 0) -> Completion | CombeeError:
    """The answer of one call with one attempt, checked to be one that a run can go on with, or its error."""

    async def at_once(_: float) -> None:
        pass

    endpoint = Endpoint(hostile.url, "m", api_key=SecretStr("sk-0123456789abcdef"))
    client = ChatClient(
        endpoint,
        role,
        memo,
        RunLimits(2),
        max_attempts=1,
        deadline_seconds=DEADLINE_SECONDS,
        sleep=at_once,
    )
    request = ChatRequest(PROMPTS[role], ordinal=ordinal)
    if role == EMBEDDER:
        request = ChatRequest(embedding_prompt([f"a{ordinal}"]))
    try:
        completion = (await client.ask(request)).completion
    except CombeeError as error:
        assert isinstance(error, EndpointError | TransientError), error
        assert str(error).isprintable() and len(str(error)) < 2_000, error
        assert await memo.get(client.key_of(request)) is None, "an error is remembered"
        return error
    finally:
        await client.aclose()
    assert await memo.get(client.key_of(request)) == completion, "it is not what is remembered"
    goes_on_with(role, completion)
    return completion


def goes_on_with(role: str, completion: Completion) -> None:
    """Do with an answer what a run does."""
    for tokens in (completion.prompt_tokens, completion.completion_tokens, completion.cached_tokens):
        assert type(tokens) is int and 0 <= tokens <= MOST_TOKENS
    assert len(completion.finish_reason) <= 40
    completion.text.encode(), completion.finish_reason.encode(), canonical_json(completion.to_json())
    if role == AGENT:
        for stream in (False, True):
            assert _answer("m", {"stream": stream}, completion).status_code == 200
    elif role == EMBEDDER:
        assert vectors_of(completion.text).shape[0] == 1
    else:
        is_read(completion.text)


TRAJECTORY = Trajectory("t", "e", "", "", "", 0.0, False, "")
READERS: tuple[Callable[[str], Any], ...] = (
    ace.parse_rollout,
    components.parse_rollout,
    lambda text: ace.parse_reflection(text, reflection_id="r-1", trajectory=TRAJECTORY),
    lambda text: parse_criticism(text, reflection_id="r-1", trajectory=TRAJECTORY),
    lambda text: ace.parse_leaf(text, reflections=[], playbook=Rendered("", 0)),
    lambda text: ace.parse_merge(text, updates=[], playbook=Rendered("", 0)),
    lambda text: ace.parse_summary(text, summary_id="s-1", reflections=[]),
    lambda text: components.parse_lessons(text, component="c", sources={}),
    lambda text: components.parse_text(text, component="c", sources=["t"]),
    judging.parse_verdict,
    lambda text: judging.parse_rubric(text, (0,)),
)


def is_read(text: str) -> None:
    """Whatever a model says is an answer, or none."""
    for read in READERS:
        try:
            value = read(text)
        except ParseError:
            continue
        repr(value).encode()


@pytest.fixture
def memo() -> Iterator[Memo]:
    store = Store.open(f"memory://hostile-{uuid4().hex}")
    yield Memo(store)
    store.close()


@pytest.fixture
async def hostile() -> AsyncIterator[Hostile]:
    async with hostile_server() as server:
        yield server


@pytest.mark.parametrize("role", [*PROMPTS])
@pytest.mark.parametrize("name", CASES_BY_NAME)
async def test_any_answer_ends_a_call_and_no_run(name: str, role: str, hostile: Hostile, memo: Memo) -> None:
    hostile.raw = raw_of(name)
    await asyncio.wait_for(asked(hostile, role, memo), LONGEST)
    assert all(b"accept-encoding: identity\r\n" in head.lower() + b"\r\n" for head in hostile.asked)


@pytest.mark.parametrize("name", CASES_BY_NAME)
async def test_any_list_of_models_ends_a_check(
    name: str, hostile: Hostile, memo: Memo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("combee.clients.model.connection._MODELS_SECONDS", DEADLINE_SECONDS)

    async def at_once(_: float) -> None:
        pass

    client = ChatClient(
        Endpoint(hostile.url, "m"), "task", memo, RunLimits(2), sleep=at_once, deadline_seconds=1.0
    )
    hostile.raw = raw_of(name)
    try:
        async with asyncio.timeout(LONGEST):
            await client.check()
    except CombeeError as error:
        assert isinstance(error, EndpointError | TransientError) and str(error).isprintable()
    finally:
        await client.aclose()


async def test_a_compressed_answer_is_refused_before_it_is_memory(hostile: Hostile, memo: Memo) -> None:
    hostile.raw = raw_of("64 MB in 65 KB of gzip")
    tracemalloc.start()
    try:
        error = await asked(hostile, "task", memo)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "(encoded)" in str(error) and most < 2 * MAX_BODY_BYTES, most


async def test_an_answer_that_is_too_long_is_read_no_further(hostile: Hostile, memo: Memo) -> None:
    hostile.raw = raw_of("a body without an end")
    error = await asked(hostile, "task", memo)
    assert "(long)" in str(error) and hostile.sent < 4 * MAX_BODY_BYTES, hostile.sent


async def test_what_an_earlier_version_remembered_is_asked_again(hostile: Hostile, memo: Memo) -> None:
    """It took any count, and every later session ended at it."""
    hostile.raw = http(body(chat("42")))
    good = await asked(hostile, "task", memo)
    assert isinstance(good, Completion)
    (path,) = await memo._store.alist(MEMO)
    key = path.rpartition("/")[2]
    for poison in (replace(good, prompt_tokens=10**400), replace(good, lost_tokens=-1)):
        from combee.clients.model.memo import _encoded

        await memo._store.aput(path, _encoded(key, poison))
        assert await memo.get(key) is None
        assert replace(await asked(hostile, "task", memo), latency_seconds=0) == replace(
            good, latency_seconds=0
        )
    endless = _encoded(key, good).replace(b'"promptTokens":11', b'"promptTokens":1e999')
    await memo._store.aput(path, endless)
    assert await memo.get(key) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"answer": "\\ud800", "quality": 1e999, "correct": true, "complete": true}',
        '{"correct": true, "complete": true, "quality": 1' + "0" * 400 + "}",
        '{"answer": ' + "[" * 900 + "1" + "]" * 900 + "}",
        '{"answer": NaN, "lessons": [{"text": Infinity}]}',
        '{"' * 200_000,
        '{"a":["' + 'b "' * 100_000,
        "{" * 400_000,
    ],
)
def test_any_text_of_a_model_is_an_answer_or_none(text: str) -> None:
    is_read(text)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from(
        [10**400, -(10**400), 2**63, float("nan"), float("inf"), "\ud800", "\x1b[2J", "", "stop"]
    ),
    st.floats(),
    st.text(st.characters(), max_size=20),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
NAMES = [
    "choices",
    "message",
    "content",
    "finish_reason",
    "usage",
    "prompt_tokens",
    "completion_tokens",
    "tool_calls",
    "prompt_tokens_details",
    "cached_tokens",
    "data",
    "embedding",
    "index",
    "id",
    "max_model_len",
    "error",
    "text",
    "code",
    "param",
    "type",
    "answer",
    "lessons",
    "entries",
    "quality",
    "correct",
    "status",
    "resultType",
    "result",
]


CHAT = [
    chat('{"answer": "42", "lessons": [{"text": "a", "records": ["r"]}], "quality": 1, "correct": true}'),
    chat(None, tool_calls=[{"id": "a", "function": {"name": "f", "arguments": "{}"}}]),
    chat(["a", {"text": "{}"}]),
]
SHAPES: dict[str, list[Any]] = {
    EMBEDDER: [{"data": [{"index": 0, "embedding": [0.5, 1.0]}], "usage": {"prompt_tokens": 5}}],
    "models": [{"data": [{"id": "m", "owned_by": "x", "max_model_len": 4096}]}],
    "prometheus": [
        {"status": "success", "data": {"resultType": "matrix", "result": [{"values": [[0, "1"], [60, "2"]]}]}}
    ],
}
PAGE = b'vllm:num_requests_waiting 1\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID="a",pod="b"} 5000\n'


@st.composite
def shaped(draw: st.DrawFn, shapes: list[Any]) -> Any:
    """A well-formed answer of one of the shapes, with a value of it, or several, replaced."""
    answer = draw(st.sampled_from(shapes))
    answer = json.loads(json.dumps(answer))
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2]))):
        node = answer
        while True:
            places = list(range(len(node))) if isinstance(node, list) else list(node)
            if not places:
                break
            place = draw(st.sampled_from(places))
            if not isinstance(node[place], dict | list) or draw(st.booleans()):
                node[place] = draw(VALUES)
                break
            node = node[place]
        if isinstance(node, dict):
            node[draw(st.sampled_from(NAMES))] = draw(VALUES)
    return answer


@st.composite
def raws(draw: st.DrawFn, role: str) -> bytes:
    """Bytes of an endpoint: nonsense, or HTTP around nonsense, or an answer with something wrong in it."""
    kind = draw(st.integers(0, 15))
    if kind == 0:
        return draw(st.binary(max_size=400))
    content = (
        draw(st.one_of(VALUES.map(body), st.binary(max_size=200)))
        if kind == 1
        else PAGE
        if role in ("metrics", "energy")
        else body(draw(shaped(SHAPES.get(role, CHAT))))
    )
    headers = draw(
        st.lists(
            st.sampled_from(
                [
                    b"content-encoding: gzip",
                    b"content-encoding: br",
                    b"retry-after: 1e999",
                    b"retry-after: -1",
                    b"retry-after: Mon, 01 Jan 99999999999 00:00:00 GMT",
                    b"content-length: 3",
                    b"x: \xff\xfe",
                    b"transfer-encoding: chunked",
                    b"retry-after-ms: nan",
                    b"date: x",
                    b"content-encoding:",
                ]
            ),
            max_size=2 if kind == 2 else 0,
        )
    )
    status = draw(
        st.sampled_from([b"200 OK"] * 12 + [b"400 x", b"404 x", b"422 x", b"429 x", b"500 x", b"302 x"])
    )
    charset = draw(st.sampled_from([b"utf-8", b"rot13", b"undefined", b"idna", b"utf-16", b"\xff", b"hex"]))
    raw = http(content, *headers, status=status, content_type=b"application/json; charset=" + charset)
    if kind in (3, 4):
        at = draw(st.integers(0, len(raw) - 1))
        return raw[:at] + draw(st.binary(max_size=4)) + raw[at + draw(st.integers(0, 4)) :]
    return raw


ROLES = [*PROMPTS, *PROMPTS, *PROMPTS, "models", "metrics", "energy", "prometheus", "replay"]


def _fuzz(cases: int) -> None:
    store = Store.open(f"memory://fuzz-{uuid4().hex}")
    memo, met = Memo(store), {"answers": 0, "errors": 0}
    with asyncio.Runner() as runner:
        serving = hostile_server()
        hostile = runner.run(serving.__aenter__())
        ordinals = itertools.count()

        @seed(SEED)
        @settings(
            max_examples=cases,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        )
        @given(st.sampled_from(ROLES).flatmap(lambda role: st.tuples(st.just(role), raws(role))))
        def any_bytes(drawn: tuple[str, bytes]) -> None:
            role, raw = drawn
            hostile.raw = raw
            hostile.asked.clear()
            if role in PROMPTS:
                done = runner.run(asyncio.wait_for(asked(hostile, role, memo, next(ordinals)), LONGEST))
                met["answers" if isinstance(done, Completion) else "errors"] += 1
            else:
                runner.run(asyncio.wait_for(_read_beside(role, hostile, raw), LONGEST))

        try:
            any_bytes()
        finally:
            runner.run(serving.__aexit__(None, None, None))
            store.close()
    print(f"seed {SEED}, {cases} cases: {met['answers']} calls answered, {met['errors']} ended by an error")
    assert min(met.values()) > cases / 20, met


async def _read_beside(role: str, hostile: Hostile, raw: bytes) -> None:
    """What is read of servers beside the answers to calls."""
    root = hostile.url.removesuffix("/v1")
    if role == "models":
        client = ChatClient(Endpoint(hostile.url, "m"), "task", Memo(Store.open("memory://m")), RunLimits(1))
        try:
            for row in await client._connection.models():
                assert row.context_tokens is None or 0 < row.context_tokens <= MOST_TOKENS
                row.id.encode(), row.owned_by.encode()
        except Exception as error:
            assert isinstance(error, ValueError) or type(error).__name__ in (
                "StatusError",
                "NoAnswerError",
            ), error
        finally:
            await client.aclose()
    elif role == "metrics":
        content = raw.rpartition(b"\r\n\r\n")[2]

        async def pages() -> list[bytes]:
            return [
                content,
                b"vllm:num_requests_waiting 1e300\n" * 2,
                b"vllm:num_requests_waiting{" + content,
            ]

        await Looks(pages).look()
    elif role == "energy":
        try:
            await EnergyMeter(root).read()
        except UnreadableError:
            pass
    elif role == "prometheus":

        async def at_once(_: float) -> None:
            pass

        api = PrometheusApi.open(root, "", "spec.canary.prometheus")
        api.sleep = at_once
        try:
            answered = await api.query_range("up", 0, 60, 60)
            read_answer(Query("latency", "candidate", "up"), answered, {0: 0, 60: 1})
        except CombeeError as error:
            assert not isinstance(error, BugError | BudgetExhaustedError)
        finally:
            await api.aclose()
    else:
        for streamed in (False, True):
            record = answer_record(raw.rpartition(b"\r\n\r\n")[2], streamed=streamed)
            json.dumps(record, ensure_ascii=False).encode()


def test_fuzzed_replies() -> None:
    _fuzz(CASES)


@pytest.mark.long
@pytest.mark.timeout(1500, func_only=True)  # ten thousand requests and their answers
def test_ten_thousand_fuzzed_replies() -> None:
    _fuzz(MANY_CASES)


@given(st.text(st.characters()))
def test_json_of_a_stranger_can_be_written_again(text: str) -> None:
    try:
        value = read_json(json.dumps({text: [text]}))
    except ValueError:
        return
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
