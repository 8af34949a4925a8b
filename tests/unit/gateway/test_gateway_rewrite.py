"""The playbook is put before everything else, and not a byte of the client's is changed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.api.method_options import Retrieval
from combee.errors import UserError
from combee.methods.ace import AceMethod
from combee.work.traffic.rewrite import Chosen, encoded, model_of, preface_of, with_preface

PREFACE = '# PLAYBOOK\n\n- [r-1] say "yes" \\ to 日本 \u2028 \x00'
USER = {"role": "user", "content": "2+2"}

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
PARTS = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": WORDS}), max_size=3)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"])},
        optional={"content": WORDS | PARTS | st.none(), "name": WORDS, "tool_calls": VALUES},
    ),
    min_size=1,
    max_size=5,
)
LAYOUTS = st.sampled_from(
    [{}, {"indent": 2}, {"indent": "\t"}, {"separators": (",", ":")}, {"ensure_ascii": False}]
)


def expected(messages: list[dict[str, Any]], preface: str) -> list[dict[str, Any]]:
    """What the upstream is to be asked, said once more in the plainest way."""
    first, rest = messages[0], messages[1:]
    if first["role"] in ("system", "developer") and isinstance(first.get("content"), str):
        return [{**first, "content": f"{preface}\n\n{first['content']}"}, *rest]
    if first["role"] in ("system", "developer") and isinstance(first.get("content"), list):
        part = {"type": "text", "text": f"{preface}\n\n"}
        return [{**first, "content": [part, *first["content"]]}, *rest]
    return [{"role": "system", "content": preface}, *messages]


@given(MESSAGES, st.dictionaries(WORDS, VALUES, max_size=4), st.booleans(), LAYOUTS, WORDS.filter(bool))
def test_only_messages_gets_a_leading_system_content(
    messages: list[dict[str, Any]], others: dict[str, Any], last: bool, layout: dict[str, Any], preface: str
) -> None:
    others.pop("messages", None)
    body = {**others, "messages": messages} if last else {"messages": messages, **others}
    sent = json.dumps(body, **layout).encode()
    got = with_preface(sent, encoded(preface))
    assert json.loads(got) == {**body, "messages": expected(messages, preface)}
    assert list(json.loads(got)) == list(body)
    # One piece was put in, and nothing else is different.
    kept = len(got) - len(sent)
    head = next(i for i in range(len(sent) + 1) if got[i : i + 1] != sent[i : i + 1] or i == len(sent))
    assert any(got[:i] + got[i + kept :] == sent for i in range(max(0, head - kept), head + 1))


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m"}',
        b'{"messages": []}',
        b'{"messages": null}',
        b'{"messages": "text"}',
        b'{"nested": {"messages": [{"role": "user", "content": "x"}]}}',
        b" { } ",
    ],
)
def test_a_body_without_messages_is_the_upstreams_to_judge(body: bytes) -> None:
    assert with_preface(body, encoded(PREFACE)) == body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'"messages"',
        b"{",
        b'{"messages"',
        b'{"messages":',
        b'{"messages": [1}',
        b'{"a": 1 "b": 2}',
        b'{"a": 1,}',
        b"{1: 2}",
        b'{"messages": []}x',
        b'{"messages": [1]} {"messages": [2]}',
        b"{}{}",
        b'\xff\xfe{"messages": []}',
        b'{"messages": ' + b"[" * 200_000,
    ],
)
def test_what_is_no_json_object_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        with_preface(body, encoded(PREFACE))


def test_numbers_and_spelling_stay_as_the_client_wrote_them() -> None:
    body = (
        b'{"temperature":1e-0, "seed":12345678901234567890123, "x":"\\u00e9\\/",\r\n'
        b'"messages" : [ {"role":"user","content":"a"} ]}'
    )
    got = with_preface(body, "P")
    assert got == body.replace(b'[ {"role"', b'[ {"role":"system","content":"P"},{"role"')


@pytest.mark.parametrize("before", ["Jörg", "\u65e5\u672c", "\U0001f600"])
def test_bytes_before_the_messages_are_counted_and_not_characters(before: str) -> None:
    body = f'{{"user":"{before}","messages":[{{"role":"user","content":"{before}"}}]}}'.encode()
    got = with_preface(body, "P")
    assert got == body.replace(b'[{"role"', b'[{"role":"system","content":"P"},{"role"')


def test_of_two_alike_the_last_counts_as_parsers_read_it() -> None:
    twice = b'{"messages": [{"role":"user","content":"a"}], "messages": [{"role":"user","content":"b"}]}'
    assert json.loads(with_preface(twice, encoded(PREFACE)))["messages"] == [
        {"role": "system", "content": PREFACE},
        {"role": "user", "content": "b"},
    ]


RULES = "\n".join(f'[b-{k}] helpful={k} harmful=0 :: For P-{k:04d} say "{k}"' for k in range(90))
BUDGETS = '{"coreTokens": 40, "tailTokens": 60}'


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "P-0007"}],
        [{"role": "system", "content": "P-0008"}, {"role": "user", "content": "P-0007"}],
        [
            {"role": "user", "content": "P-0008"},
            {"role": "assistant", "content": "P-0009"},
            {"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "P-0007"}]},
            {"role": "assistant", "content": None},
            {"role": "tool", "content": "P-0010"},
        ],
    ],
    ids=["one", "with a system message", "in the midst of tools"],
)
def test_of_a_version_with_budgets_the_last_question_gets_its_core_and_tail(
    messages: list[dict[str, Any]],
) -> None:
    preface = preface_of(RULES, retrieval=BUDGETS)
    got = json.loads(with_preface(json.dumps({"messages": messages}).encode(), preface))
    said = got["messages"][0]["content"]
    method = AceMethod()
    part = method.choosing(RULES, Retrieval.model_validate_json(BUDGETS))("P-0007")
    assert said.startswith(method.served_text(part)), "as a rollout is shown it"
    assert "P-0089" in part and "P-0007" in part and "P-0050" not in part


@given(MESSAGES, st.integers(50, 400))
def test_memory_is_taken_for_the_most_that_a_question_can_get(
    messages: list[dict[str, Any]], tail: int
) -> None:
    preface = preface_of(RULES, retrieval=json.dumps({"coreTokens": 100, "tailTokens": tail}))
    assert isinstance(preface, Chosen) and len(preface.before(messages)) <= len(preface)
    assert len(preface.before([{"role": "user", "content": RULES}])) <= len(preface)


def test_budgets_that_cannot_be_read_are_told() -> None:
    with pytest.raises(UserError, match=r"retrieval\.json"):
        preface_of(RULES, retrieval='{"coreTokens": -1, "tailTokens": 60}')
    assert preface_of("", retrieval=BUDGETS) == ""


def test_without_a_playbook_nothing_is_read() -> None:
    assert with_preface(b"anything", "") == b"anything"


MODELS: dict[str, tuple[bytes, str | None]] = {
    "named": (b'{"messages": [], "model": "org/small"}', "org/small"),
    "named twice": (b'{"model": "small", "model": "large"}', "large"),
    "named deeper only": (b'{"metadata": {"model": "small"}}', ""),
    "escaped": (b'{"mod\\u0065l": "sm\\u0061ll"}', "small"),
    "no text": (b'{"model": ["small"]}', ""),
    "none": (b"{}", ""),
    "no object": (b'["model"]', None),
    "no UTF-8": (b'{"model": "\xff"}', None),
    "more than an object": (b'{"model": "small"} {}', None),
    "too deep": (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
}


@pytest.mark.parametrize("case", MODELS)
def test_the_model_that_a_request_names(case: str) -> None:
    body, expected = MODELS[case]
    if expected is None:
        with pytest.raises(ValueError):
            model_of(body)
    else:
        assert model_of(body) == expected
