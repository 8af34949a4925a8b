"""What replay asks, what it makes of the answers, and what the drop-one check finds and leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from ace_makers import ACE, add, learn, playbook, trajectory, why_left_out
from hypothesis import given
from hypothesis import strategies as st

from combee.methods.ace import Ledger
from combee.methods.ace.dropping import BUDGET_SHARE
from combee.methods.ace.verification import SECOND_LOOK
from combee.methods.protocol import Verdict
from combee.methods.verification import Rollout, Round, Verified, Verifying
from combee.records import Trajectory
from combee.work.finish import ON_SELECT

Model = Callable[[str, str, int], bool]
"""(example, text, repeat) -> whether it is answered right."""


def driven(
    verifying: Verifying[Ledger], model: Model, select: tuple[str, ...] = ()
) -> tuple[Verified[Ledger], dict[str, list[Rollout]]]:
    """What a verification ends with, and the rollouts that it asked for by stage."""
    stages: dict[str, list[Rollout]] = {}
    try:
        turn: Round = next(verifying)
        while True:
            asked = [
                *turn.rollouts,
                *(Rollout(row, page, of="select") for page in turn.sweep for row in select),
            ]
            stages.setdefault(turn.stage, []).extend(asked)
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


def test_entries_are_replayed_beside_what_is_settled_not_beside_each_other() -> None:
    ledger = learn(add("Say so", "1@0", "2@0"), add("Say other", "3@0", "4@0"))
    settled = learn(add("Say old", "7@0", "6@0"), start=ledger)
    _, stages = replayed(settled, fixes)
    texts = {one.page.text for one in stages["replay round 2"]}
    assert len(texts) == 2 and all(
        "Say old" in text and ("Say so" in text) != ("Say other" in text) for text in texts
    )


def questions(rollouts: list[Rollout]) -> set[tuple[str, str]]:
    """(example, the entry that it is asked with) of a round's rollouts."""
    texts = ("Say so", "Say other", "Say old")
    return {(one.example_id, next((t for t in texts if t in one.page.text), "")) for one in rollouts}


def test_an_entry_is_followed_whatever_others_still_wait_for() -> None:
    def model(example: str, text: str, repeat: int) -> bool:
        """Other fixes its example only when asked once more, and spoils 8 once."""
        if "Say other" in text:
            return not (example == "3" and repeat == SECOND_LOOK) and not (example == "8" and repeat == 0)
        return fixes(example, text, repeat)

    entries = (("Say so", "1@0", "2@0"), ("Say other", "3@0", "4@0"), ("Say old", "8@0", "9@0"))
    after, stages = replayed(learn(*(add(*entry) for entry in entries)), model)
    rounds = [questions(rollouts) for rollouts in stages.values()]
    assert rounds == [
        {("1", ""), ("3", ""), ("8", "Say old"), ("9", "Say old")},
        {("1", "Say so"), ("3", "Say other")},
        {("8", "Say so"), ("9", "Say so"), ("3", "Say other")},
        {("8", "Say other"), ("9", "Say other")},
        {("8", "Say other"), ("9", "Say other"), ("8", ""), ("9", "")},
    ]
    assert list(stages) == [f"replay round {n}" for n in range(1, 6)]
    assert all(why_left_out(after, text) == "" for text, *_ in entries)


def test_a_lost_call_decides_nothing() -> None:
    verifying = ACE.verification(
        learn(add("Say so", "1@0", "2@0")), trajectories=ran(), budget_tokens=8000, verify="Replay"
    )
    turn = next(verifying)
    with pytest.raises(StopIteration) as end:
        while True:
            turn = verifying.send([trajectory("1@0", error="timeout") for _ in turn.rollouts])
    assert end.value.value.decided == 0 and end.value.value.artifact.verdicts == frozenset()


# -- the drop-one check

ROWS = tuple(f"s{n:03d}" for n in range(200))
ENTRIES = tuple(f"Say word{n}" for n in range(12))
BAD = ENTRIES[5]


def learnt(*texts: str) -> Ledger:
    return learn(*(add(text, "1@1", "2@1", section="strategies") for text in texts))


