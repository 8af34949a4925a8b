"""Inherited entries on fresh rows: which are looked at, what a look shows, and what is retired."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from ace_makers import ACE, add, learn, playbook, trajectory, why_left_out

from combee.methods.ace import AceMethod
from combee.methods.ace.change import with_verdicts
from combee.methods.ace.entries import entry_digest
from combee.methods.ace.ledger import Ledger
from combee.methods.ace.verification import LEAST_REPLAYED, SECOND_LOOK
from combee.methods.protocol import Verdict
from combee.methods.verification import Rollout, Verified
from combee.records import Trajectory

RULE = "Say so."
DIGEST = entry_digest(RULE)
Model = Callable[[str, bool, int], bool]
"""(example, whether the rule is on the page, repeat) -> whether it is answered right."""


def inherited(*texts: str, run: str = "first", model: str = "") -> Ledger:
    """A ledger of an earlier run in which each text won its replay."""
    texts = texts or (RULE,)
    ledger = learn(*(add(text, f"a-{k}@0") for k, text in enumerate(texts)))
    won = [Verdict(entry_digest(text), f"a-{k}@0", True, 0) for k, text in enumerate(texts)]
    return next_run(with_verdicts(ledger, won), run, model)


def next_run(ledger: Ledger, by: str, model: str = "") -> Ledger:
    handed_on = AceMethod(model=model).handed_on(ledger, playbook(ledger), by=by, train="ab" * 32)
    return ACE.started(handed_on.decode(), train="cd" * 32)


def batch(ledger: Ledger, used: str = "123", others: str = "89", text: str = RULE) -> dict[str, Trajectory]:
    """Rows whose agents say that they used the entry, and rows of others."""
    bullet = next(id for id, digest in playbook(ledger).ids.items() if digest == entry_digest(text))
    made = {f"b-{n}@0": replace(trajectory(f"b-{n}@0"), cited=(bullet,)) for n in used}
    return made | {f"b-{n}@0": trajectory(f"b-{n}@0", correct=True) for n in others}


def verified(
    ledger: Ledger, model: Model, rows: dict[str, Trajectory], budget: int = 8000, method: AceMethod = ACE
) -> tuple[Verified[Ledger], list[Rollout]]:
    asked: list[Rollout] = []
    verifying = method.verification(ledger, trajectories=rows, budget_tokens=budget, verify="Replay")
    try:
        turn = next(verifying)
        while True:
            asked += turn.rollouts
            turn = verifying.send(
                [
                    trajectory(
                        f"{one.example_id}@0",
                        correct=model(one.example_id, RULE in one.page.text, one.repeat),
                    )
                    for one in turn.rollouts
                ]
            )
    except StopIteration as end:
        return end.value, asked


LUCK = SECOND_LOOK
"""The first look; the second is the next repeat."""


@pytest.mark.parametrize(
    ("model", "used", "verdict", "why"),
    [
        pytest.param(lambda e, w, r: w, "123", (True, 0), "", id="helps"),
        pytest.param(lambda e, w, r: not w, "123", (False, 3), "replay", id="harms"),
        pytest.param(lambda e, w, r: False, "123", (False, 0), "replay", id="is not right any more"),
        pytest.param(lambda e, w, r: True, "123", (False, 0), "", id="is not needed"),
        pytest.param(lambda e, w, r: w or r > LUCK, "123", (False, 0), "", id="helped by luck"),
        pytest.param(lambda e, w, r: not w or r > LUCK, "123", (False, 0), "", id="harmed by luck"),
        pytest.param(lambda e, w, r: e == "b-1" and w, "123", (True, 0), "", id="helps one, fails others"),
        pytest.param(lambda e, w, r: (e == "b-1") == w, "123", (False, 2), "replay", id="harms more"),
    ],
)
def test_what_a_look_shows(model: Model, used: str, verdict: tuple[bool, int], why: str) -> None:
    ledger = inherited()
    done, _ = verified(ledger, model, batch(ledger, used=used))
    (new,) = (one for one in done.artifact.verdicts if one.run == 0)
    assert ((new.fixed, new.harmed), why_left_out(done.artifact, RULE)) == (verdict, why)
    assert done.decided == done.candidates == 1
    tombstones = [one for one in done.artifact.refusals if one.run == 0]
    assert bool(tombstones) == bool(why), "what is retired has its reason"


@pytest.mark.parametrize(("used", "why"), [((), "replay"), (("own-1",), "")], ids=["nothing else", "another"])
def test_one_failing_row_is_enough_where_nothing_else_is_to_blame(used: tuple[str, ...], why: str) -> None:
    ledger = inherited()
    rows = {name: replace(one, cited=(*one.cited, *used)) for name, one in batch(ledger, "1", "").items()}
    done, _ = verified(ledger, lambda e, w, r: False, rows)
    assert why_left_out(done.artifact, RULE) == why


def test_it_is_looked_at_once_a_run() -> None:
    ledger = inherited()
    done, asked = verified(ledger, lambda e, w, r: True, batch(ledger))
    assert asked
    again, more = verified(done.artifact, lambda e, w, r: False, batch(done.artifact))
    assert not more and again.artifact == done.artifact


def test_the_next_run_looks_again_and_the_newest_verdict_counts() -> None:
    """Wins of many runs do not outlive the day on which the rule is not right any more."""
    ledger = inherited()
    for number in range(4):
        ledger = verified(ledger, lambda e, w, r: w, batch(ledger))[0].artifact
        ledger = next_run(ledger, f"run-{number}")
    assert [one.run for one in ledger.verdicts if one.won] == [5], "what counts no longer stays behind"
    done, _ = verified(ledger, lambda e, w, r: False, batch(ledger))
    assert why_left_out(done.artifact, RULE) == "replay"
    # What was retired stays so for the runs after, and comes back where an example of theirs asks for it.
    later = next_run(done.artifact, "later")
    assert why_left_out(later, RULE) == "replay"
    asked_for = learn(add(RULE, "d-1@0"), start=later)
    back, _ = verified(asked_for, lambda e, w, r: w, {"d-1@0": trajectory("d-1@0")})
    assert why_left_out(back.artifact, RULE) == ""


def test_a_lost_call_decides_nothing() -> None:
    ledger = inherited()
    verifying = ACE.verification(ledger, trajectories=batch(ledger), budget_tokens=8000, verify="Replay")
    turn = next(verifying)
    with pytest.raises(StopIteration) as end:
        verifying.send([trajectory("b-1@0", error="Transient") for _ in turn.rollouts])
    assert end.value.value.artifact == ledger and end.value.value.decided == 0


def test_those_come_first_that_were_looked_at_longest_ago_within_the_budget() -> None:
    words = (
        "ledger",
        "margin",
        "turnover",
        "accrual",
        "deposit",
        "equity",
        "coupon",
        "hedge",
        "swap",
        "lease",
    )
    texts = tuple(f"For every {word} state the {word} itself." for word in words)
    ledger = inherited(*texts)
    seen: list[str] = []
    for number in range(2):
        rows: dict[str, Trajectory] = {}
        for k, text in enumerate(texts):
            (row,) = batch(ledger, used=str(k), others="", text=text).values()
            rows |= {f"b-{k}@0": row}
        done, _ = verified(ledger, lambda e, w, r: True, rows)
        looked = [one.entry_digest for one in done.artifact.verdicts if one.run == 0]
        assert len(looked) == max(LEAST_REPLAYED, len(rows)) // 2, "a look counts for two replays"
        seen += looked
        ledger = next_run(done.artifact, f"run-{number}")
    assert len(set(seen)) == len(texts)


def test_those_that_wrong_answers_used_come_before_those_that_were_looked_at_longest_ago() -> None:
    """Of entries which agents obeyed, what they got wrong tells of the one whose rule has changed."""
    words = ("ledger", "margin", "turnover", "accrual", "deposit", "equity")
    texts = tuple(f"For every {word} state the {word} itself." for word in words)
    ledger = inherited(*texts)
    looked_last = entry_digest(texts[-1])
    just_now = with_verdicts(ledger, [Verdict(looked_last, "b-9@0", True, 0)])
    ledger = next_run(just_now, "second")
    rows: dict[str, Trajectory] = {}
    for k, text in enumerate(texts):
        made = batch(ledger, used=str(k), others="", text=text)
        rows |= {name: replace(one, correct=text != texts[-1], score=1.0) for name, one in made.items()}
    done, _ = verified(ledger, lambda e, w, r: True, rows)
    looked = {one.entry_digest for one in done.artifact.verdicts if one.run == 0}
    assert len(looked) == LEAST_REPLAYED // 2 < len(texts) and looked_last in looked


def test_a_new_entry_is_replayed_beside_none_that_is_looked_at() -> None:
    """Beside the rule that it replaces it would lose: agents would read both."""
    ledger = inherited()
    new = "Name the figure first."
    rows = batch(ledger, "1", "89")
    full = learn(add(new, "b-1@0"), start=ledger)

    def model(example: str, with_rule: bool, repeat: int) -> bool:
        return not with_rule and example != "b-1"

    done, asked = verified(full, model, rows)
    replayed = [one.page.text for one in asked if new in one.page.text]
    assert replayed and not any(RULE in text for text in replayed)
    assert why_left_out(done.artifact, RULE) == "replay"


def test_new_entries_come_first_and_leave_a_quarter() -> None:
    ledger = inherited()
    rows = batch(ledger) | {f"n-{k}@0": trajectory(f"n-{k}@0") for k in range(20)}
    new = (add(f"In the {chr(97 + k) * 5} multiply by {k + 11}.", f"n-{k}@0") for k in range(20))
    full = learn(*new, start=ledger)
    done, _ = verified(full, lambda e, w, r: True, rows)
    most = len(rows)
    assert done.candidates == most - most // 4 + 1
    assert [one.entry_digest for one in done.artifact.verdicts if one.run == 0 and one.controls] == [DIGEST]


WORDS = ("ledger", "margin", "turnover", "accrual", "deposit", "equity", "coupon", "hedge")
TEXTS = tuple(f"For every {word} state the {word} itself." for word in WORDS)


def looked_at(ledger: Ledger, method: AceMethod, texts: tuple[str, ...] = TEXTS) -> set[str]:
    """The texts that a run looks at in one iteration, each read by a row of its own."""
    rows: dict[str, Trajectory] = {}
    for k, text in enumerate(texts):
        (row,) = batch(ledger, used=str(k), others="", text=text).values()
        rows |= {f"b-{k}@0": row}
    done, _ = verified(ledger, lambda e, w, r: w, rows, method=method)
    new = {one.entry_digest for one in done.artifact.verdicts if one.run == 0}
    return {text for text in texts if entry_digest(text) in new}


def half_by_another_model() -> Ledger:
    """Half of the entries were replayed in run 1 by ``small``, the others in run 2 by ``large``."""
    ledger = inherited(*TEXTS, model="large")
    by_small = ledger.join(
        Ledger(verdicts=frozenset(Verdict(entry_digest(text), "c-1@0", True, 0) for text in TEXTS[4:]))
    )
    return next_run(by_small, "second", "small")


@pytest.mark.parametrize(
    ("model", "first"),
    [
        pytest.param("large", set(TEXTS[4:]), id="what the other model replayed last comes first"),
        pytest.param("small", set(TEXTS[:4]), id="and the other way round"),
        pytest.param("", set(TEXTS[:4]), id="without a model the oldest do"),
    ],
)
def test_verdicts_of_another_model_are_looked_at_first(model: str, first: set[str]) -> None:
    assert looked_at(half_by_another_model(), AceMethod(model=model)) == first


def test_a_ledger_that_names_no_model_has_no_stale_verdicts() -> None:
    """It is read as before, to the byte, and the oldest come first."""
    ledger = inherited(*TEXTS)
    assert all(len(run) == 3 for run in json.loads(ledger.to_json())["runs"])
    method = AceMethod(model="large")
    assert method.start_note(ledger, playbook(ledger)) == ""
    assert len(looked_at(ledger, method)) == LEAST_REPLAYED // 2


def test_half_of_the_replays_is_kept_for_stale_verdicts() -> None:
    rows = {f"n-{k}@0": trajectory(f"n-{k}@0") for k in range(20)}
    new = [add(f"In the {chr(97 + k) * 5} multiply by {k + 11}.", f"n-{k}@0") for k in range(20)]
    for model, part in {"small": 4, "large": 2}.items():
        ledger = inherited(model="small")
        both = batch(ledger) | rows
        done, _ = verified(
            learn(*new, start=ledger), lambda e, w, r: True, both, method=AceMethod(model=model)
        )
        assert done.candidates == len(both) - len(both) // part + 1


def test_the_start_says_how_many_entries_another_model_replayed() -> None:
    ledger = half_by_another_model()
    note = AceMethod(model="large").start_note(ledger, playbook(ledger))
    assert note.startswith("4 of the 8 entries in the playbook") and "(small)" in note and "(large)" in note
    assert AceMethod(model="large").start_note(inherited(model="large"), playbook(inherited())) == ""
    assert ACE.start_note(ledger, playbook(ledger)) == ""
    hostile = inherited(model="\x1b[2J" + "m" * 9999)
    note = AceMethod(model="large").start_note(hostile, playbook(hostile))
    assert note.isprintable() and len(note) < 600


def test_a_look_with_the_new_model_ends_it() -> None:
    ledger = inherited(model="small")
    done, _ = verified(ledger, lambda e, w, r: w, batch(ledger), method=AceMethod(model="large"))
    later = next_run(done.artifact, "second", "large")
    assert AceMethod(model="large").start_note(later, playbook(later)) == ""
    assert "(large)" in AceMethod(model="small").start_note(later, playbook(later))


def test_nothing_moves_into_the_room_that_the_entry_leaves() -> None:
    words = ("ledger", "margin", "turnover", "accrual")
    ledger = inherited(*(f"For every {word} state the {word} itself." for word in words))
    budget = playbook(ledger).tokens - 5
    shown = playbook(ledger, budget=budget)
    assert len(shown.included) == len(words) - 1
    text = ledger.texts[shown.included[0]]
    done, asked = verified(ledger, lambda e, w, r: True, batch(ledger, text=text), budget)
    assert done.decided == 1
    lines = shown.text.splitlines()
    less = "\n".join(line for line in lines if text not in line)
    assert {one.page.text.rstrip() for one in asked} == {shown.text.rstrip(), less}


def test_what_the_user_gave_and_what_this_run_learned_are_no_matter_of_it() -> None:
    own = ACE.initial(f"## STRATEGIES\n[own-1] helpful=1 harmful=0 :: {RULE}\n")
    assert verified(next_run(own, "first"), lambda e, w, r: False, {"b-1@0": trajectory("b-1@0")})[1] == []
    new = with_verdicts(learn(add(RULE, "b-1@0")), [Verdict(DIGEST, "b-1@0", True, 0)])
    assert verified(new, lambda e, w, r: False, batch(new))[1] == []
