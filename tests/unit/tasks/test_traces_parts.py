"""How a conversation is divided: nothing is lost, the order stays, and what belongs together stays
together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from combee.tasks.traces.conversation import Call, Turn
from combee.tasks.traces.parts import node_of, parts_of, texts_in

TEXT = st.text(max_size=400)
CALL = st.builds(Call, st.just("c"), st.sampled_from(["read", "write"]), TEXT, st.none() | TEXT)
TURN = st.builds(Turn, st.sampled_from(["system", "user", "agent", "tool"]), TEXT, st.lists(CALL, max_size=4))
TURNS = st.lists(TURN, max_size=12)
LIMIT = st.integers(25, 400)


def size(text: str) -> int:
    return len(text.encode())


def pairs(turns: list[Turn]) -> list[str]:
    """The texts of each call with its result."""
    found = []
    for turn in turns:
        nodes = node_of(turn)
        found += (
            ["".join(texts_in(node)) for node in nodes if not isinstance(node, str)] if turn.calls else []
        )
    return found


@given(TURNS, LIMIT)
def test_the_parts_one_after_the_other_are_the_whole(turns: list[Turn], limit: int) -> None:
    whole = "".join(text for turn in turns for text in texts_in(node_of(turn)))
    assert "".join(parts_of(turns, limit).texts) == whole


@given(TURNS, LIMIT)
def test_no_part_is_larger_than_it_may_be_and_none_is_empty_beside_others(
    turns: list[Turn], limit: int
) -> None:
    parts = parts_of(turns, limit).texts
    assert parts
    assert all(size(part) <= 4 * limit for part in parts)
    assert len(parts) == 1 or all(parts)


@given(TURNS, LIMIT)
def test_a_call_and_its_result_are_apart_only_where_they_are_too_large(turns: list[Turn], limit: int) -> None:
    parts = parts_of(turns, limit).texts
    for pair in pairs(turns):
        if size(pair) <= 4 * limit:
            assert any(pair in part for part in parts)


@given(TURNS, LIMIT)
def test_a_turn_is_whole_where_it_fits(turns: list[Turn], limit: int) -> None:
    parts = parts_of(turns, limit).texts
    for turn in turns:
        text = "".join(texts_in(node_of(turn)))
        if size(text) <= 4 * limit:
            assert any(text in part for part in parts)


@given(TURNS, LIMIT)
def test_what_is_cut_is_counted(turns: list[Turn], limit: int) -> None:
    large = [text for turn in turns for text in texts_in(node_of(turn)) if size(text) > 4 * limit]
    assert parts_of(turns, limit).cut == len(large)


@given(TURNS)
def test_what_fits_is_one_part(turns: list[Turn]) -> None:
    assert len(parts_of(turns, 10_000).texts) == 1


def test_a_text_is_cut_at_the_end_of_a_line_where_one_is_near() -> None:
    lines = "".join(f"line {number}\n" for number in range(60))
    parts = parts_of([Turn("tool", lines)], 25).texts
    assert len(parts) > 3
    assert all(part.endswith("\n") for part in parts)


def test_no_character_is_cut() -> None:
    parts = parts_of([Turn("user", "€" * 200)], 25).texts
    assert "".join(parts) == f"## USER\n\n{'€' * 200}\n\n"
    assert all(size(part) <= 100 for part in parts)


def test_calls_of_one_turn_are_split_between_them_each_with_its_result() -> None:
    calls = [Call(str(n), f"tool{n}", "x" * 100, "y" * 100) for n in range(3)]
    parts = parts_of([Turn("agent", "I look.", calls)], 80).texts
    assert [[f"CALLS tool{n}" in part and f"OF tool{n}" in part for n in range(3)] for part in parts] == [
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]
    assert "I look." in parts[0]
