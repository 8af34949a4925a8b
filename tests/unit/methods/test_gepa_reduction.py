"""What each call of a proposal is given: components by themselves, and a last call within its caps."""

from __future__ import annotations

from gepa_makers import GEPA, answer, variant
from hypothesis import given
from hypothesis import strategies as st

from combee.methods.components.reduction import COMPONENT, carried_by_reduce, parts
from combee.methods.components.standing import rendered_variant
from combee.records import Lesson, Reflection


def record(number: int, *components: str) -> Reflection:
    name = f"r-{number:05d}"
    told = tuple(Lesson(f"{name}.{component}", f"what {component} did") for component in components)
    return Reflection(name, f"{number}@0", False, "", told)


def test_each_component_has_its_own_records_and_an_empty_one_is_skipped() -> None:
    prompt = variant(ask="Ask.", check="Check.", sum="Sum.")
    found = parts(rendered_variant(prompt), [record(1, "ask"), record(2, "ask", "sum"), record(3)])
    assert [(part.shown.ids[COMPONENT], [one.id for one in part.reflections]) for part in found] == [
        ("ask", ["r-00001", "r-00002"]),
        ("sum", ["r-00002"]),
    ]
    assert [part.shown.text for part in found] == ["Ask.", "Sum."]


def test_a_record_of_the_whole_prompt_is_one_of_every_component() -> None:
    pool = GEPA.initial('{"ask": "Ask.", "check": "Check."}')
    (shown,) = GEPA.working(pool, budget_tokens=100, verify="Off")
    reflection = GEPA.parse_reflection("", reflection_id="r-00001", trajectory=answer("1", 0.0))
    assert [part.shown.ids[COMPONENT] for part in GEPA.parts(shown, [reflection])] == ["ask", "check"]


@given(st.lists(st.integers(1, 500), max_size=60), st.integers(1, 40), st.integers(0, 2000))
def test_the_last_call_holds_what_fits_and_one_at_least(tokens: list[int], fan_in: int, room: int) -> None:
    count = carried_by_reduce(tokens, cap=fan_in, room_tokens=room)
    assert count <= fan_in
    assert count == 0 if not tokens else count >= 1
    assert count <= 1 or sum(tokens[:count]) <= room
