"""Bounds of structured answers: none is missing, what follows them fits, and good answers are let through."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from combee.methods.ace import schemas as ace
from combee.methods.components.prompts import ROLLOUT, lessons_schema
from combee.methods.schemas import (
    BYTES_PER_TOKEN,
    MOST_IDS,
    ROOM_SHARE,
    Schema,
    bounded,
    ids_of,
    list_of,
    longest,
    object_of,
    one_of,
    sized,
    text_of,
)
from combee.records import Message, Prompt

IDS = [f"calc-{number:06x}" for number in range(40)]
OURS = [
    ace.rollout(IDS),
    ace.rollout([]),
    ace.rollout(IDS, reasoning=False),
    ace.reflection(IDS[:3]),
    ace.reflection([]),
    ace.leaf([f"r-{k:05d}" for k in range(9)], IDS, 12),
    ace.leaf([f"r-{k:05d}" for k in range(300)], [], 400),
    ace.merge([f"u-{k}" for k in range(8)], IDS),
    ROLLOUT,
    lessons_schema([f"r-{k:05d}.*" for k in range(9)]),
]
FOREIGN: Schema = {"type": "object", "properties": {"why": {"type": "string"}, "of": {"type": "array"}}}
"""As a method from elsewhere may write it: no bound, items of any kind."""

texts = st.builds(text_of, st.just("a text"), st.integers(1, 5000))
choices = st.builds(one_of, st.lists(st.text("abc-", min_size=1, max_size=9), min_size=1, max_size=9))
values = st.recursive(
    texts | choices,
    lambda parts: (
        st.builds(list_of, parts, st.integers(0, 99))
        | st.dictionaries(st.text("abc", min_size=1), parts, min_size=1, max_size=4).map(
            lambda named: object_of(**named)
        )
    ),
    max_leaves=8,
)
rooms = st.integers(1, 20_000)


def parts(schema: Schema) -> Iterator[Schema]:
    yield schema
    for part in (schema.get("items"), *schema.get("properties", {}).values()):
        if part is not None:
            yield from parts(part)


def fullest(schema: Schema) -> Any:
    """The longest value that follows a schema."""
    if "enum" in schema:
        return max(schema["enum"], key=len)
    if schema["type"] == "string":
        return "x" * schema["maxLength"]
    if schema["type"] == "array":
        return [fullest(schema["items"])] * schema["maxItems"]
    return {name: fullest(part) for name, part in schema["properties"].items()}


def smallest(schema: Schema) -> Schema:
    return bounded(schema, 0)


@settings(deadline=None)
@given(values, rooms)
def test_what_follows_a_bounded_schema_fits_its_room(schema: Schema, room_tokens: int) -> None:
    fitted = bounded(schema, room_tokens)
    room = int(room_tokens * BYTES_PER_TOKEN * ROOM_SHARE)
    assert longest(fitted) <= max(room, longest(smallest(schema)))
    assert len(json.dumps(fullest(fitted), separators=(",", ":"))) <= longest(fitted)


@settings(deadline=None)
@given(values, rooms, rooms)
def test_more_room_takes_nothing_away(schema: Schema, one: int, other: int) -> None:
    less, more = (bounded(schema, room) for room in sorted((one, other)))
    for tight, wide in zip(parts(less), parts(more), strict=True):
        assert tight.get("maxLength", 0) <= wide.get("maxLength", 0)
        assert tight.get("maxItems", 0) <= wide.get("maxItems", 0)


@settings(deadline=None)
@given(values)
def test_what_has_room_enough_keeps_its_bounds(schema: Schema) -> None:
    assert bounded(schema, longest(schema)) == schema


@settings(deadline=None)
@given(values, rooms)
def test_only_bounds_change(schema: Schema, room_tokens: int) -> None:
    for before, after in zip(parts(schema), parts(bounded(schema, room_tokens)), strict=True):
        assert {**before, "items": 0, "properties": 0, "maxLength": 0, "maxItems": 0} == {
            **after,
            "items": 0,
            "properties": 0,
            "maxLength": 0,
            "maxItems": 0,
        } | dict.fromkeys(("items", "properties", "maxLength", "maxItems"), 0)
        assert after.get("maxLength", 1) >= 1, "a text that may hold nothing says nothing"
        assert (after.get("maxItems", 0) >= 1) == (before.get("maxItems", 0) >= 1)


def test_every_text_and_list_of_ours_has_a_bound() -> None:
    for schema in [*OURS, *(bounded(FOREIGN, 1000),)]:
        for part in parts(schema):
            if part.get("type") == "array":
                assert "maxItems" in part
            if part.get("type") == "string" and "enum" not in part:
                assert part["maxLength"] > 0


def test_an_answer_as_long_as_today_is_let_through() -> None:
    """Bounds are for models that repeat themselves: they must not shorten what a good one writes."""
    rollout = bounded(ace.rollout(IDS), 1024)["properties"]
    assert rollout["reasoning"]["maxLength"] >= 1200 and rollout["answer"]["maxLength"] >= 1200
    review = bounded(ace.reflection(IDS[:3]), 1024)["properties"]
    assert review["lessons"]["maxItems"] == 6 and review["lessons"]["items"]["maxLength"] >= 350
    leaf = bounded(ace.leaf([f"r-{k:05d}" for k in range(9)], IDS, 12), 4096)["properties"]["entries"]
    assert leaf["maxItems"] == 12 and leaf["items"]["properties"]["text"]["maxLength"] >= 400


def test_ids_are_those_that_were_shown() -> None:
    few, many = (ids_of([f"a-{k}" for k in range(count)], 16, "id") for count in (2, MOST_IDS + 1))
    assert few is not None and few["items"]["enum"] == ["a-0", "a-1"] and few["maxItems"] == 2
    assert ids_of([], 16, "id") is None, "where none was shown, none can be named"
    assert many is not None and "enum" not in many["items"] and many["items"]["maxLength"] > 0


def test_a_prompt_takes_the_room_that_a_manifest_gives() -> None:
    prompt = Prompt((Message("user", "x"),), "rollout", ace.rollout(IDS), 1024)
    short = sized(prompt, 160)
    assert short.max_output_tokens == 160 and short.schema == bounded(ace.rollout(IDS), 160)
    assert sized(Prompt((Message("user", "x"),)), 160).schema is None
