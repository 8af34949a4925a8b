"""The notes of a step: rollouts with what they used, and calls that brought no answer."""

from __future__ import annotations

import pytest

from combee.clients.model.wire import Completion
from combee.errors import CombeeError, ContextLengthError, RolloutError, TransientError
from combee.records import Shown, Trajectory
from combee.work.asker import Answered, Asker, decode_rows
from combee.work.noted import LostCall, all_notes, decode_notes

SHOWN = Shown("Say it plainly.")


def trajectory(example: str, score: float, repeat: int = 0) -> Trajectory:
    return Trajectory(f"{example}@{repeat}", example, "", "", "", score, score == 1.0, "")


def answered(asker: Asker, role: str, chain: int, tokens: int) -> None:
    asker.begin("map")
    completion = Completion("", tokens, 2, 1, 0.5, "stop", 1, lost_tokens=3)
    asker.record(role, "map", chain, Answered(completion, hit=False))


def test_a_rollout_has_what_its_own_calls_used_and_no_other_calls() -> None:
    asker = Asker({}, {})
    answered(asker, "task", 1, 10)
    answered(asker, "task", 1, 20)  # a repair of the same rollout
    answered(asker, "task", 2, 500)
    answered(asker, "proposer", 1, 900)
    asker.notes.rolled_out(trajectory("a", 0.0), SHOWN, split="train", stage="map", chain=1)
    answered(asker, "task", 1, 40)  # tried again
    asker.notes.rolled_out(trajectory("a", 1.0), SHOWN, split="train", stage="map", chain=1)
    first, again = decode_notes(asker.encode()).rollouts
    assert (first.prompt_tokens, first.completion_tokens, first.cached_tokens) == (30, 4, 2)
    assert (first.lost_tokens, first.seconds, first.correct) == (6, 1.0, False)
    assert (again.prompt_tokens, again.example, again.score, again.split) == (40, "a", 1.0, "train")
    assert len(decode_rows(asker.encode())) == 5, "a note is no call"


def test_notes_do_not_depend_on_who_answered_first() -> None:
    one, other = Asker({}, {}), Asker({}, {})
    for asker, order in ((one, (0, 1, 2)), (other, (2, 0, 1))):
        for chain in order:
            asker.notes.rolled_out(trajectory(str(chain), 1.0), SHOWN, split="select", stage="s", chain=chain)
    assert one.encode() == other.encode()


@pytest.mark.parametrize(
    "error",
    [
        ContextLengthError("too long", where="models.task", fix="Shorten it"),
        TransientError("no answer"),
        RolloutError("TaskTimeout", "it hung", where="solve.py"),
    ],
)
def test_a_lost_call_comes_back_as_the_error_that_it_was(error: CombeeError) -> None:
    asker = Asker({}, {})
    asker.notes.lost.append(LostCall.of("k", error))
    whole = Asker({}, {})
    whole.take_in(asker, 0)
    (call,) = all_notes([whole.encode(), b""]).lost
    again = call.error
    assert (type(again), again.code, str(again)) == (type(error), error.code, str(error))
    used = Completion("", 7, 2, 0, 0.0, "stop", 1)
    assert (again.used, LostCall.of("k", error, used).error.used) == (None, used)
