"""What replay asks, what it makes of the answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from ace_makers import ACE, add, learn, trajectory, why_left_out

from combee.methods.ace import Ledger
from combee.methods.ace.verification import SECOND_LOOK
from combee.methods.protocol import Verdict
from combee.methods.verification import Rollout, Round, Verified, Verifying
from combee.records import Trajectory

Model = Callable[[str, str, int], bool]
"""(example, text, repeat) -> whether it is answered right."""


def driven(verifying: Verifying[Ledger], model: Model) -> tuple[Verified[Ledger], dict[str, list[Rollout]]]:
    """What a verification ends with, and the rollouts that it asked for by stage."""
    stages: dict[str, list[Rollout]] = {}
    try:
        turn: Round = next(verifying)
        while True:
            asked = stages[turn.stage] = list(turn.rollouts)
            turn = verifying.send([answered(one, model) for one in asked])
    except StopIteration as end:
        return end.value, stages


def answered(one: Rollout, model: Model) -> Trajectory:
    right = model(one.example_id, one.page.text, one.repeat)
    return replace(trajectory(f"{one.example_id}@0", correct=right), example_id=one.example_id)


def ran(right: str = "89", wrong: str = "1234") -> dict[str, Trajectory]:
    made = {f"{n}@0": trajectory(f"{n}@0", correct=True) for n in right}
    return made | {f"{n}@0": trajectory(f"{n}@0") for n in wrong}


def replayed(ledger: Ledger, model: Model) -> tuple[Ledger, dict[str, list[Rollout]]]:
    verifying = ACE.verification(ledger, trajectories=ran(), budget_tokens=8000, verify="Replay")
    done, stages = driven(verifying, model)
    return done.artifact, stages


def fixes(example: str, text: str, repeat: int) -> bool:
    """Right with the entry, and 8 and 9 always."""
    return example in "89" or "Say so" in text


@pytest.mark.parametrize(
    ("model", "sources", "why"),
    [
        (fixes, ("1@0",), ""),
        (fixes, ("1@0", "2@0"), ""),
        (lambda e, t, r: e in "89", ("1@0", "2@0"), "replay"),
        (lambda e, t, r: ("Say so" in t) != (e in "89"), ("1@0", "2@0"), "replay"),
        (lambda e, t, r: True, ("1@0",), "unverified"),
        (lambda e, t, r: True, ("1@0", "2@0"), ""),
        (lambda e, t, r: "Say so" not in t, ("8@0", "9@0"), "replay"),
        (lambda e, t, r: True, ("8@0", "9@0"), ""),
        (lambda e, t, r: fixes(e, t, r) or r == SECOND_LOOK + 2, ("1@0",), "unverified"),
    ],
    ids=[
        "fixes its own",
        "two sources, fixes",
        "two sources, does not fix",
        "harms every control",
        "right without it when asked anew: shows nothing",
        "and two sources stand",
        "two right answers that it spoils",
        "two right answers that stay right",
        "once right without it in two looks: luck",
    ],
)
def test_what_stands_after_a_replay(model: Model, sources: tuple[str, ...], why: str) -> None:
    ledger, _ = replayed(learn(add("Say so", *sources)), model)
    assert why_left_out(ledger, "Say so") == why


def test_one_spoilt_answer_may_be_a_slip_and_two_are_harm() -> None:
    def spoils(looks: set[int]) -> Model:
        return lambda e, t, r: "Say so" not in t or not (e == "8" and r in looks)

    ledger = learn(add("Say so", "8@0", "9@0"))
    for looks, why in (({0}, ""), ({0, SECOND_LOOK}, "replay")):
        after, _ = replayed(ledger, spoils(looks))
        assert why_left_out(after, "Say so") == why
    (verdict,) = after.verdicts
    assert verdict == Verdict(verdict.entry_digest, "", False, 1, ("8", "9"))


def test_candidates_are_replayed_beside_what_is_settled_not_beside_each_other() -> None:
    ledger = learn(add("Say so", "1@0", "2@0"), add("Say other", "3@0", "4@0"))
    settled = learn(add("Say old", "7@0", "6@0"), start=ledger)
    _, stages = replayed(settled, fixes)
    texts = {one.page.text for one in stages["replay"]}
    assert all("Say old" in text and ("Say so" in text) != ("Say other" in text) for text in texts)


def test_a_lost_call_decides_nothing() -> None:
    verifying = ACE.verification(
        learn(add("Say so", "1@0", "2@0")), trajectories=ran(), budget_tokens=8000, verify="Replay"
    )
    turn = next(verifying)
    with pytest.raises(StopIteration) as end:
        while True:
            turn = verifying.send([trajectory("1@0", error="timeout") for _ in turn.rollouts])
    assert end.value.value.decided == 0 and end.value.value.artifact.verdicts == frozenset()