def checked(ledger: Ledger, model: Model, start: Mapping[str, float]) -> tuple[Ledger, int]:
    """The ledger afterwards, and the rollouts besides those that score select."""
    verifying = ACE.dropping(ledger, start=start, budget_tokens=8000, verify="Replay")
    done, stages = driven(verifying, model, tuple(start))
    return done.artifact, sum(len(asked) for stage, asked in stages.items() if stage != "select")


def left(ledger: Ledger) -> set[str]:
    return {ledger.texts[digest] for digest in playbook(ledger).included}


ALL_RIGHT = dict.fromkeys(ROWS, 1.0)


@given(st.sets(st.sampled_from(ENTRIES), max_size=3), st.sets(st.sampled_from(ROWS), min_size=1, max_size=3))
def test_what_spoils_rows_is_found_and_all_else_stays(bad: set[str], rows: set[str]) -> None:
    after, rollouts = checked(
        learnt(*ENTRIES), lambda e, t, r: e not in rows or not any(f"{b}\n" in t for b in bad), ALL_RIGHT
    )
    assert left(after) == set(ENTRIES) - bad
    assert rollouts == 0 or bad


def test_an_entry_that_spoils_more_rows_than_can_be_followed_is_found() -> None:
    spoilt = set(ROWS[:60])
    after, rollouts = checked(
        learnt(*ENTRIES), lambda e, t, r: not (e in spoilt and f"{BAD}\n" in t), ALL_RIGHT
    )
    assert left(after) == set(ENTRIES) - {BAD}
    assert rollouts < 1.5 * len(ROWS)


def test_without_fallen_rows_nothing_is_asked() -> None:
    ledger = learnt(*ENTRIES)
    assert checked(ledger, lambda e, t, r: True, ALL_RIGHT) == (ledger, 0)
    assert checked(ledger, lambda e, t, r: False, dict.fromkeys(ROWS, 0.0)) == (ledger, 0)


def test_a_slip_that_any_change_of_the_text_mends_blames_nobody() -> None:
    ledger = learnt(*ENTRIES)
    whole = playbook(ledger).text
    after, rollouts = checked(ledger, lambda e, t, r: not (e == "s003" and t == whole), ALL_RIGHT)
    assert after == ledger and rollouts == 2


def test_an_entry_that_mends_more_rows_than_it_spoils_stays() -> None:
    start = ALL_RIGHT | dict.fromkeys(ROWS[:3], 0.0)

    def model(example: str, text: str, repeat: int) -> bool:
        shown = f"{BAD}\n" in text
        return shown if example in ROWS[:3] else not (example == "s009" and shown)

    assert left(checked(learnt(*ENTRIES), model, start)[0]) == set(ENTRIES)
    worse = dict(list(start.items())[2:])
    assert left(checked(learnt(*ENTRIES), lambda e, t, r: model(e, t, r) and e != "s002", worse)[0]) == set(
        ENTRIES
    ) - {BAD}


def test_the_group_tests_keep_to_their_budget() -> None:
    verifying = ACE.dropping(learnt(*ENTRIES), start=ALL_RIGHT, budget_tokens=8000, verify="Replay")
    _, stages = driven(verifying, lambda e, t, r: not any(f"{x}\n" in t for x in ENTRIES), ROWS)
    assert len(stages["drop-one"]) <= BUDGET_SHARE * len(ROWS)
    assert all(stage.startswith(ON_SELECT) for stage in stages), "they are no matter of the batch's cost"


@pytest.mark.parametrize("verify", ["Support", "Off"])
def test_it_belongs_to_replay_and_needs_the_starts_scores(verify: str) -> None:
    ledger = learnt(*ENTRIES)
    for start, rule in ((ALL_RIGHT, verify), ({}, "Replay")):
        verifying = ACE.dropping(ledger, start=start, budget_tokens=8000, verify=rule)  # type: ignore[arg-type]
        assert driven(verifying, lambda e, t, r: False, ROWS) == (Verified(ledger), {})
