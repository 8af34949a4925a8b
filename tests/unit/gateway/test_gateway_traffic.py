"""What is kept of sampled traffic: which requests, what of them, and for how long."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.clients.kubernetes.kube import Kube
from combee.clients.store.store import Store
from combee.gateway.directing import Director, Secrets, Wish
from combee.gateway.metrics import Metrics
from combee.gateway.shadow import chosen
from combee.gateway.spool import MOST_BYTES, Place, Spool
from combee.gateway.table import Mirroring, Served, TrafficComparison
from combee.gateway.upstream import without_identity
from combee.work.traffic.record import MAX_DEPTH, answer_record, redacted, request_record

PRIVATE = {
    "jane.doe+x@mail.example.com": "[an e-mail address]",
    f"jane.doe+{'x' * 80}@example.com": "[an e-mail address]",
    "sk-abcdefghijklmnop1234": "[an access key]",
    "123456789012": "[a long number]",
    "+49 30 1234 5678": "[a telephone number]",
    "data:image/png;base64,iVBORw0KGgo=": "[data]",
    "ｊａｎｅ＠example.com": "[an e-mail address]",
    "jane@exam\u200bple.com": "[an e-mail address]",
    "０３０ １２３４５６７": "[a telephone number]",
    "030 1234567": "[a telephone number]",
    "(030) 123 45 67": "[a telephone number]",
    "0171/2345678": "[a telephone number]",
    "555-867-5309": "[a telephone number]",
    "(555) 867-5309": "[a telephone number]",
    "1.555.867.5309": "[a telephone number]",
    "0049 30 1234567": "[a telephone number]",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "[an access key]",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY": "[a secret]",
    'password": "hunter2hunter2': "[a secret]",
    "Authorization: Bearer abcdef.ghijkl": "[a secret]",
    "Bearer abcdefghijkl1234": "[a secret]",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----": "[a key or certificate]",
}


@pytest.mark.parametrize("private", PRIVATE)
def test_what_looks_private_is_replaced_wherever_it_stands(private: str) -> None:
    said = f"before {private} after"
    expected = f"before {PRIVATE[private]} after"
    body = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": said}]}],
        "tools": [{"function": {"description": said, "parameters": {said: [said, 1, None, True]}}}],
        "user": private,
        "metadata": {"customer": private},
    }
    kept = request_record(json.dumps(body).encode())
    assert kept == {
        "messages": [{"role": "user", "content": [{"type": "text", "text": expected}]}],
        "tools": [
            {"function": {"description": expected, "parameters": {expected: [expected, 1, None, True]}}}
        ],
    }


ADDRESSES = {
    "https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature=abc123&x=1": (
        "https://b.s3.amazonaws.com/k?[a query]"
    ),
    "https://a.blob.core.windows.net/c?sv=2022&sig=a%2Fb": "https://a.blob.core.windows.net/c?[a query]",
    "https://user:hush-hush@example.com/x": "https://[a secret]@example.com/x",
    "https://example.com/search?q=rates&page=2": "https://example.com/search?q=rates&page=2",
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_of_an_address_what_opens_it_is_replaced(address: str) -> None:
    assert redacted(f"see {address} now") == f"see {ADDRESSES[address]} now"


@pytest.mark.parametrize(
    "text",
    [
        "½ of 1 234 567 890 in 2019-12-31 10:00, 01/02/2023 and 31.12.2019",
        "Rates of 0.05 0.10 0.15 and 10 20 30 40 50 60",
        "version 1.2.3, 192.168.10.12, pages 100-200, ISO 9001",
        "the bearer certificates; max_tokens: 100000; the token of esteem",
        "SELECT a FROM b WHERE c = 12345 -- is it right?",
        "DebtInstrumentInterestRateStatedPercentage over LineOfCredit",
    ],
)
def test_what_is_not_private_stays_to_the_letter(text: str) -> None:
    assert redacted(text) == text


def test_numbers_are_redacted_where_they_are_somebodys_and_settings_are_not() -> None:
    card, rate = 4111111111111111, 0.05
    message = {
        "role": "user",
        "name": "Jane Doe",
        "content": [{"card": card, "sum": 12.5, "iban": 4.9e12 + 1}],
    }
    call = {"role": "tool", "name": "look_up", "content": "4"}
    tools = [{"function": {"parameters": {"maximum": 2147483647}}}]
    body = {"messages": [message, call], "tools": tools, "seed": 1234567890, "temperature": rate}
    assert request_record(json.dumps(body).encode()) == {
        "messages": [
            {
                "role": "user",
                "content": [{"card": "[a long number]", "sum": 12.5, "iban": "[a long number]"}],
            },
            call,
        ],
        "tools": tools,
        "seed": 1234567890,
        "temperature": rate,
    }


@pytest.mark.parametrize(
    "piece", ["?", "https://", "a-", "0 ", "password", "0" * 3 + "-", "aA1/", "Bearer ", "://a:"]
)
def test_a_hostile_text_is_redacted_in_time(piece: str) -> None:
    assert redacted(piece * (32_768 // len(piece)))


@given(
    st.recursive(
        st.integers(-(10**6), 10**6) | st.booleans() | st.none(),
        lambda x: st.lists(x) | st.dictionaries(st.just("a"), x),
    )
)
def test_what_holds_no_text_stays_as_it_is(value: Any) -> None:
    assert redacted(value) == value


def test_what_is_nested_too_deeply_is_left_out() -> None:
    deep: Any = "text"
    for _ in range(MAX_DEPTH + 5):
        deep = [deep]
    assert "text" not in json.dumps(redacted(deep))


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"[" * 100_000])
def test_a_request_that_cannot_be_read_is_not_kept(body: bytes) -> None:
    assert request_record(body) is None


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "x@example.com"}'}}


def events(*pieces: dict[str, Any], done: bool = True) -> bytes:
    rows = [{"choices": [{"index": 0, "delta": {}, "finish_reason": None, **piece}]} for piece in pieces]
    text = "".join(f"data: {json.dumps(row)}\n\n" for row in rows)
    return (": a remark\n\n" + text + ("data: [DONE]\n\n" if done else "")).encode()


def test_an_answer_is_the_same_whether_it_came_whole_or_in_pieces() -> None:
    message = {"role": "assistant", "content": "write to a@example.com", "tool_calls": [CALL]}
    whole = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode()
    arguments = CALL["function"]["arguments"]  # type: ignore[index]
    pieces = events(
        {"delta": {"role": "assistant", "content": "write to a@exam"}},
        {"delta": {"content": "ple.com"}},
        {
            "delta": {
                "tool_calls": [{"index": 0, **CALL, "function": {"name": "look", "arguments": arguments[:9]}}]
            }
        },
        {"delta": {"tool_calls": [{"index": 0, "function": {"arguments": arguments[9:]}}]}},
        {"index": 1, "delta": {"content": "another choice"}},
        {"finish_reason": "tool_calls"},
    )
    kept = answer_record(whole, streamed=False)
    assert kept is not None
    assert answer_record(pieces, streamed=True) == kept
    assert kept["content"] == "write to [an e-mail address]"
    assert kept["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "[an e-mail address]"}'}


def test_a_stream_that_says_why_it_ended_is_whole_without_a_last_word() -> None:
    pieces: list[dict[str, Any]] = [{"delta": {"content": "a"}}, {"finish_reason": "stop"}]
    kept = answer_record(events(*pieces, done=False), streamed=True)
    assert kept == answer_record(events(*pieces), streamed=True) == {"content": "a", "finish_reason": "stop"}


def test_tokens_are_kept_where_they_are_told() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9, "secret": "x"}
    raw = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "usage": usage}
    kept = answer_record(json.dumps(raw).encode(), streamed=False)
    assert kept == {
        "content": "a",
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
    }
    hostile = {"prompt_tokens": 10**400, "completion_tokens": -1, "total_tokens": True}
    kept = answer_record(json.dumps(raw | {"usage": hostile}).encode(), streamed=False)
    assert not kept.get("usage")


@pytest.mark.parametrize(
    ("body", "streamed"),
    [
        (b"{", False),
        (b'{"error": {"message": "no"}}', False),
        (b'{"choices": []}', False),
        (b'{"choices": [{"message": {"content": "half"}, "finish_reason": null}]}', False),
        (events({"delta": {"content": "half"}}, done=False), True),
        (events({"delta": {"content": "half"}}), True),
        (b"data: {\n\ndata: [DONE]\n\n", True),
        (b"", True),
    ],
)
def test_what_is_no_whole_answer_is_not_kept(body: bytes, streamed: bool) -> None:
    assert answer_record(body, streamed=streamed) is None


A, B, C = (Served(letter * 64, letter) for letter in "abc")
PLACE = Place("/nowhere")


def test_which_requests_are_samples_of_what() -> None:
    promotion = TrafficComparison("promotion", B.digest, A.digest, 0.5, B)
    watch = TrafficComparison("watch", A.digest, C.digest, 0.1, C)
    mirroring = Mirroring(PLACE, (promotion, watch), captured_share=0.2)
    for drawn, tests, captured in (
        (0.05, (promotion, watch), True),
        (0.15, (promotion,), True),
        (0.3, (promotion,), False),
        (0.7, (), False),
    ):
        assert chosen(mirroring, A, lambda _, drawn=drawn: drawn) == (tests, captured)
    # Of a test neither side of which is served nothing can be learned.
    assert chosen(mirroring, B, lambda _: 0.0)[0] == (promotion,)
    assert chosen(Mirroring(PLACE), A, lambda _: 0.0) == ((), False)


async def test_records_are_written_whole_and_each_has_an_identity(tmp_path: Path) -> None:
    spool = Spool(clock=lambda: 1000.0)
    place = Place(str(tmp_path))
    for number in range(3):
        spool.keep("formula", "test-1", place, {"n": number})
    spool.keep("formula", "", place, {"captured": True})
    await spool.flush()
    spool.keep("formula", "test-1", place, {"n": 3})
    await spool.flush()
    await spool.flush()
    files = sorted((tmp_path / "traffic/formula/pairs/test-1").iterdir())
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [file.name for file in files] == [f"1000-{spool.stream}-{n:06d}.jsonl" for n in (0, 2)]
    assert rows == [{"stream": spool.stream, "number": n, "n": n} for n in range(4)]
    (captured,) = (tmp_path / "traffic/formula/requests").iterdir()
    assert json.loads(captured.read_text())["captured"] is True


async def test_what_comes_while_a_store_waits_is_kept_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = asyncio.Event(), asyncio.Event()
    written = Store.aput_new

    async def late(store: Store, path: str, data: bytes) -> bool:
        asked.set()
        await answers.wait()
        return await written(store, path, data)

    monkeypatch.setattr(Store, "aput_new", late)
    spool, place = Spool(), Place(str(tmp_path))
    spool.keep("formula", "first", place, {"n": 0})
    flushing = asyncio.create_task(spool.flush())
    await asked.wait()
    spool.keep("formula", "second", place, {"n": 1})
    answers.set()
    await flushing
    await spool.flush()
    assert [
        len(list((tmp_path / "traffic/formula/pairs" / test).iterdir())) for test in ("first", "second")
    ] == [
        1,
        1,
    ]


async def test_nothing_that_goes_wrong_ends_the_keeping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("combee.gateway.spool.FLUSH_SECONDS", 0.01)
    rounds, again = [0], asyncio.Event()

    def places() -> dict[str, Place]:
        rounds[0] += 1
        if rounds[0] == 2:
            again.set()
        raise RuntimeError("a bug with words of a user in it")

    ticks = iter(range(0, 10**9, 1000))
    spool = Spool(clock=lambda: float(next(ticks)))
    spool.keep("formula", "t", Place(str(tmp_path)), {"n": 0})
    running = asyncio.create_task(spool.run(places))
    await again.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "RuntimeError" in caplog.text and "words of a user" not in caplog.text
    assert len(await Store.open(str(tmp_path)).alist("traffic/formula/pairs/t")) == 1


def test_a_request_asked_once_more_has_no_identity() -> None:
    headers = [(b"Idempotency-Key", b"k"), (b"x-request-id", b"r"), (b"X-Tenant", b"t")]
    assert without_identity(headers) == [(b"X-Tenant", b"t")]


async def test_a_store_that_fails_keeps_its_lines_waiting(tmp_path: Path) -> None:
    (tmp_path / "traffic").write_text("in the way")
    spool = Spool()
    spool.keep("formula", "t", Place(str(tmp_path)), {"n": 0})
    await spool.flush()
    spool.keep("formula", "t", Place(str(tmp_path)), {"n": 1})
    (tmp_path / "traffic").unlink()
    await spool.flush()
    (file,) = (tmp_path / "traffic/formula/pairs/t").iterdir()
    assert [json.loads(line)["n"] for line in file.read_text().splitlines()] == [0, 1]


def test_what_waits_is_bounded() -> None:
    lost: list[tuple[str, int]] = []
    spool = Spool(lost=lambda *told: lost.append(told))
    for _ in range(5):
        spool.keep("formula", "t", PLACE, {"text": "x" * (MOST_BYTES // 3)})
    assert lost == [("formula", 1)] * 3
    assert sum(heap.size for heap in spool._heaps.values()) <= MOST_BYTES


async def test_what_is_older_than_the_retention_is_deleted_whoever_wrote_it(tmp_path: Path) -> None:
    place, clock = Place(str(tmp_path), retention_seconds=100), Clock()
    for clock.now, playbook in ((1000.0, "formula"), (1050.0, "formula"), (1000.0, "other")):
        spool = Spool(clock=clock)
        spool.keep(playbook, "t", place, {})
        await spool.flush()
    clock.now = 1120.0
    # One of each; what the folder of the one that is not known says of itself stays, for its gateway said it
    # once.
    assert await Spool(clock=clock).sweep("formula", place) == 2
    assert await Store.open(str(tmp_path)).aget("traffic/other/retention") == b"100"
    left = [path for path in await Store.open(str(tmp_path)).alist("traffic") if "/pairs/" in path]
    assert [path.split("/")[1] for path in left] == ["formula"]
    assert left[0].split("/")[-1].startswith("1050-")


def test_a_store_is_swept_as_long_as_the_pod_has_it(tmp_path: Path) -> None:
    director = Director(cast(Kube, None), "team-a", Secrets(tmp_path), Metrics(), tmp_path / "traffic")
    keyed = {"uri": "s3://b/p", "secretRef": {"name": "s3"}}
    for name, gateway in (
        ("off", {"enabled": True, "capture": {"enabled": False, "retentionSeconds": 100}}),
        ("keyed", {"enabled": True, "capture": {"store": keyed}}),
        ("unkeyed", {"enabled": True, "capture": {"store": keyed}}),
        ("none", {"enabled": False, "capture": {"enabled": True}}),
    ):
        raw = {"metadata": {"name": name}, "spec": {"delivery": {"gateway": gateway}}}
        director.playbooks.objects[name] = Wish.of(raw)
    (tmp_path / "store/keyed").mkdir(parents=True)
    (tmp_path / "store/keyed/AWS_ACCESS_KEY_ID").write_text("k")
    places = director.places()
    assert set(places) == {"off", "keyed"}
    assert places["off"] == Place(str(tmp_path / "traffic/off"), retention_seconds=100)
    assert places["keyed"].uri == "s3://b/p"


class Clock:
    """Says what it is told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_place_never_shows_its_secret() -> None:
    assert "hush" not in repr(Place("s3://b/p", (("AWS_SECRET_ACCESS_KEY", "hush"),)))
