"""The stamps of an audit: one rule a claim, and what is shown of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import bare, result

from combee.api.load import parse_run
from combee.api.run import PromptLearningRun
from combee.audit.again import with_seed
from combee.audit.cost import other_seeds, parts, together
from combee.errors import DataError
from combee.report import figures
from combee.report.audit import (
    FAILED,
    NOT_SHOWN,
    SURVIVED,
    Audit,
    AuditedRun,
    OtherClass,
    audit_beside,
    playbook_digest,
    to_bytes,
)
from combee.report.build import build_report, build_strategist
from combee.report.result import Paired
from combee.report.stamps import Seen, overruns, pooled, stamps

DIAGNOSIS = {
    "verdict": "Plateau",
    "go": True,
    "words": "it is level",
    "measured": True,
    "points": [],
    "level": 0.8,
    "low": 0.7,
    "high": 0.9,
    "examples": 40,
    "secondsPerExample": 3.0,
    "runSecondsPerExample": 0.5,
    "speedUp": 6.0,
}


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "figures", lambda _: {})


def pair(low: float, gain: float | None = None) -> Paired:
    """A paired difference whose lower end is ``low``."""
    middle = low + 0.1 if gain is None else gain
    return Paired(baseline=0.5, best=0.6, gain=middle, low=low, high=middle + 0.1, n=100, discordant=30)


def run(seed: int = 8, gate: Paired | None = None, **more: Any) -> AuditedRun:
    return AuditedRun(seed=seed, outcome="Learned", gate=gate or pair(0.05), **more)


GOOD = Seen(
    rescored=pair(0.05),
    seeds=[run(seed, speed_up=5.0) for seed in (8, 9, 10)],
    pooled=pair(0.05),
    other=OtherClass(law=(0.005, 0.0001, 0.00003), law_speed_up=2.0),
    differences=0,
)


def stamped(seen: Seen, made: Any = None) -> dict[str, str]:
    audited = made or result(diagnosis=DIAGNOSIS)
    return {one.claim.split()[0]: one.stamp for one in stamps(audited, seen)}


def changed(**more: Any) -> Seen:
    return Seen(**{name: getattr(GOOD, name) for name in GOOD.__slots__} | more)


def test_a_result_that_holds_survives_in_every_claim() -> None:
    assert set(stamped(GOOD).values()) == {SURVIVED}


LAW = OtherClass(law=(0.005, 0.0001, 0.00003), law_speed_up=0.9)


@pytest.mark.parametrize(
    ("claim", "seen"),
    [
        ("gain", changed(rescored=pair(-0.01))),
        ("gain", changed(rescored=pair(0.0))),
        ("better", changed(pooled=pair(-0.01))),
        ("better", changed(pooled=None)),
        ("better", changed(seeds=[*GOOD.seeds[:2], run(10, pair(-0.2, -0.1), speed_up=5.0)])),
        (
            "better",
            changed(seeds=[*GOOD.seeds[:2], AuditedRun(seed=10, outcome="NothingBetter", speed_up=5.0)]),
        ),
        ("better", changed(other=OtherClass(run=run(7, pair(-0.01), speed_up=2.0, engine="b:1")))),
        ("faster", changed(seeds=[*GOOD.seeds[:2], run(10)])),
        ("faster", changed(seeds=[*GOOD.seeds[:2], run(10, speed_up=1.0)])),
        ("faster", changed(other=LAW)),
        ("faster", changed(other=OtherClass(run=run(7, speed_up=0.5, engine="b:1")))),
        ("budget", changed(seeds=[*GOOD.seeds[:2], run(10, speed_up=5.0, over_budget=("tokens",))])),
        ("replay", changed(differences=3)),
    ],
)
def test_one_thing_that_does_not_hold_fails_its_claim_and_no_other(claim: str, seen: Seen) -> None:
    made = stamped(seen)
    assert made.pop(claim) == FAILED
    assert set(made.values()) == {SURVIVED}


@pytest.mark.parametrize(
    ("claim", "seen"),
    [
        ("gain", changed(rescored=None)),
        ("faster", changed(other=None)),
        ("replay", changed(differences=None, not_replayed="the record lacks the call x")),
    ],
)
def test_what_nothing_looked_at_is_not_shown(claim: str, seen: Seen) -> None:
    assert stamped(seen)[claim] == NOT_SHOWN


def test_what_a_result_does_not_claim_is_not_shown_whatever_was_seen() -> None:
    made = stamped(GOOD, bare())
    assert [made[name] for name in ("gain", "better", "faster", "budget")] == [NOT_SHOWN] * 4
    assert parts(bare(), second_engine=True) == []


def test_a_stated_curve_cannot_be_timed_again() -> None:
    curve = {"method": "ACE", "curve": [], "converged": 0.8, "examplesToConverge": 9}
    assert stamped(GOOD, result(serialBaseline=curve))["faster"] == NOT_SHOWN


def test_a_budget_may_be_overrun_by_the_calls_in_flight_and_no_more() -> None:
    made = result(setup={"concurrency": 10}, usage={"task": {"calls": 100}})

    def over(spent: float) -> tuple[str, ...]:
        lines = [{"name": "tokens", "spent": spent, "limit": 1000}]
        return overruns(type(made).model_validate(made.model_dump() | {"budget": lines}))

    assert (over(1000), over(1100), over(1101)) == ((), (), ("tokens",))


IDS = st.lists(st.sampled_from([0.0, 1.0]), min_size=6, max_size=6)


@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=4), st.integers(0, 3))
def test_pooling_weighs_seeds_alike_and_counts_rows_once(
    seeds: list[tuple[list[float], list[float]]], still: int
) -> None:
    scores = [
        {
            "baseline": dict(zip("abcdef", before, strict=True)),
            "best": dict(zip("abcdef", after, strict=True)),
        }
        for before, after in seeds
    ]
    made = pooled([*scores, *[None] * still], seed=1)
    assert made is not None and made.n == 6
    gains = [sum(after) / 6 - sum(before) / 6 for before, after in seeds] + [0.0] * still
    assert made.gain == pytest.approx(sum(gains) / len(gains))
    assert made.low <= made.gain + 1e-12 and made.gain <= made.high + 1e-12


def test_seeds_that_all_found_nothing_have_no_pooled_interval() -> None:
    assert pooled([None, None, None], seed=1) is None


def test_a_copy_of_a_seed_does_not_narrow_the_interval() -> None:
    """Rows are the unit: three equal seeds say no more than one."""
    one = {
        "baseline": {str(row): float(row % 3 == 0) for row in range(60)},
        "best": {str(row): float(row % 2 == 0 or row % 3 == 0) for row in range(60)},
    }
    once, thrice = pooled([one], seed=1), pooled([one] * 3, seed=1)
    assert once is not None and thrice is not None
    assert (once.low, once.high) == (thrice.low, thrice.high)


def test_the_cost_is_three_runs_and_the_look_beside_the_second_engine() -> None:
    made = result()
    listed = parts(made, second_engine=True)
    assert [one.name for one in listed] == [
        "gate, fresh answers",
        "seed 8",
        "seed 9",
        "seed 10",
        "second engine",
    ]
    assert other_seeds(made) == (8, 9, 10)
    assert listed[0].rollouts == 2 * made.gate.n
    assert together(listed).tokens == sum(one.tokens for one in listed)


PRICES = {
    "currency": "EUR",
    "models": [{"name": "m", "promptPerMillionTokens": 1, "completionPerMillionTokens": 1}],
}


def manifest(**more: Any) -> PromptLearningRun:
    model = {"endpoint": {"url": "http://localhost:1/v1", "model": "m"}}
    spec = {
        "task": {"type": "Formula", "data": {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}}},
        "method": {"type": "ACE"},
        "models": {"task": model, "proposer": model},
        **more,
    }
    head = {"apiVersion": "combee.dev/v1alpha1", "kind": "PromptLearningRun", "metadata": {"name": "run"}}
    return parse_run({**head, "spec": spec}, "test")


USED = {"task": {"calls": 100, "promptTokens": 800, "completionTokens": 200}}


def spending(**limits: float) -> Any:
    """A result that used 100 rollouts, 1,000 tokens, 50 seconds and 2.5 of money."""
    used = {"rollouts": 100, "tokens": 1000, "wallClockSeconds": 50, "money": 2.5}
    lines = [{"name": name, "spent": spent, "limit": limits.get(name)} for name, spent in used.items()]
    return result(rollouts=100, usage=USED, wallSeconds=50.0, budget=lines)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({}, (200, 2000, 100.0, 5.0)),
        ({"rollouts": 9000, "tokens": 9000, "wallClockSeconds": 900, "money": 90.0}, (200, 2000, 100.0, 5.0)),
        ({"rollouts": 110, "tokens": 1100, "wallClockSeconds": 55, "money": 3.0}, (110, 1100, 55.0, 3.0)),
    ],
)
def test_a_seed_may_use_what_is_said_and_no_more(limits: dict[str, Any], most: tuple[float, ...]) -> None:
    made = spending(**limits)
    said = parts(made, second_engine=True)[1:]
    assert {(one.rollouts, one.tokens, one.seconds, one.money) for one in said} == {most}
    own = {"rollouts": 9000, **limits}
    seed = with_seed(manifest(budget=own, prices=PRICES), 8, made).spec
    assert (seed.seed, seed.budget.tokens, seed.budget.money) == (8, most[1], most[3])
    assert seed.budget.rollouts == own["rollouts"], "a diagnosis takes a share of these"
    assert seed.budget.first == "rollouts"


def test_a_run_without_limits_is_bounded_by_its_tokens() -> None:
    budget = with_seed(manifest(), 8, result(usage=USED)).spec.budget
    assert budget.dump() == {"tokens": 2000, "primary": "tokens"}


def audit_of(made: Any, seen: Seen = GOOD) -> Audit:
    return Audit(
        run=made.run,
        manifest_digest=made.manifest_digest,
        playbook=playbook_digest(made),
        stamps=stamps(made, seen),
    )


def test_the_stamps_are_in_both_reports_and_in_the_last_of_the_ten_sections() -> None:
    made = result(diagnosis=DIAGNOSIS)
    audit = audit_of(made, changed(rescored=pair(-0.01)))
    for report in (
        build_report(made, lessons_markdown="", audit=audit),
        build_strategist(made, audit),
    ):
        for text in (report.markdown, report.html):
            assert "replay equal" in text and SURVIVED in text and FAILED in text
    assert "gain shown on gate: failed" in build_strategist(made, audit).markdown.partition("## 10.")[2]
    assert "Not audited" in build_strategist(made).markdown
    assert "replay equal" not in build_report(made, lessons_markdown="").html


def test_an_audit_of_another_result_is_not_shown(tmp_path: Path) -> None:
    made = result()
    assert audit_beside(tmp_path, made) is None
    (tmp_path / "audit").mkdir()
    file = tmp_path / "audit" / "audit.json"
    file.write_bytes(to_bytes(audit_of(made)))
    assert audit_beside(tmp_path, made) == audit_of(made)
    assert audit_beside(tmp_path, made.model_copy(update={"manifest_digest": "other"})) is None
    assert audit_beside(tmp_path, made.model_copy(update={"playbook": None})) is None
    file.write_text("{}")
    with pytest.raises(DataError, match=r"audit\.json"):
        audit_beside(tmp_path, made)
