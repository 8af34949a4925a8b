"""What a container leaves becomes a recording, or a failed rollout with a word for how it misbehaved."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from combee.errors import BugError, DataError, RolloutError
from combee.records import Example
from combee.tasks.container import (
    LEFT,
    ContainerTask,
    Ended,
    Fault,
    given_files,
    may_be_tried_again,
    recording_left,
)

TALK = [
    {"role": "user", "content": "How much water?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "feel", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "dry"},
    {"role": "assistant", "content": "WATER 240 ml"},
]
LINES = "".join(json.dumps(message) + "\n" for message in TALK).encode()
GOOD = Ended(0, 3.0, files={"reward.json": b'{"reward": 1, "feedback": ""}', "trajectory.jsonl": LINES})


def left(**files: bytes) -> Ended:
    named = {"reward": "reward.json", "trajectory": "trajectory.jsonl"}
    return replace(GOOD, files={**GOOD.files, **{named[name]: data for name, data in files.items()}})


@pytest.mark.parametrize(
    "trajectory",
    [LINES, json.dumps({"messages": TALK}).encode(), b"\n" + LINES + b"\n\n"],
    ids=["a message a line", "one trace", "blank lines"],
)
def test_a_good_one_is_read_as_a_trace(trajectory: bytes) -> None:
    found = recording_left(left(trajectory=trajectory))
    assert (found.title, found.answer, found.score) == ("How much water?", "WATER 240 ml", 1.0)
    (part,) = found.parts
    assert "feel" in part
    assert "dry" in part


def test_its_reward_counts_and_not_what_the_trajectory_says() -> None:
    trace = json.dumps({"messages": TALK, "outcome": {"success": True, "feedback": "all good"}}).encode()
    found = recording_left(
        left(trajectory=trace, reward=b'{"reward": 0.25, "feedback": "Too  much\\nwater."}')
    )
    assert (found.score, found.feedback) == (0.25, "Too much water.")


def test_a_long_one_is_read_in_parts() -> None:
    talk = [{"role": "assistant", "content": f"Pot {n}. " + "I look. " * 300} for n in range(8)]
    trajectory = "".join(json.dumps(message) + "\n" for message in [TALK[0], *talk]).encode()
    assert len(recording_left(left(trajectory=trajectory), part_tokens=500).parts) > 4


WRONG: list[tuple[Ended, Fault, str]] = [
    (replace(GOOD, stopped=Fault.TIMEOUT, code=137), Fault.TIMEOUT, "stopped at its timeout, after 3 s"),
    (replace(GOOD, code=128 + 24), Fault.TIMEOUT, "stopped at its timeout"),
    (replace(GOOD, stopped=Fault.WROTE_TOO_MUCH, code=137), Fault.WROTE_TOO_MUCH, "for the files it wrote"),
    (replace(GOOD, code=128 + 25), Fault.WROTE_TOO_MUCH, "container.scratch"),
    (replace(GOOD, code=137), Fault.KILLED, "exit code 137"),
    (replace(GOOD, code=3, output="no module named care"), Fault.CRASHED,
     "exit code 3 after 3 s: no module named care"),
    (replace(GOOD, files={}), Fault.NO_REWARD, "left no reward.json"),
    (left(reward=b"{"), Fault.BAD_REWARD, "reward.json is not valid JSON"),
    (left(reward=b""), Fault.BAD_REWARD, "reward.json is not valid JSON"),
    (left(reward=b"\xff"), Fault.BAD_REWARD, "is not valid UTF-8"),
    (left(reward=b"1"), Fault.BAD_REWARD, "is not a JSON object"),
    (left(reward=b"{}"), Fault.BAD_REWARD, "no number as reward"),
    (left(reward=b'{"reward": "1"}'), Fault.BAD_REWARD, "no number as reward"),
    (left(reward=b'{"reward": true}'), Fault.BAD_REWARD, "no number as reward"),
    (left(reward=b'{"reward": 1.5}'), Fault.BAD_REWARD, "not from 0 to 1"),
    (left(reward=b'{"reward": 1e999}'), Fault.BAD_REWARD, "not from 0 to 1"),
    (left(reward=b'{"reward": NaN}'), Fault.BAD_REWARD, "NaN is not a JSON number"),
    (left(reward=b'{"reward": 1, "feedback": 3}'), Fault.BAD_REWARD,
     "feedback in its reward.json is no text"),
    (left(reward=b"[" * 100_000), Fault.BAD_REWARD, "reward.json is longer than"),
    (left(reward=b"[" * 60_000), Fault.BAD_REWARD, "nested deeper"),
    (replace(GOOD, files={"reward.json": b'{"reward": 1}'}), Fault.NO_TRAJECTORY, "left no trajectory.jsonl"),
    (left(trajectory=b""), Fault.BAD_TRAJECTORY, "is empty"),
    (left(trajectory=b"{}\n{"), Fault.BAD_TRAJECTORY, "is not valid JSON"),
    (left(trajectory=b'{"a": 1}'), Fault.BAD_TRAJECTORY, "neither one trace nor one chat message a line"),
    (left(trajectory=b'{"role": "user", "content": "x"}'), Fault.BAD_TRAJECTORY,
     "nothing that an agent said"),
    (left(trajectory=b" " * (LEFT["trajectory.jsonl"] + 1)), Fault.BAD_TRAJECTORY, "is longer than"),
]  # fmt: skip


@pytest.mark.parametrize(("ended", "fault", "said"), WRONG, ids=[f"{n}-{w[1]}" for n, w in enumerate(WRONG)])
def test_each_misbehaviour_has_a_word_and_a_remedy(ended: Ended, fault: Fault, said: str) -> None:
    with pytest.raises(RolloutError) as caught:
        recording_left(ended)
    assert caught.value.code == fault
    assert said in str(caught.value)
    assert caught.value.fix
    assert may_be_tried_again(caught.value) == (fault in (Fault.CRASHED, Fault.KILLED))


def test_it_is_given_the_row_and_what_was_learned() -> None:
    (example,) = (
        ContainerTask().read_rows([b'{"plant": "fern", "id": 7, "name": "\xc3\xa9"}\n'], "t").examples
    )
    files = given_files(example, "# Playbook\n")
    assert json.loads(files["example.json"]) == {"id": "7", "plant": "fern", "name": "é"}
    assert files["artifact.md"] == b"# Playbook\n"


def test_rows_are_any_objects_and_equal_ones_are_merged() -> None:
    task = ContainerTask()
    rows = task.read_rows([b'{"a": 1, "b": 2}', b"", b'{"b": 2, "a": 1}', b'{"id": "x", "a": 2}'], "t.jsonl")
    assert [example.id for example in rows.examples] == ["1", "x"]
    assert rows.warnings == ("t.jsonl: 1 rows are identical to earlier ones and are merged with them",)
    assert rows.digest != task.read_rows([b'{"a": 1}'], "t").digest
    with pytest.raises(BugError):
        task.score("", rows.examples[0])


@pytest.mark.parametrize(
    ("lines", "where", "said"),
    [
        ([b"[]", b"{"], "t:1", "is not a JSON object"),
        ([b"[]", b"{}", b"{"], "t:1", "(3 of 3 lines are wrong; line 2: the row is empty; line 3: "),
        ([b"{}"], "t:1", "the row is empty"),
        ([b'{"a": 1}', b"{"], "t:2", "not valid JSON"),
        ([b"3"], "t:1", "is not a JSON object"),
        ([b'{"id": "x"}'], "t:1", "the row is empty"),
        ([b'{"id": "a b", "c": 1}'], "t:1", "its id is no word"),
        ([b'{"id": true, "c": 1}'], "t:1", "its id is no word"),
        ([b'{"id": "a", "c": 1}', b'{"id": "a", "c": 2}'], "t:2", "also the id of another row"),
        ([b'{"a": "' + b"x" * 1_100_000 + b'"}'], "t:1", "longer than"),
        ([b"\n"], "t", "there is no row"),
    ],
)
def test_a_row_that_is_none_is_named(lines: list[bytes], where: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        ContainerTask().read_rows(lines, "t")
    assert caught.value.where == where
    assert said in str(caught.value)


def test_an_example_with_any_text_can_be_given() -> None:
    (example,) = ContainerTask().read_rows([b'{"a": "\\ud800"}'], "t").examples
    assert isinstance(example, Example)
    assert json.loads(given_files(example, "\ud800")["example.json"])["a"]
