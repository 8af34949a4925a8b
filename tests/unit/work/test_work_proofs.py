"""What a test of a program shows is remembered: no program is run twice, and none in a replay."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from test_work_passages import PROFILE, context

from combee.api.method_options import Programs
from combee.clients.model.memo import Memo
from combee.clients.model.recorded import Recorded
from combee.clients.sandbox.proof import Proof
from combee.errors import UserError
from combee.methods.ace import AceMethod
from combee.methods.protocol import Refusal, Update
from combee.work import proofs
from combee.work.context import WorkContext
from combee.work.profile import run_profile
from combee.work.proofs import SAMPLE, can_be_proved, unproved

WRONG = SAMPLE.replace("== 4", "== 5")
METHOD = AceMethod(programs=Programs())
LEDGER = METHOD.apply(
    METHOD.empty(),
    [Update("ADD", "programs", text, frozenset({"a@0", "b@0"})) for text in (SAMPLE, WRONG)],
    [],
    iteration=1,
)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that are run, none of them truly."""
    ran: list[str] = []

    async def proved(program: str, seconds: int) -> Proof:
        ran.append(program)
        return Proof("its test fails" if program == WRONG else "", 0.1)

    monkeypatch.setattr(proofs, "proved", proved)
    return ran


def taking(folder: Path, start: str = "") -> WorkContext:
    """A step of a run that takes programs."""
    made, _ = context(folder, start)
    method = made.spec.method.model_copy(
        update={"ace": made.spec.method.ace.model_copy(update={"programs": Programs()})}
    )
    spec = made.spec.model_copy(update={"method": method})
    return replace(made, spec=spec, method=METHOD, memo=Memo(made.store))


async def test_a_program_is_run_once_whoever_asks_and_never_in_a_replay(
    tmp_path: Path, ran: list[str]
) -> None:
    made, new = taking(tmp_path), sorted(LEDGER.texts)
    first = await unproved(made, LEDGER, new, [])
    assert [(LEDGER.texts[one.entry_digest], one.kind, one.reason) for one in first] == [
        (WRONG, "program", "its test fails")
    ]
    assert sorted(ran) == sorted([SAMPLE, WRONG])
    assert await unproved(made, LEDGER, new, []) == first
    assert await unproved(replace(made, memo=Recorded(made.store)), LEDGER, new, []) == first
    assert len(ran) == 2
    assert METHOD.with_refusals(LEDGER, first).refusals == frozenset(first)


async def test_an_inherited_program_may_take_the_longest_whatever_this_run_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took: list[int] = []

    async def proved(program: str, seconds: int) -> Proof:
        took.append(seconds)
        return Proof("", 0.1)

    monkeypatch.setattr(proofs, "proved", proved)
    made, new = taking(tmp_path), sorted(LEDGER.texts)
    await unproved(made, LEDGER, new, [])
    await unproved(made, LEDGER, new, [], inherited=True)
    without = replace(made, spec=context(tmp_path, "")[0].spec, prefix="runs/next")
    await unproved(without, LEDGER, new, [], inherited=True)
    assert took == [5, 5, 60, 60, 60, 60]


async def test_another_run_of_the_store_runs_a_test_again(tmp_path: Path, ran: list[str]) -> None:
    made, new = taking(tmp_path), sorted(LEDGER.texts)
    await unproved(made, LEDGER, new, [])
    await unproved(replace(made, prefix="runs/other"), LEDGER, new, [])
    assert sorted(ran) == sorted([SAMPLE, WRONG] * 2)


async def test_whether_any_can_be_confined_is_seen_here_and_now_and_in_no_replay(
    tmp_path: Path, ran: list[str]
) -> None:
    made = taking(tmp_path)
    await can_be_proved(made)
    await can_be_proved(made)
    await can_be_proved(replace(made, memo=Recorded(made.store)))
    assert ran == [SAMPLE, SAMPLE]


async def test_a_replay_without_the_record_of_a_test_says_so_and_runs_nothing(
    tmp_path: Path, ran: list[str]
) -> None:
    made = taking(tmp_path)
    with pytest.raises(UserError, match="the record lacks the call"):
        await unproved(replace(made, memo=Recorded(made.store)), LEDGER, sorted(LEDGER.texts), [])
    assert not ran


async def test_what_its_words_refuse_is_not_run(tmp_path: Path, ran: list[str]) -> None:
    refused = [Refusal(digest, "", "leak", "private") for digest in LEDGER.texts]
    assert await unproved(taking(tmp_path), LEDGER, sorted(LEDGER.texts), refused) == []
    assert not ran


async def test_of_very_many_programs_the_rest_is_refused_unseen(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs, "MOST", 1)
    first, last = sorted(LEDGER.texts)
    refusals = await unproved(taking(tmp_path), LEDGER, [first, last], [])
    assert [one.reason for one in refusals if one.entry_digest == last] == [
        "more than 1 programs came with it"
    ]
    assert ran == [LEDGER.texts[first]]
    again = await unproved(taking(tmp_path / "next"), LEDGER, [first, last], [], inherited=True)
    assert all(one.reason == "its test fails" for one in again) and set(ran) == {SAMPLE, WRONG}


@pytest.mark.skipif(sys.platform != "linux", reason="programs are confined by Linux")
@pytest.mark.parametrize("takes", [True, False])
async def test_programs_of_an_earlier_run_are_run_again_before_anything_else(
    tmp_path: Path, takes: bool
) -> None:
    shown = METHOD.render(LEDGER, budget_tokens=8000, verify="Replay")
    assert SAMPLE in shown.text and WRONG in shown.text
    text = METHOD.handed_on(LEDGER, shown, by="elsewhere", train="ab" * 32).decode()
    made = taking(tmp_path, text)
    if not takes:
        made = replace(made, spec=context(tmp_path, "")[0].spec, method=AceMethod())
    summary = await run_profile(made, PROFILE)
    start = METHOD.from_json(made.store.get_blob(summary.outputs["artifact"]))
    assert [start.texts[one.entry_digest] for one in start.refusals] == [WRONG]
    playbook = made.rendered(start).text
    assert SAMPLE in playbook and WRONG not in playbook


async def test_a_run_that_takes_programs_ends_before_it_asks_where_none_can_be_confined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def proved(program: str, seconds: int) -> Proof:
        raise UserError("no program of a playbook can be kept from files here")

    monkeypatch.setattr(proofs, "proved", proved)
    with pytest.raises(UserError, match="can be kept from files"):
        await run_profile(taking(tmp_path), PROFILE)
    made, _ = context(tmp_path / "other", "")
    await run_profile(made, PROFILE)
