"""Rows of traces: two formats, how they ended, and rows that nobody would write on purpose."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from combee.assembly.splits import read_split
from combee.errors import DataError
from combee.records import Trajectory
from combee.tasks.dataset import Dataset
from combee.tasks.traces import MAX_TRACE_BYTES, Recording, TracesTask, decode, trajectories
from combee.tasks.traces.outcomes import outcome_of

CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.txt"}'}}
CHAT = {
    "id": "chat-1",
    "messages": [
        {"role": "system", "content": "You tidy folders."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Tidy a."}, {"type": "image_url", "image_url": {}}],
        },
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "First I read."},
        {"role": "tool", "tool_call_id": "c1", "content": "old text"},
        {"role": "assistant", "content": "Done."},
    ],
    "outcome": {"success": False, "feedback": "a.txt is gone."},
}
ATIF = {
    "schema_version": "ATIF-v1.4",
    "session_id": "s-1",
    "agent": {"name": "tidy", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Tidy a."},
        {
            "step_id": 2,
            "source": "agent",
            "message": "Done.",
            "reasoning_content": "First I read.",
            "tool_calls": [{"tool_call_id": "c1", "function_name": "read", "arguments": {"path": "a.txt"}}],
            "observation": {"results": [{"source_call_id": "c1", "content": "old text"}]},
        },
    ],
    "extra": {"reward": 1.0},
}


TASK = TracesTask()


def read(*rows: Any, task: TracesTask = TASK) -> Dataset:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    return task.read_rows([line + b"\n" for line in lines], "t.jsonl")


def recording(rows: Dataset, number: int = 0) -> Recording:
    return decode(rows.recordings[rows.examples[number].id]())


def trajectory(rows: Dataset) -> Trajectory:
    return next(trajectories(rows.examples[0], recording(rows), 2))


def test_a_chat_is_a_trajectory() -> None:
    found = trajectory(read(CHAT))
    assert (found.id, found.example_id, found.correct, found.score) == ("chat-1@2", "chat-1", False, 0.0)
    assert (found.answer, found.feedback) == ("Done.", "a.txt is gone.")
    assert found.input == "Tidy a.\n[image_url left out]"
    assert found.output == (
        "## SYSTEM\n\nYou tidy folders.\n\n## USER\n\nTidy a.\n[image_url left out]\n\n"
        "## AGENT\n\n(thinking) First I read.\n\n## AGENT CALLS read\n\n"
        '{"path": "a.txt"}\n\n## RESULT OF read\n\nold text\n\n## AGENT\n\nDone.\n\n'
    )


def test_a_trajectory_of_harbor_is_one() -> None:
    found = trajectory(read(ATIF))
    assert (found.id, found.correct, found.score, found.answer) == (
        "s-1@2",
        True,
        1.0,
        "(thinking) First I read.\n\nDone.",
    )
    assert '## AGENT CALLS read\n\n{"path": "a.txt"}\n\n## RESULT OF read\n\nold text' in found.output


def test_a_file_may_hold_both_and_a_bare_list() -> None:
    rows = read(CHAT, ATIF, CHAT["messages"])
    assert [example.id for example in rows.examples] == ["chat-1", "s-1", "3"]
    assert any("1 of 3 traces do not say how they ended" in said for said in rows.warnings)
    assert any("2 parts of messages that are no text" in said for said in rows.warnings)


@pytest.mark.parametrize(("format", "row"), [("OpenAI", ATIF), ("ATIF", CHAT)])
def test_a_format_that_is_stated_is_asked_for(format: Any, row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"t\.jsonl:1: the trace has no (messages|steps)"):
        read(row, task=TracesTask(format))


OUTCOMES = [
    ({"outcome": "passed"}, 1.0),
    ({"outcome": "Failed"}, 0.0),
    ({"outcome": True}, 1.0),
    ({"reward": 0.25}, 0.25),
    ({"reward": 7}, 1.0),
    ({"reward": 10**400}, 1.0),
    ({"score": -1}, 0.0),
    ({"success": False, "reward": 1}, 1.0),
    ({"outcome": {"score": 0.5, "feedback": "half"}}, 0.5),
    ({"extra": {"resolved": True}}, 1.0),
    ({"outcome": "the customer left"}, None),
    ({"outcome": {"outcome": {"success": True}}}, None),
    ({"outcome": [1]}, None),
    ({}, None),
]


@pytest.mark.parametrize(("row", "score"), OUTCOMES)
def test_how_it_ended(row: dict[str, Any], score: float | None) -> None:
    assert outcome_of(row).score == score


def test_words_of_an_outcome_are_feedback() -> None:
    assert (
        outcome_of({"outcome": "the customer left", "feedback": "at once"}).feedback
        == "the customer left at once"
    )


def test_one_end_that_is_not_known_is_no_failure_in_the_prompt() -> None:
    from combee.methods.ace import AceMethod

    found = trajectory(read({**CHAT, "outcome": None}))
    text = AceMethod().reflect_prompt("", found, 1, None).messages[-1].content
    assert "# VERDICT\n\nHow it ended was not recorded: judge by what can be seen.\n\n" in text


def test_a_long_trace_is_told_in_parts_and_shown_whole() -> None:
    from combee.methods.ace import AceMethod

    said = [{"role": "assistant", "content": f"Step {n}: " + "word " * 300} for n in range(10)]
    rows = read({**CHAT, "messages": [*CHAT["messages"][:2], *said]}, task=TracesTask(part_tokens=1000))
    parts = list(trajectories(rows.examples[0], recording(rows), 0))
    assert len(parts) == 5
    assert {part.id for part in parts} == {"chat-1@0"}
    assert any(
        "1 of 1 traces are longer than 1,000 tokens and are read in 5 parts" in told for told in rows.warnings
    )
    text = AceMethod().reflect_prompt("", parts[1], 1, None).messages[-1].content
    assert "# THE AGENT'S WORK, PART 2 OF 5 (the others are reviewed apart)" in text
    assert parts[1].output.strip() in text
    assert rows.examples[0].tokens > 3000


DEEP = b'{"messages": ' + b"[" * 100 + b"]" * 100 + b"}"
HOSTILE = [
    (b"\xff\xfe", "is not valid UTF-8 at byte 1"),
    (b"{", "is not valid JSON at column 2"),
    (b"[1, NaN]", "NaN is not a JSON number"),
    (b"1" * 5000, "is not valid JSON"),
    (b'"text"', "is not a JSON object"),
    (b"[" * 200_000, "is nested deeper than 64"),
    (DEEP, "is nested deeper than 64"),
    (b"{}", "has neither messages nor steps"),
    (b'{"messages": {}}', "has no messages"),
    (b'{"messages": [1]}', "message 1 has no role"),
    (b'{"messages": [{"role": "wizard", "content": ""}]}', "message 1 has the unknown role 'wizard'"),
    (b'{"messages": [{"role": "user", "content": "hi"}]}', "holds nothing that an agent said or did"),
    (
        b'{"messages": [{"role": "assistant", "tool_calls": [{}]}]}',
        "message 1 has a tool call without a name",
    ),
    (b'{"messages": [{"role": "assistant", "tool_calls": 3}]}', "message 1 has tool_calls that are no list"),
    (b'{"steps": [{"source": "moon"}]}', "step 1 has the unknown source 'moon'"),
    (b'{"steps": [{"source": "agent", "observation": []}]}', "step 1 has an observation without a list"),
    (
        b'{"steps": [{"source": "agent", "tool_calls": [{}]}]}',
        "step 1 has a tool call without a function_name",
    ),
    (b" " * (MAX_TRACE_BYTES + 1) + b"{}", "is longer than 4,194,304 bytes"),
]


@pytest.mark.parametrize(("row", "reason"), HOSTILE, ids=[reason for _, reason in HOSTILE])
def test_a_row_that_cannot_be_used_is_left_out_and_told_with_its_line(row: bytes, reason: str) -> None:
    good = [{**CHAT, "id": f"c{n}", "outcome": f"end {n}"} for n in range(10)]
    rows = read(*good, row)
    assert len(rows.examples) == 10
    assert any("1 of 11 rows are left out: line 11 (" in said and reason in said for said in rows.warnings)
    with pytest.raises(DataError, match=r"^t\.jsonl:1: the trace ") as refused:
        read(row)
    assert reason in str(refused.value)


def test_too_many_of_them_are_refused() -> None:
    good = [{**CHAT, "outcome": f"end {n}"} for n in range(8)]
    with pytest.raises(DataError, match=r"t\.jsonl:9: the trace is not .*; 1 of 9 rows cannot be used"):
        read(*good, b"1")


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(DataError, match=r"t\.jsonl: there is no trace in it"):
        read(b"", b"  ")


def test_names_are_the_rows_own_or_their_lines() -> None:
    odd = [
        {"messages": CHAT["messages"], "outcome": f"end {n}", "id": one}
        for n, one in enumerate(["a", "a", "b c", 7])
    ]
    assert [example.id for example in read(*odd).examples] == ["a", "a:2", "3", "7"]


def test_identical_traces_are_merged_and_told() -> None:
    rows = read(CHAT, {**CHAT, "id": "again"})
    assert [example.id for example in rows.examples] == ["chat-1"]
    assert any("1 traces are identical" in said for said in rows.warnings)


def test_half_a_character_does_no_harm() -> None:
    found = recording(
        read(b'{"messages": [{"role": "assistant", "content": "a\\ud800b"}], "outcome": "\\udc00"}')
    )
    assert "a?b" in found.parts[0]
    assert found.feedback == "?"


def test_a_result_that_answers_no_call_stands_where_it_was_said() -> None:
    lone = [{"role": "tool", "tool_call_id": "x", "content": "late"}, {"role": "assistant", "content": "ok"}]
    assert recording(read({"messages": lone})).parts[0] == "## TOOL\n\nlate\n\n## AGENT\n\nok\n\n"


def test_results_are_shown_behind_their_calls_whatever_their_order() -> None:
    def call(id_: str) -> dict[str, Any]:
        return {"id": id_, "function": {"name": f"tool-{id_}", "arguments": "{}"}}

    messages = [
        {"role": "assistant", "tool_calls": [call("a"), call("b")]},
        {"role": "tool", "tool_call_id": "b", "content": "of b"},
        {"role": "tool", "tool_call_id": "a", "content": "of a"},
    ]
    text = recording(read({"messages": messages})).parts[0]
    assert text.index("CALLS tool-a") < text.index("of a") < text.index("CALLS tool-b") < text.index("of b")


def _many(count: int, kilobytes: int) -> Iterator[bytes]:
    for number in range(count):
        said = f"{number} " + "some words that fill it " * (kilobytes * 42)
        messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": said}]
        yield json.dumps({"messages": messages, "outcome": True}).encode() + b"\n"


def test_memory_does_not_grow_with_the_traces(tmp_path: Path) -> None:
    """60 MB go through; what stays is a few MB whatever their number (all 10,000: ``make bench-traces``)."""
    path = tmp_path / "traces.jsonl"
    with path.open("wb") as file:
        file.writelines(_many(60, 1000))
    tracemalloc.start()
    rows = read_split(TracesTask(), str(path))
    read_mb = tracemalloc.get_traced_memory()[1] / 1e6
    for example in rows.examples:
        assert sum(1 for _ in trajectories(example, decode(rows.recordings[example.id]()), 0)) > 10
    peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    assert path.stat().st_size > 55e6
    assert read_mb < 25
    assert peak_mb < 25


def test_a_row_beyond_the_limit_is_passed_over_without_being_held(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    with path.open("wb") as file:
        file.writelines(_many(10, 1))
        file.write(b'{"messages": "' + b"x" * 30_000_000 + b'"}\n')
        file.writelines(_many(1, 2))
    tracemalloc.start()
    rows = read_split(TracesTask(), str(path))
    peak_mb = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    assert len(rows.examples) == 11
    assert any("line 11 (is longer than" in said for said in rows.warnings)
    assert peak_mb < 15
