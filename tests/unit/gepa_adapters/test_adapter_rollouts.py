"""An adapter's rollouts in the accounts: only good ones are remembered, and each failure stays its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from adapter_bench import CANDIDATE, Bench, Drive, Upstream

from combee.api.run import RunSpec
from combee.assembly.rollouts import check_adapter
from combee.clients.model.wire import Endpoint
from combee.errors import BudgetExhaustedError, ManifestError, RolloutError, TransientError
from combee.records import Shown
from combee.work.happened import happened

DOUBLES = "adapter_doubles"


def test_what_it_says_of_an_example_is_taken_over(drive: Drive) -> None:
    async def work(bench: Bench) -> None:
        found = await bench.run(id=0, difficulty=4)
        assert found.score == 0.5
        assert found.objectives == (("fast", 0.25), ("right", 0.5))
        text = "Inputs: (component) system_prompt\nFeedback: it scored 0.5"
        assert found.records == (("system_prompt", text),)
        assert found.parts == (text,)
        assert found.title == "(component) system_prompt"
        assert found.answer == '{"id": 0, "weight": 1}'
        assert bench.asker.rollouts() == bench.guard.rollouts == 1

    drive(f"{DOUBLES}:Weights", work)


def test_what_is_only_scored_is_not_traced_and_another_rollout(drive: Drive) -> None:
    async def work(bench: Bench) -> None:
        scored = await bench.run(id=0, difficulty=4, reflected=False)
        assert (scored.score, scored.records) == (0.5, ())
        assert (await bench.run(id=0, difficulty=4)).records
        assert [row.hit for row in bench.asker.rows] == [False, False]

    drive(f"{DOUBLES}:Weights", work)


def test_a_good_one_is_remembered_by_all_that_went_in(drive: Drive) -> None:
    other = Shown("", (("check", "Twice."), ("system_prompt", "weight=2")))

    async def first(bench: Bench) -> None:
        await bench.run(id=0, difficulty=4)

    async def again(bench: Bench) -> None:
        await bench.run(id=0, difficulty=4)
        await bench.run(id=0, difficulty=5)
        await bench.run(id=0, difficulty=4, shown=other)
        await bench.run(id=0, difficulty=4, ordinal=1)
        assert [row.hit for row in bench.asker.rows] == [True, False, False, False]

    drive(f"{DOUBLES}:Weights", first)
    drive(f"{DOUBLES}:Weights", again)


FAILURES = {"raise": "TaskRaised", "none": "TaskNoScore", "nan": "TaskNoScore", "die": "TaskDied"}


@pytest.mark.parametrize(("does", "word"), FAILURES.items(), ids=list(FAILURES))
def test_a_failed_example_is_no_zero_and_is_asked_again(
    drive: Drive, does: str, word: str, tmp_path: Path
) -> None:
    async def work(bench: Bench) -> None:
        for _ in range(2):
            with pytest.raises(RolloutError) as failed:
                await bench.run(id=0, difficulty=4, does=does)
            assert failed.value.code == word
        assert [row.hit for row in bench.asker.rows] == [False, False]
        assert bench.asker.lost.total() == 2
        record = happened({"map": bench.asker.rows}, 4)
        assert record["rolloutFaults"] == {word: 2}
        assert (await bench.run(id=1, difficulty=4)).score == 0.5

    drive(f"{DOUBLES}:Fails", work)
    told = (tmp_path / "store" / f"runs/r-1/rollouts/{word}.txt").read_text()
    assert {"raise": "the database is away", "die": "out of everything"}.get(does, "") in told


def test_one_that_hangs_is_ended_and_the_next_is_not_touched(drive: Drive) -> None:
    async def work(bench: Bench) -> None:
        assert (await bench.run(id=1, difficulty=4)).score == 0.5
        bench.runner.hosts.seconds = 0.5
        with pytest.raises(RolloutError, match="timeout") as failed:
            await bench.run(id=0, difficulty=4, does="hang")
        assert failed.value.code == "TaskTimeout"
        bench.runner.hosts.seconds = 300
        assert (await bench.run(id=2, difficulty=4)).score == 0.5

    drive(f"{DOUBLES}:Fails", work)


def test_what_dies_is_tried_again(drive: Drive, tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        found = await bench.run(id=0, difficulty=4, does="die once", mark=str(tmp_path / "mark"))
        assert found.score == 0.5
        assert happened({"map": bench.asker.rows}, 4)["rolloutFaults"] == {"TaskDied": 1}

    drive(f"{DOUBLES}:Fails", work)


def test_what_it_prints_is_no_answer(drive: Drive) -> None:
    async def work(bench: Bench) -> None:
        assert (await bench.run(id=0, difficulty=4, does="print")).score == 0.5

    drive(f"{DOUBLES}:Fails", work)


def test_a_raising_reflection_is_told_once_and_the_score_stands(drive: Drive) -> None:
    async def work(bench: Bench) -> None:
        for number in range(2):
            found = await bench.run(id=number, difficulty=4)
            assert (found.score, found.records) == (0.5, ())
        (note,) = bench.notes.told
        assert note.startswith("make_reflective_dataset raised Exception at adapter_doubles.py:")

    drive(f"{DOUBLES}:Unreflective", work)


def test_its_calls_are_the_runs_and_remembered(drive: Drive, upstream: Upstream) -> None:
    async def work(bench: Bench) -> None:
        assert (await bench.run(ask="Which?")).score == 1.0
        assert bench.asker.usage()["task"].prompt_tokens == 7
        assert bench.guard.tokens == 10
        await bench.run(ask="Which?", note="another row that asks the same")

    drive(f"{DOUBLES}:Asks", work)
    (body,) = upstream.bodies
    assert body["messages"] == [{"role": "user", "content": "Which?"}]
    assert (body["model"], body["max_tokens"]) == ("the-model", 50)


def test_without_an_answer_of_the_model_its_zero_does_not_count(drive: Drive, upstream: Upstream) -> None:
    async def work(bench: Bench) -> None:
        upstream.status = 503
        with pytest.raises(TransientError):
            await bench.run(ask="Which?")
        upstream.status = 200
        found = await bench.run(ask="Which?")
        assert found.score == 1.0
        assert found.records == (("check", "Said: right"), ("system_prompt", "Said: right"))

    drive(f"{DOUBLES}:Asks", work)


def test_a_spent_budget_ends_it(drive: Drive) -> None:
    async def work(bench: Bench) -> None:
        await bench.run(id=0, difficulty=4)
        with pytest.raises(BudgetExhaustedError):
            await bench.run(id=1, difficulty=4)

    drive(f"{DOUBLES}:Weights", work, rollouts=1)


def test_as_many_processes_work_as_it_may_have(drive: Drive) -> None:
    async def work(bench: Bench) -> None:
        await asyncio.gather(*(bench.run(id=number, difficulty=4) for number in range(6)))
        assert 1 <= len(bench.runner.hosts.idle) <= 2

    drive(f"{DOUBLES}:Weights", work, concurrency=2)


BROKEN = {
    "short": ({"scores": []}, "evaluate must return scores, a list with one item for each row"),
    "no outputs": ({"outputs": None}, "evaluate must return outputs, a list with one item"),
    "words": ({"scores": ["good"]}, "evaluate must return numbers, and a score is str"),
    "endless": ({"scores": ["inf"]}, "a score that is inf"),
    "over one": ({"scores": [7.0]}, "evaluate gave the score 7"),
    "objectives": ({"objective_scores": [3]}, "for each row a mapping of names to numbers"),
    "records": ({"records": [1]}, "a mapping of components to lists of records"),
    "rows": ({"records": {"check": ["text"]}}, "records that are mappings"),
}


@pytest.mark.parametrize(("answers", "said"), BROKEN.values(), ids=list(BROKEN))
def test_what_breaks_the_protocol_ends_the_run(drive: Drive, answers: dict[str, object], said: str) -> None:
    async def work(bench: Bench) -> None:
        with pytest.raises(ManifestError, match=r"^spec\.task\.custom\.adapter: ") as refused:
            await bench.run(answers=answers)
        assert said in str(refused.value)

    drive(f"{DOUBLES}:Answers", work)


NO_ADAPTERS = {
    "no_such_module:A": "ModuleNotFoundError",
    f"{DOUBLES}:Missing": "AttributeError",
    f"{DOUBLES}:Nothing": "it makes has no method evaluate, make_reflective_dataset",
    "json:dumps": "TypeError",
}


@pytest.mark.parametrize(("factory", "said"), NO_ADAPTERS.items(), ids=list(NO_ADAPTERS))
def test_what_makes_no_adapter_is_named(drive: Drive, factory: str, said: str) -> None:
    async def work(bench: Bench) -> None:
        with pytest.raises(ManifestError, match=r"^spec\.task\.custom\.adapter\.factory: ") as refused:
            await bench.run(id=0, difficulty=4, shown=CANDIDATE)
        assert said in str(refused.value)

    drive(factory, work)


def test_before_any_work_it_is_made_with_the_models_name() -> None:
    endpoint = {"endpoint": {"url": "http://h/v1", "model": "the-model"}}
    data = {name: {"uri": f"{name}.jsonl"} for name in ("train", "heldOut")}
    custom = {"adapter": {"factory": f"{DOUBLES}:named"}}
    spec = RunSpec.model_validate(
        {
            "task": {"type": "Custom", "custom": custom, "data": data},
            "method": {"type": "GEPA"},
            "models": dict.fromkeys(("task", "proposer"), endpoint),
        }
    )
    asyncio.run(check_adapter(spec, {"task": Endpoint("http://h/v1", "the-model")}))
