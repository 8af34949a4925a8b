"""One measure for every artifact: our rollout prompt with the text as its playbook, our scorer, our gate."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bench.inprocess import Direct, formula_key, formula_splits, simulated
from combee.algo.membership import split_select_gate
from combee.algo.tokens import estimate_tokens
from combee.clients.model.wire import ChatRequest
from combee.methods.ace import AceMethod
from combee.records import Example
from combee.sim.params import Law
from combee.tasks.registry import task_for


@dataclass(frozen=True)
class Scored:
    """An artifact's worth. ``right`` and ``wrong``: distinct rules that it states rightly and wrongly, of
    those that the model does not know (``unknown`` of them)."""

    held_out: float
    tokens: int
    right: int
    wrong: int
    unknown: int


def halves() -> tuple[list[Example], list[Example]]:
    """heldOut's (select, gate), as every run splits it."""
    _, held_out = formula_splits()
    by_id = {example.id: example for example in held_out.examples}
    select, gate = split_select_gate(list(by_id), held_out.digest)
    return [by_id[name] for name in select], [by_id[name] for name in gate]


def score(text: str, seed: int) -> Scored:
    """What the simulated model of this seed makes of gate with this text as its playbook."""
    model = simulated(seed, Law())
    stated = {(hit.kind, hit.key) for hit in model.book.lessons_in(text)}
    unknown = {topic for topic in formula_key()["topics"] if not model.book.rule(topic).known}
    right, wrong = (
        sum(kind == side and key in unknown for kind, key in stated) for side in ("right", "wrong")
    )
    gate = halves()[1]
    found = asyncio.run(_answered(text, gate, Direct(model, "task", {})))
    return Scored(sum(found) / len(found), estimate_tokens(text), right, wrong, len(unknown))


async def _answered(text: str, gate: list[Example], client: Direct) -> list[float]:
    method, task, scores = AceMethod(), task_for("Formula"), []
    for example in gate:
        prompt = method.rollout_prompt(task.instructions, text, task.model_input(example))
        said = (await client.ask(ChatRequest(prompt))).completion.text
        answer = task.parse_answer(method.parse_rollout(said).answer)
        scores.append(task.score(answer, example).value)
    return scores
