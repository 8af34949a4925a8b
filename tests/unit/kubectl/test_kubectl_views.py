"""A status as text: what a person sees of a run, and why it waits."""

from __future__ import annotations

import pytest
from kubectl_samples import LEARNING, condition, shown

from combee.api.status import RunStatus
from combee.cli.cluster.status_text import Shown, next_command, not_good, overview, text, view
from combee.cli.cluster.why_text import TO_DO, Facts, why
from combee.cli.cluster.why_text import next_command as next_of_why
from combee.plan.cluster.seen import Trouble


def printed(seen: Shown, width: int = 120) -> str:
    return text(view(seen), width)


def flat(facts: Facts) -> str:
    return " ".join(text(why(facts), 100).split())


def test_a_run_at_work() -> None:
    said = printed(shown())
    assert said.startswith("formula · team-a · Learning · 11 min 00 s · about 2 min 10 s left\n")
    assert "██████████░░░░░░░░░░ 250 of 500 examples · iteration 4 of about 6" in said
    assert "84 examples · growing further saves less than 45 % of the time" in said
    assert "0.640 start · 0.861 best (iteration 2) · 0.855 last · gain +0.221" in said
    assert "rollouts         █░░░░░░░░░░░░░░░░░░░ 312 of 4,000" in said
    assert "task             312 calls, 40 more from memory · 1,000 tokens in (50 % cached), 50 out" in said
    assert "map       1/4 done · formula-3fa9c1d2-i003-map-a0" in said
    rows = [line.split()[:4] for line in said.splitlines()[-3:]]
    assert rows == [["1", "84", "0.700", "-"], ["2", "*", "84", "0.861"], ["3", "84", "0.855", "-"]]


def test_only_what_is_not_good_is_said() -> None:
    said = printed(shown())
    assert "trouble    PodsPlaced=False Unschedulable: no node has two free GPUs" in said
    assert "EnginesReady" not in said and "Ready=" not in said and "Converging" not in said


@pytest.mark.parametrize("width", [50, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    table = printed(shown(), width).splitlines()[-4:]
    for line in printed(shown({"batchReason": "long " * 60}), width).splitlines():
        assert len(line) <= width or line in table or line.startswith("formula ·")


def test_hostile_words_drive_no_terminal() -> None:
    said = printed(shown({"message": "\x1b[2Jgone\u202e", "batchReason": "\x07bell"}))
    assert "\x1b" not in said and "\x07" not in said and "\u202e" not in said
    assert "\\u{1b}[2Jgone" in said


def test_the_primary_limit_comes_first() -> None:
    spend = {"rollouts": 312, "tokens": 5, "money": 1.84, "currency": "EUR"}
    said = printed(shown({"spend": spend}, rollouts=4000, money=25.0, primary="money"))
    assert said.index("1.84 EUR, of 25") < said.index("rollouts    ") < said.index("tokens    ")


def test_an_empty_status_is_shown_too() -> None:
    said = text(view(Shown("new", "team-a", RunStatus(), shown().budget, 0.0)), 100)
    assert said.startswith("new · team-a · Pending\n")
    assert "the data is not counted yet" in said and "not chosen yet" in said and "not scored yet" in said


def test_a_finished_run_shows_the_gate_and_no_old_trouble() -> None:
    gate = {"baseline": 0.6, "best": 0.8, "gain": 0.2, "low": 0.1, "high": 0.3, "rows": 60, "discordant": 9}
    over = {"phase": "Learned", "completionTime": "2026-01-01T00:05:00Z", "iteration": 6, "gate": gate}
    seen = shown({**over, "published": "formula-1b2c3d4e5f60"})
    said = printed(seen)
    assert said.startswith("formula · team-a · Learned · 5 min 00 s\n")
    assert "0.600 start · 0.800 best · gain +0.200 (95 % +0.100 to +0.300) on 60 rows" in said
    assert "iteration 6 of 6" in said and "trouble" not in said
    assert next_command(seen) == "playbook formula"


def test_a_run_that_is_about_to_be_suspended_says_so() -> None:
    assert "Learning, to be suspended" in printed(shown(suspend=True))


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({"phase": "Suspended"}, "resume formula"),
        ({"phase": "Failed"}, "why formula"),
        ({"phase": "Learning", "conditions": []}, "logs formula --follow"),
        ({"phase": "NothingBetter"}, "report formula -o formula"),
    ],
)
def test_the_next_command_fits(changes: dict[str, object], command: str) -> None:
    assert next_command(shown(changes)) == command


