"""A server that is gone says nothing of a playbook; a model that answers badly does."""

from __future__ import annotations

from pathlib import Path

import pytest

from combee.api.load import parse_run
from combee.clients.model.wire import Answered, Completion
from combee.clients.store.store import Store
from combee.errors import TransientError, VerdictError
from combee.methods.ace import AceMethod
from combee.records import Example, Shown
from combee.tasks.registry import task_for
from combee.work.context import WorkContext
from combee.work.rollouts import evaluate, refuse_a_bad_day

MODEL = {"endpoint": {"url": "http://localhost:1/v1", "model": "m"}}
RUN = parse_run(
    {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": "run"},
        "spec": {
            "task": {"type": "Formula", "data": {"train": {"uri": "t"}, "heldOut": {"uri": "h"}}},
            "method": {"type": "ACE"},
            "models": {"task": MODEL, "proposer": MODEL},
        },
    },
    "test",
)
EXAMPLES = [Example(f"q-{number}", f"What is {number} + 1?", str(number + 1), "d") for number in range(10)]


class Server:
    """It dies after so many answers, all of which are the same."""

    context_tokens = None

    def __init__(self, answers: int, text: str) -> None:
        self.left, self.text = answers, text

    def key_of(self, request: object) -> str:
        return repr(request)

    async def ask(self, *_: object) -> Answered:
        if self.left == 0:
            raise TransientError("no answer")
        self.left -= 1
        return Answered(Completion(self.text, 10, 5, 0, 1.0, "stop", 1), hit=False)


class Silent:
    def begin(self, stage: str, total: int) -> None: ...
    def advance(self, units: int = 1) -> None: ...
    def note(self, text: str) -> None: ...


async def scores_of(server: Server, folder: Path) -> dict[str, float]:
    context = WorkContext(
        RUN.spec,
        "runs/run",
        Store.open(str(folder)),
        {"task": server},
        task_for("Formula"),
        AceMethod(),
        None,
        1,
        1,
        lambda: 0.0,
        Silent(),
    )  # type: ignore[arg-type]
    scores = await evaluate(context, context.asker(), EXAMPLES, Shown(""), stage="gate best")
    return scores.by_id


async def test_a_server_that_dies_under_an_evaluation_fails_it(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="6 of 10 rows of gate best got no answer") as caught:
        await scores_of(Server(4, '{"answer": "1"}'), tmp_path)
    assert "endpoint is healthy" in caught.value.fix and "what was answered is kept" in caught.value.fix


async def test_a_few_rows_without_an_answer_count_as_wrong(tmp_path: Path) -> None:
    scores = await scores_of(Server(6, '{"answer": "1"}'), tmp_path)
    assert sum(scores.values()) == 1 and scores["q-0"] == 1 and len(scores) == 10


async def test_answers_that_cannot_be_read_are_the_models_own(tmp_path: Path) -> None:
    scores = await scores_of(Server(1000, '{"answer": ""}'), tmp_path)
    assert set(scores.values()) == {0.0} and len(scores) == 10


@pytest.mark.parametrize(("code", "role"), [("NoVerdict", "evaluator"), ("NoProxyVerdict", "proxy")])
def test_who_scores_without_verdicts_is_no_bad_day(code: str, role: str) -> None:
    errors = [code] * 5 + ["Transient"] * 2 + [""] * 3
    with pytest.raises(
        VerdictError, match=f"5 of 10 rollouts have no score: the {role} gave no verdict"
    ) as caught:
        refuse_a_bad_day(errors, "rollouts", "profile")
    assert (caught.value.code, caught.value.where) == (code, f"spec.models.{role}")
    refuse_a_bad_day([code] * 5 + [""] * 5, "rollouts", "profile")


def test_the_advice_is_for_what_happened_most() -> None:
    with pytest.raises(TransientError, match=r"6 of 10 rollouts got no answer \(Transient\)"):
        refuse_a_bad_day(["NoVerdict", *["Transient"] * 5, *[""] * 4], "rollouts", "profile")
