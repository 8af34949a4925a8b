"""The queries to Prometheus; any answer, however strange, becomes numbers or a trouble and nothing else."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.api.prometheus import Prometheus
from combee.plan.playbook.queries import (
    MOST_WINDOWS,
    STREAM,
    Query,
    begins_at,
    compare,
    end_of,
    queries,
    read_answer,
    ready_seconds,
    share_of,
    windows,
)
from combee.plan.playbook.readings import Reading, Trouble, latest, read_reading, wrong

SCORE: dict[str, Any] = {"query": 'good{version="$(version)"}[$(window)]', "unit": "Ratio"}
LATENCY: dict[str, Any] = {"query": 'slow{digest="$(digest)",side="$(side)"}', "unit": "Seconds"}
CANDIDATE, ACTIVE = "b" * 64, "a" * 64
QUERY = Query("score", "candidate", "x")
TIMES = {60: 0, 120: 1, 180: 2}


def asking(**more: Any) -> Prometheus:
    about = {"url": "http://p:9090", "score": SCORE, "latency": LATENCY, **more}
    return Prometheus.model_validate({name: value for name, value in about.items() if value is not None})


def answer(*series: list[Any], kind: str = "matrix", **more: Any) -> bytes:
    result = [{"metric": {}, "values": values} for values in series]
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **more}).encode()


def test_each_question_is_asked_of_both_with_what_tells_them_apart() -> None:
    asked = asking(sides={"active": "stable", "candidate": "canary"}, windowSeconds=30)
    assert [(q.what, q.side, q.text) for q in queries(asked, CANDIDATE, ACTIVE)] == [
        ("score", "candidate", f'good{{version="{"b" * 12}"}}[30s]'),
        ("score", "active", f'good{{version="{"a" * 12}"}}[30s]'),
        ("latency", "candidate", f'slow{{digest="{CANDIDATE}",side="canary"}}'),
        ("latency", "active", f'slow{{digest="{ACTIVE}",side="stable"}}'),
    ]
    assert len(queries(asking(latency=None), CANDIDATE, ACTIVE)) == 2


@settings(max_examples=50, deadline=None)
@given(
    since=st.floats(1e9, 2e9),
    window=st.integers(10, 86_400),
    first=st.integers(0, 10**6),
    now=st.floats(0, 4e9),
)
def test_windows_lie_after_the_beginning_and_before_now(
    since: float, window: int, first: int, now: float
) -> None:
    asked = asking(windowSeconds=window)
    begins = begins_at(since, asked)
    assert 0 <= begins - since <= window and begins % window == 0
    wanted = windows(asked, begins, first, now)
    assert len(wanted) <= MOST_WINDOWS
    assert all(end_of(asked, begins, one) + asked.delay_seconds <= now for one in wanted)
    assert bool(wanted) == (ready_seconds(asked, begins, first, now) == 0)


@pytest.mark.parametrize(
    ("content", "problem", "detail"),
    [
        (answer(), "Empty", ""),
        (answer([[60, "1"]], [[60, "1"]], [[60, "1"]]), "SeveralSeries", "3"),
        (answer(kind="vector"), "WrongType", "vector"),
        (answer([], kind="string"), "WrongType", "string"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"histograms":[]}]}}',
         "WrongType", "histogram"),
        (b'{"status":"error","errorType":"bad_data","error":"parse error:\\n \\u0007 unexpected"}',
         "BadQuery", "parse error: unexpected"),
        (answer([[60, "1"]], isPartial=True), "Unreadable", None),
        (answer([[61, "1"]]), "Unreadable", None),
        (answer([[60.5, "1"]]), "Unreadable", None),
        (answer([[60, 1]]), "Unreadable", None),
        (answer([[60, "one"]]), "Unreadable", None),
        (answer([["60", "1"]]), "Unreadable", None),
        (b"<html>", "Unreadable", None),
        (b"[]", "Unreadable", None),
        (b"null", "Unreadable", None),
        (b"[" * 100_000, "Unreadable", None),
        (b'{"status":"success","data":{"resultType":"matrix","result":{}}}', "Empty", ""),
    ],
)  # fmt: skip
def test_an_answer_that_is_none(content: bytes, problem: str, detail: str | None) -> None:
    found = read_answer(QUERY, content, TIMES)
    assert isinstance(found, Trouble)
    assert (found.problem, found.what, found.side) == (problem, "score", "candidate")
    assert detail is None or found.detail == detail
    assert wrong(asking(), found).startswith("the score query of the candidate version ")


def test_a_servers_words_are_one_short_line() -> None:
    said = json.dumps({"status": "error", "error": "\x1b[31m" + "x\n" * 10_000}).encode()
    found = read_answer(QUERY, said, TIMES)
    assert isinstance(found, Trouble) and len(found.detail) <= 200 and found.detail.isprintable()


def test_numbers_are_read_by_window() -> None:
    found = read_answer(QUERY, answer([[60, "0.5"], [180.0, "NaN"]]), TIMES)
    assert isinstance(found, dict) and found[0] == 0.5 and math.isnan(found[2]) and 1 not in found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["1",
     "NaN", 60, "matrix"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["status", "data", "resultType", "result", "values", "error"]), inner,
     max_size=4),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=50)
    | JSON.map(lambda raw: json.dumps(raw).encode())
    | JSON.map(
        lambda raw: json.dumps(
            {"status": "success", "data": {"resultType": "matrix", "result": [{"values": raw}]}}
        ).encode()
    )
)
def test_whatever_a_server_says_is_numbers_of_windows_or_a_trouble(content: bytes) -> None:
    found = read_answer(QUERY, content, TIMES)
    assert isinstance(found, Trouble) or all(
        window in (0, 1, 2) and isinstance(value, float) for window, value in found.items()
    )


@pytest.mark.parametrize(
    ("score", "value", "share"),
    [
        ({"unit": "Ratio"}, 0.25, 0.25),
        ({"unit": "Ratio"}, 1.05, 1.0),
        ({"unit": "Ratio"}, 97.0, None),
        ({"unit": "Ratio", "better": "Lower"}, 0.25, 0.75),
        ({"unit": "Percent"}, 97.0, 0.97),
        ({"unit": "Percent"}, -20.0, None),
        ({"unit": "Points", "lowest": 1, "highest": 5}, 4.0, 0.75),
        ({"unit": "Points", "lowest": 1, "highest": 5, "better": "Lower"}, 5.0, 0.0),
        ({"unit": "Points", "lowest": 1, "highest": 5}, 0.0, None),
    ],
)
def test_a_score_is_a_share_of_its_scale(score: dict[str, Any], value: float, share: float | None) -> None:
    assert share_of(asking(score={**SCORE, **score}).score, value) == share


def answers(asked: Prometheus, **values: Any) -> dict[Query, Any]:
    """Answers by ``score_candidate`` and so on."""
    made = queries(asked, CANDIDATE, ACTIVE)
    return {query: values[f"{query.what}_{query.side}"] for query in made}


def test_windows_in_which_both_have_all_are_compared() -> None:
    asked = asking()
    told = answers(
        asked,
        score_candidate={0: 0.9, 1: 0.8, 2: 0.7},
        score_active={0: 1.0, 1: 0.8},
        latency_candidate={0: 2.0, 1: 0.0, 2: 1.0},
        latency_active={0: 1.0, 1: 0.0, 2: 1.0},
    )
    pairs, reading = compare(asked, told, range(3), 99.0, 600)
    assert [(p.stream, p.number, round(p.difference, 9), p.latency_ratio, p.time) for p in pairs] == [
        (STREAM, 0, -0.1, 2.0, 600),
        (STREAM, 1, 0.0, 1.0, 660),
    ]
    assert (reading.first, reading.last, reading.compared, reading.trouble) == (0, 2, 2, None)
    assert reading.score == pytest.approx((0.85, 0.9)) and reading.latency == (1.0, 0.5)


def test_a_cost_is_compared_as_a_latency_is_in_whatever_unit_it_has() -> None:
    asked, good = asking(latency=None, cost={"query": 'tokens{version="$(version)"}'}), {0: 0.5, 1: 0.5}
    values: dict[str, Any] = {f"score_{side}": good for side in ("candidate", "active")}
    told = {**values, "cost_candidate": {0: 900.0, 1: 0.0}, "cost_active": {0: 600.0, 1: 0.0}}
    pairs, reading = compare(asked, answers(asked, **told), range(2), 9.0, 0)
    assert [(pair.latency_ratio, pair.cost_ratio) for pair in pairs] == [(None, 1.5), (None, 1.0)]
    assert reading.cost == (450.0, 300.0) and read_reading(json.dumps(reading.to_json())) == reading
    told["cost_active"] = {0: -1.0, 1: 1.0}
    _, reading = compare(asked, answers(asked, **told), range(2), 9.0, 0)
    assert reading.trouble is not None and reading.trouble.problem == "OutOfRange"
    said = wrong(asked, reading.trouble)
    assert said == "the cost query of the active version gives -1, and no cost is below 0: correct it"


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["score_candidate", "latency_active"])
def test_a_window_that_is_no_number_is_left_out_and_told(odd: float, where: str) -> None:
    asked, good = asking(), {0: 0.5, 1: 0.5}
    values = {f"{what}_{side}": good for what in ("score", "latency") for side in ("candidate", "active")}
    pairs, reading = compare(asked, answers(asked, **{**values, where: {0: odd, 1: 0.5}}), range(2), 9.0, 0)
    assert [pair.number for pair in pairs] == [1]
    assert reading.trouble is not None and reading.trouble.problem == "NotANumber"
    assert f"{reading.trouble.what}_{reading.trouble.side}" == where


def test_a_number_outside_of_its_unit_makes_the_whole_answer_unusable() -> None:
    asked, good = asking(), {0: 0.5, 1: 0.5}
    values = {f"{what}_{side}": good for what in ("score", "latency") for side in ("candidate", "active")}
    for where, number in (("score_active", 97.5), ("latency_candidate", -1.0)):
        pairs, reading = compare(
            asked, answers(asked, **{**values, where: {0: 0.5, 1: number}}), range(2), 9.0, 0
        )
        assert pairs == [] and reading.trouble is not None
        assert (reading.trouble.problem, reading.trouble.detail) == ("OutOfRange", f"{number:g}")


number = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.dictionaries(st.integers(0, 9), number, max_size=10), min_size=4, max_size=4))
def test_every_pair_can_be_and_a_reading_survives_being_written(values: list[dict[int, float]]) -> None:
    asked = asking()
    told = dict(zip(queries(asked, CANDIDATE, ACTIVE), values, strict=True))
    pairs, reading = compare(asked, told, range(10), 12.0, 0)
    assert all(-1 <= pair.difference <= 1 for pair in pairs)
    assert all(pair.latency_ratio is None or 0 < pair.latency_ratio <= 1000 for pair in pairs)
    assert {pair.number for pair in pairs} <= set.intersection(*(set(one) for one in values))
    kept = read_reading(json.dumps(reading.to_json()))
    assert kept is not None and (kept.last, kept.compared, kept.trouble) == (9, len(pairs), reading.trouble)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"first":0,"last":-1,"at":1,"compared":0}',
        '{"first":5,"last":4,"at":1,"compared":0}',
        '{"first":0,"last":4,"at":NaN,"compared":0}',
        '{"first":0,"last":4,"at":1,"compared":6}',
        '{"first":0,"last":4,"at":1,"compared":true}',
        '{"first":0,"last":4,"at":1,"compared":1,"score":[1,Infinity]}',
        '{"first":0,"last":4,"at":1,"compared":1,"score":[1]}',
        '{"first":0,"last":4,"at":1,"compared":1,"trouble":["rm -rf","score","active",""]}',
        '{"first":0,"last":4,"at":1,"compared":1,"trouble":["Empty","score","active",5]}',
        '{"first":0,"last":4,"at":1,"compared":1,"trouble":"Empty"}',
    ],
)
def test_a_reading_that_cannot_be_is_none(text: str) -> None:
    assert read_reading(text) is None


def test_the_latest_reading_counts() -> None:
    one, two, future = Reading(0, 4, 10.0, 5), Reading(5, 9, 20.0, 5), Reading(0, 99, 5.0, 5)
    assert latest(None, (), 10) is None
    assert latest(one, (two, future), 10) == two
    assert latest(two, (one,), 10) == two
