"""The memo: durable, first wins, never fooled by a damaged record, one flight per call."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from adapters_bench import SCHEMA, ask

from combee.api.sampling import Sampling
from combee.clients.model.memo import Memo
from combee.clients.model.wire import CanonicalRequest, ChatRequest, Completion, Endpoint
from combee.clients.store.store import Store
from combee.errors import TransientError
from combee.records import Message, Prompt

KEY = "ab" + "0" * 62
DONE = Completion("text \u00e9", 10, 2, 1, 0.123456789, "stop", 1)


def key(request: ChatRequest, **endpoint: object) -> str:
    return Memo.key(CanonicalRequest(Endpoint("http://h/v1", "m", **endpoint), request))  # type: ignore[arg-type]


def test_the_key_is_the_same_for_ever() -> None:
    """It is also a name on disk: a change here throws away every memo in the world."""
    prompt = Prompt((Message("user", "caf\u00e9"),), "answer", {"b": 1, "a": [2]}, 64)
    request = ChatRequest(prompt, Sampling(temperature=0.5, topP=0.9), 3)
    assert key(request, revision="r", engine_args=("--x=1",)) == (
        "e3c2fd8918ed5cf24d6b1f5e8b731d8bc50b0366e163fa81e8df6e20652e0d9d"
    )


@pytest.mark.parametrize(
    "other",
    [
        ChatRequest(Prompt((Message("user", "q"),), "answer", SCHEMA), Sampling(temperature=0.1)),
        ChatRequest(Prompt((Message("user", "q"),), "answer", SCHEMA), Sampling(topP=0.9)),
        ChatRequest(Prompt((Message("user", "q"),), "answer", SCHEMA), ordinal=1),
        ChatRequest(Prompt((Message("user", "q"),), "answer", SCHEMA, 64)),
        ChatRequest(Prompt((Message("user", "q"),), "answer", {**SCHEMA, "title": "x"})),
        ChatRequest(Prompt((Message("user", "q"),))),
        ChatRequest(Prompt((Message("system", "q"),), "answer", SCHEMA)),
        ChatRequest(Prompt((Message("user", "q "),), "answer", SCHEMA)),
    ],
    ids=["temperature", "top_p", "ordinal", "max tokens", "schema", "no schema", "role", "text"],
)
def test_everything_that_can_change_an_answer_changes_the_key(other: ChatRequest) -> None:
    assert key(other) != key(ChatRequest(Prompt((Message("user", "q"),), "answer", SCHEMA)))


def test_what_cannot_change_an_answer_does_not_change_the_key() -> None:
    turned = dict(reversed(SCHEMA.items()))
    assert key(ChatRequest(Prompt((Message("user", "q"),), "a", turned), Sampling(temperature=0))) == key(
        ChatRequest(Prompt((Message("user", "q"),), "a", SCHEMA), Sampling(temperature=0.0))
    )
    assert len(key(ask("\ud800 a lone surrogate"))) == 64


async def test_a_record_comes_back_exactly_and_the_first_wins(store: Store) -> None:
    memo = Memo(store)
    assert await memo.get(KEY) is None
    assert await memo.put(KEY, DONE) == DONE
    other = Completion("other", 1, 1, 1, 1.0, "stop", 2)
    assert await Memo(store).put(KEY, other) == DONE
    assert await Memo(store).get(KEY) == DONE


def _damage(text: str) -> list[bytes]:
    record = json.loads(text)
    return [
        b"",
        text.encode()[:40],
        b"[]",
        b"\xff\xfe",
        text.replace("stop", "stap").encode(),
        json.dumps({**record, "completion": None}).encode(),
        json.dumps({**record, "completion": {**record["completion"], "text": 1}}).encode(),
    ]


@pytest.mark.parametrize("kind", range(7))
async def test_a_damaged_record_counts_as_absent_and_is_replaced(store: Store, kind: int) -> None:
    memo = Memo(store)
    await memo.put(KEY, DONE)
    file = Path(store.uri) / "memo" / KEY[:2] / KEY
    file.write_bytes(_damage(file.read_text())[kind])
    assert await memo.get(KEY) is None
    made = Completion("new", 1, 1, 0, 1.0, "stop", 1)
    assert await memo.put(KEY, made) == made and await memo.get(KEY) == made


async def test_a_record_under_another_key_is_not_believed(store: Store) -> None:
    await Memo(store).put(KEY, DONE)
    other = "ab" + "1" * 62
    store.put(f"memo/ab/{other}", store.get(f"memo/ab/{KEY}") or b"")
    assert await Memo(store).get(other) is None


async def test_an_error_reaches_all_who_wait_and_is_not_kept(store: Store) -> None:
    memo, made = Memo(store), 0

    async def fail() -> Completion:
        nonlocal made
        made += 1
        await asyncio.sleep(0)  # the others come
        raise TransientError("busy")

    async def succeed() -> Completion:
        return DONE

    results = await asyncio.gather(*(memo.once(KEY, fail) for _ in range(4)), return_exceptions=True)
    assert made == 1 and all(isinstance(result, TransientError) for result in results)
    assert (await memo.once(KEY, succeed)).hit is False
    assert (await memo.once(KEY, fail)).hit is True


async def test_a_bug_in_one_does_not_strand_the_others(store: Store) -> None:
    memo, turns = Memo(store), iter([True, False])

    async def make() -> Completion:
        await asyncio.sleep(0)  # the others come
        if next(turns):
            raise RuntimeError("a bug")
        return DONE

    results = await asyncio.gather(*(memo.once(KEY, make) for _ in range(3)), return_exceptions=True)
    assert isinstance(results[0], RuntimeError)
    assert [getattr(result, "completion", None) for result in results[1:]] == [DONE, DONE]
    assert memo._flights == {}
