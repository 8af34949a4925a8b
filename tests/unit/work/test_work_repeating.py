"""A proposer that repeats itself: both methods see it within two iterations, and tell people."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
from bench.inprocess import Direct, executor_of, formula_run, formula_splits, simulated

from combee.api.load import parse_run
from combee.clients.model.wire import Answered, ChatRequest, Completion
from combee.local.executor import LocalExecutor
from combee.methods.registry import method_of
from combee.plan.state import repeats
from combee.sim.params import Law

SIZE = 10
SAID = "Always read the question twice and stay careful."
IDS = re.compile(r"^\[([^\]\s]+)\]", re.M)


@dataclass
class Stuck:
    """A proposer that answers every call with the same lesson, and one of ``words`` in turn."""

    words: tuple[str, ...] = ("",)
    asked: int = 0
    context_tokens: int | None = None

    def key_of(self, request: object) -> str:
        return repr(request)

    async def ask(self, request: ChatRequest, *_: object) -> Answered:
        said = f"{SAID} {self.words[self.asked % len(self.words)]}".strip()
        self.asked += 1
        ids = IDS.findall(request.prompt.messages[-1].content)
        replies: dict[str, Any] = {
            "reflection": {"lessons": [said], "diagnosis": "It went astray.", "tags": []},
            "playbook_entries": {
                "entries": [
                    {"op": "ADD", "section": "others", "text": said, "reflections": ids, "bullets": []}
                ]
            },
            "merged_entries": {"keep": [ids], "entries": []},
            "lessons": {"lessons": [{"text": said, "records": ids}]},
        }
        reply = replies.get(request.prompt.schema_name)
        text = json.dumps(reply) if reply else f"```\n{said}\n```"
        return Answered(Completion(text, 10, 5, 0, 0.001, "stop", 1), hit=False)


class Heard:
    """A screen that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[tuple[int, str]] = []
        self.iterations = 0

    def iteration(self, state: object) -> None:
        self.iterations += 1

    def note(self, text: str) -> None:
        self.notes.append((self.iterations, text))

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def learning(method: dict[str, Any], proposer: Any = None, rows: int = 40) -> tuple[LocalExecutor, Heard]:
    """A run of so many rows, with the simulated model and its own proposer, or this one."""
    document = formula_run("run", size=SIZE, seed=7, aggregation={}).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    document["spec"]["method"] = {"epochs": 1, **method}
    run = parse_run(document, "run")
    train, held_out = formula_splits()
    splits = (
        replace(train, examples=train.examples[:rows]),
        replace(held_out, examples=held_out.examples[:40]),
    )
    clients = {role: Direct(simulated(7, Law()), role, {}) for role in ("task", "proposer")}
    executor = executor_of(run, splits, clients)
    executor.context = replace(executor.context, method=method_of(run.spec))
    if proposer is not None:
        executor.context.clients["proposer"] = proposer
    heard = Heard()
    executor.meter.listener = heard  # type: ignore[assignment]
    return executor, heard


@pytest.mark.parametrize("words", [("",), ("please", "Please.")])
@pytest.mark.parametrize("method", ["ACE", "GEPA"])
def test_a_proposer_that_repeats_itself_is_seen_within_two_iterations(
    method: str, words: tuple[str, ...]
) -> None:
    executor, heard = learning({"type": method}, Stuck(words))
    asyncio.run(executor.run())
    told = [at for at, text in heard.notes if "the proposer repeats itself" in text]
    assert told and told[0] <= 2, heard.notes
    assert executor.state.repeating >= 2
    assert "each of them was known, or tried and refused" in repeats(executor.state)


@pytest.mark.parametrize("method", ["ACE", "GEPA"])
def test_a_proposer_that_learns_is_not_taken_for_one(method: str) -> None:
    executor, heard = learning({"type": method}, rows=60)
    asyncio.run(executor.run())
    assert not [text for _, text in heard.notes if "repeats itself" in text]
    assert executor.state.repeating == 0
