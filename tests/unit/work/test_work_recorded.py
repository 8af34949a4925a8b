"""Parts of one recording become one reflection, and new entries are compared with what was read."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from combee.methods.ace import AceMethod
from combee.methods.protocol import Update
from combee.records import Lesson, Reflection
from combee.tasks.traces import TracesTask
from combee.work import learn, passages

LESSONS = st.lists(st.sampled_from(["Add first.", "Round last.", "Ask twice."]), max_size=4)


def part(lessons: list[str], tags: tuple[tuple[str, str], ...] = ()) -> Reflection:
    told = tuple(Lesson(f"r-1.{k}", text) for k, text in enumerate(lessons, start=1))
    return Reflection("r-1", "t@0", False, "It slipped.", told, tags)


@given(st.lists(LESSONS, min_size=1, max_size=5))
def test_every_lesson_is_there_once_under_an_id_of_its_own(parts: list[list[str]]) -> None:
    found = learn.joined([part(lessons) for lessons in parts])
    assert found is not None
    texts = [lesson.text for lesson in found.lessons]
    assert texts == list(dict.fromkeys(text for lessons in parts for text in lessons))
    assert [lesson.id for lesson in found.lessons] == [f"r-1.{k}" for k in range(1, len(texts) + 1)]
    assert (found.id, found.trajectory_id, found.text) == ("r-1", "t@0", "It slipped.")


def test_no_part_is_no_reflection() -> None:
    assert learn.joined([]) is None


def test_votes_count_once() -> None:
    found = learn.joined([part([], (("a", "helpful"),)), part([], (("a", "helpful"), ("b", "harmful")))])
    assert found is not None
    assert found.tags == (("a", "helpful"), ("b", "harmful"))


def test_an_entry_that_repeats_a_recording_is_refused_however_many_there_are(monkeypatch) -> None:
    monkeypatch.setattr(passages, "AT_ONCE", 3)
    said = "the silver fox of Mrs Abernathy sleeps under the old piano"
    rows = [
        {
            "messages": [{"role": "assistant", "content": f"number {n} is nothing special at all"}],
            "outcome": n % 2,
        }
        for n in range(10)
    ]
    rows[7]["messages"].append({"role": "assistant", "content": said})
    train = TracesTask().read_rows([json.dumps(row).encode() for row in rows], "t")
    method = AceMethod()
    ids = [example.id for example in train.examples]
    updates = [
        Update("ADD", "General", f"Remember that {said}.", frozenset({f"{ids[7]}@0"})),
        Update("ADD", "General", "Divide before you add.", frozenset({f"{ids[7]}@0"})),
    ]
    ledger = method.apply(method.empty(), updates, [], iteration=0)
    new = method.new_entries(method.empty(), ledger)
    refused = passages.checked(method, ledger, new, train, ids)
    assert [one.kind for one in refused] == ["leak"]
    assert not passages.checked(method, ledger, new, train, [one for one in ids if one != ids[7]])


def test_records_that_nobody_was_asked_for_stay_under_their_names() -> None:
    def record(**texts: str) -> Reflection:
        told = tuple(Lesson(f"r-1.{name}", text) for name, text in texts.items())
        return Reflection("r-1", "t@0", False, "", told)

    found = learn.joined_records([record(ask="first", check="once"), record(ask="second", check="once")])
    assert found is not None
    assert found.lessons == (Lesson("r-1.ask", "first || second"), Lesson("r-1.check", "once"))
    assert learn.joined_records([]) is None
    long = learn.joined_records([record(ask="a" * 50_000), record(ask="b" * 50_000)])
    assert long is not None
    assert len(long.lessons[0].text) <= learn.MAX_RECORD_CHARACTERS + 10