def test_the_overview_has_one_row_a_run() -> None:
    first, second = shown(), shown({"phase": "Failed", "shown": {"iteration": "2/6"}})
    lines = overview([first, second], namespaces=True).splitlines()
    assert lines[0].split()[:4] == ["NAMESPACE", "NAME", "STATE", "ITERATION"]
    assert [line.split()[2] for line in lines[1:]] == ["Learning", "Failed"]


def test_suspension_is_no_trouble() -> None:
    waits = [condition("PodsPlaced", "False", "Suspended"), condition("EnginesReady", "False", "ScaledDown")]
    assert not_good(shown({"conditions": waits}).status) == []


def test_why_nobody_looks() -> None:
    said = flat(Facts(shown({"conditions": [], "phase": "Pending"}), generation=1))
    assert "no operator has looked at it" in said and "watch the namespace team-a?" in said


def test_why_says_what_holds_it_and_what_to_do() -> None:
    trouble = Trouble("Unschedulable", "pod x finds no node: 0/3 nodes. Add a node.")
    facts = Facts(shown(), generation=1, troubles={"map step": trouble})
    said = flat(facts)
    assert "Unschedulable: no node has two free GPUs" in said
    assert "map step: pod x finds no node" in said
    assert next_of_why(facts) == "status formula"


def test_why_gives_a_dead_runs_last_words() -> None:
    failed = [
        condition("Stalled", "True", "StoreUnusable", "the store is full"),
        condition("Failed", "True", "StoreUnusable", "the store is full"),
    ]
    words = {"formula-x-0": "the disk is full"}
    facts = Facts(shown({"phase": "Failed", "conditions": failed}), generation=1, last_words=words)
    said = flat(facts)
    assert said.count("the store is full") == 1, "one reason is said once"
    assert "See whether the claim is full" in said and "formula-x-0: the disk is full" in said
    assert next_of_why(facts) == "logs formula"


def test_why_of_a_spent_budget_depends_on_whether_it_is_over() -> None:
    spent = [condition("BudgetExhausted", "True", "RolloutsSpent", "4000 of 4000")]
    over = flat(Facts(shown({"phase": "BudgetExhausted", "conditions": spent}), generation=1))
    assert "start a new one with a larger budget" in over and "Raise budget.rollouts" not in over


def test_why_tells_the_newest_events_oldest_first() -> None:
    events = [
        {
            "metadata": {"creationTimestamp": f"2026-01-01T00:00:{n:02d}Z"},
            "lastTimestamp": f"2026-01-01T00:00:{n:02d}Z",
            "type": "Warning" if n == 9 else "Normal",
            "reason": "Happened",
            "message": f"number {n}",
            "involvedObject": {"kind": "PromptLearningRun", "name": "formula"},
        }
        for n in (9, 1, 2, 3, 4, 5, 6, 7, 8)
    ]
    lines = text(why(Facts(shown(), generation=1, events=events)), 100).splitlines()[-6:]
    assert [line.split()[-1] for line in lines] == ["4", "5", "6", "7", "8", "9"]
    assert "00:00:09 ! Happened: number 9" in lines[-1]


def test_every_bad_reason_has_something_to_do() -> None:
    from combee.api.conditions import TABLE, ConditionType
    from combee.cli.cluster.status_text import _GOOD, _QUIET

    bad = {
        reason
        for (type, status), reasons in TABLE.items()
        if type in _GOOD and status != _GOOD[type] and type is not ConditionType.READY
        for reason in reasons
    }
    assert bad - _QUIET == set(TO_DO)


def test_the_samples_are_statuses() -> None:
    assert RunStatus.model_validate(LEARNING).dump()["batchSize"] == 84


def test_what_was_waived_or_not_stated_stands_beside_the_budget() -> None:
    accepted = condition(
        "PlanAccepted", "True", "Accepted", "the plan is good; the serial baseline is waived"
    )
    assert "  inputs     the serial baseline is waived\n" in printed(shown({"conditions": [accepted]}))
    plain = condition("PlanAccepted", "True", "Accepted", "the plan is good")
    assert "inputs" not in printed(shown({"conditions": [plain]}))


def test_the_shape_of_parallelism_says_what_to_do() -> None:
    figures = {"slots": 64, "utilisation": 0.31, "speedUp": 20.0, "ceiling": 25.0, "beside": 3.2}
    shape = {
        "name": "Hybrid",
        "reason": "31 % of its slots are busy",
        "advice": "share them",
        "rejected": {"Candidate": "one run alone leaves 69 % of the slots idle"},
        **figures,
    }
    told = text(view(shown({"shape": shape})), 200)
    assert "shape      Hybrid: 31 % of its slots are busy; share them" in told
    assert "not Candidate: one run alone leaves 69 % of the slots idle" in told
    assert "20.0 times as fast as its calls one after the other on 64 slots" in told
    assert "shape " not in text(view(shown()), 200)
