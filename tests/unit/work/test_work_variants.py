"""Several texts in flight: examples dealt by position, parts side by side, and no call over the caps."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.tokens import estimate_tokens
from combee.api.run import RunSpec
from combee.clients.model.wire import Answered, ChatRequest, Completion
from combee.methods.components.pool import MAIN
from combee.methods.gepa import GepaMethod, Terms
from combee.methods.protocol import VARIANT, Rendered, Update
from combee.plan.decide import iteration_plan
from combee.plan.state import DataFacts, RunState
from combee.plan.types import IterationPlan
from combee.records import Lesson, Prompt, Reflection, Trajectory
from combee.work.asker import Asker
from combee.work.context import line_of
from combee.work.decode import outcome_of, reflection_of, update_of
from combee.work.reduce import _parts
from combee.work.reduction import CHAINS, joined
from combee.work.together import Together
from combee.work.variants import dealt_to, name_of, of_text, signed

PLAN = IterationPlan(
    iteration=0, epoch=0, offset=0, batch_size=40, batch_reason="test", seed=7, in_order=False, shards=1,
    strategy="ParallelScan", merge="Structured", verify="Replay", redundancy="Duplicate", copies=2,
     max_rounds=4,
    leaf_size=8, max_fan_in=32, max_input_tokens=24_000, subgroups="", render_token_budget=8000,
    reflection_rounds=1, evaluate=False, token_factor=1.0, variants=3,
)  # fmt: skip
ENDPOINT = {"endpoint": {"url": "http://h/v1", "model": "m"}}
COMPAT = {
    "task": {"type": "Formula", "data": {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}}},
    "method": {"type": "GEPA", "gepa": {"paperCompat": True}},
    "models": dict.fromkeys(("task", "proposer"), ENDPOINT),
}
RECORD = re.compile(r"^\[(r-\d{5})\]", re.M)


def fixed(size: int) -> dict[str, Any]:
    return {"mode": "Fixed", "size": size, "reason": "test"}


def text(name: str, **components: str) -> Rendered:
    parts = tuple(sorted((components or {MAIN: f"Text {name}."}).items()))
    return Rendered(f"Text {name}.", 4, (name,), (), {VARIANT: name}, parts)


def record(number: int, variant: str = "", words: int = 12) -> Reflection:
    name = f"r-{number:05d}"
    told = Lesson(f"{name}.*", f"Given: item {number} | " + "seen " * words + f"| Feedback: it is {number}.5")
    return Reflection(name, f"{number}@0", False, "", (told,), (), variant)


@given(st.integers(1, 9), st.integers(0, 60))
def test_every_example_has_one_text_and_shares_are_within_one(texts: int, count: int) -> None:
    shown = [text(f"v{n}") for n in range(texts)]
    rows = [record(place, name_of(shown, dealt_to(shown, place))) for place in range(count)]
    shares = [of_text(rows, shown, one) for one in shown]
    assert sorted(row.id for share in shares for row in share) == [row.id for row in rows]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_where_there_is_one_text_nothing_is_named_and_nothing_written() -> None:
    shown = [text("v0")]
    seen = Trajectory("1@0", "1", "asked", "", "", 0.0, False, "wrong")
    assert signed(name_of(shown, shown[0]), seen, record(1)) == (seen, record(1))
    assert b"variant" not in line_of(seen) + line_of(record(1)) + line_of(update("x"))
    assert of_text([record(1), record(2)], shown, shown[0]) == [record(1), record(2)]


def update(said: str, variant: str = "") -> Update:
    return Update("ADD", MAIN, said, frozenset({"1@0"}), variant=variant)


def test_names_survive_the_store() -> None:
    seen, told = signed("v1", Trajectory("1@0", "1", "", "", "", 0.0, False, ""), record(1))
    assert outcome_of(json.loads(line_of(seen))) == seen and seen.variant == "v1"
    assert told is not None and reflection_of(json.loads(line_of(told))) == told and told.variant == "v1"
    (line,) = line_of(update("x", "v1")).splitlines()
    assert update_of(json.loads(line)) == update("x", "v1")


@dataclass
class Progress:
    said: list[tuple[str, int, int]] = field(default_factory=list)

    def begin(self, stage: str, total: int) -> None:
        self.said.append((stage, 0, total))

    def advance(self, units: int = 1) -> None:
        stage, done, total = self.said[-1]
        self.said.append((stage, done + units, total))

    def note(self, text: str) -> None:
        pass


def test_progress_of_parts_is_told_as_one() -> None:
    inner = Progress()
    together = Together(inner)
    first, second = together.part(), together.part()
    first.begin("leaves", 2)
    first.advance()
    second.begin("leaves", 3)
    second.advance(3)
    first.advance()
    assert inner.said[-1] == ("leaves", 5, 5)
    first.begin("merge", 1)
    second.begin("merge", 1)
    second.advance()
    first.advance()
    assert inner.said[-1] == ("merge", 2, 2)


@dataclass
class Client:
    """Every record is a lesson, every rewrite names how many it was given; after a random number of turns."""

    luck: random.Random | None
    asked: list[Prompt] = field(default_factory=list)

    context_tokens = None

    def key_of(self, request: object) -> str:
        return repr(request)

    async def ask(self, request: ChatRequest, *_: object) -> Answered:
        prompt = request.prompt
        self.asked.append(prompt)
        for _ in range(self.luck.randrange(4) if self.luck else 0):
            await asyncio.sleep(0)
        said = prompt.messages[-1].content
        rows = [
            {"text": f"Item {id_}: answer {int(id_[2:])}.5.", "records": [id_]}
            for id_ in RECORD.findall(said)
        ]
        reply = json.dumps({"lessons": rows}) if prompt.schema_name == "lessons" else "```\nRewritten.\n```"
        return Answered(Completion(reply, estimate_tokens(said), 1, 0, 0.5, "stop", 1), hit=False)


def reduced(
    shown: list[Rendered], given: list[Reflection], plan: IterationPlan, *, width: int = 8, luck: int = 1
) -> tuple[Client, list[Update], Asker]:
    client = Client(random.Random(luck))
    context: Any = _Context(GepaMethod(Terms(budget_tokens=2000)), Progress(), width, client)
    done = asyncio.run(_parts(context, plan, shown, given, []))
    return (
        client,
        [update for _, updates in done for update in updates],
        joined(context, [one for one, _ in done]).asker,
    )


@dataclass
class _Context:
    method: GepaMethod
    progress: Any
    concurrency: int
    client: Client
    spec: Any = field(default_factory=SimpleNamespace)

    def asker(self, plan: IterationPlan | None = None) -> Asker:
        clients: Any = {"proposer": self.client}
        return Asker(clients, {})


def in_flight(count: int, texts: int) -> tuple[list[Rendered], list[Reflection]]:
    shown = [text(f"v{n}", ask=f"Ask {n}.", check="Check.") for n in range(texts)]
    return shown, [record(place, name_of(shown, dealt_to(shown, place))) for place in range(count)]


def test_each_text_and_component_is_reduced_by_its_own_records_at_any_pace() -> None:
    shown, given_ = in_flight(45, 3)
    found = set()
    for luck, width in ((1, 1), (2, 8), (3, 64)):
        _, updates, asker = reduced(shown, given_, PLAN, luck=luck, width=width)
        found.add((b"".join(map(line_of, updates)), asker.encode()))
    assert len(found) == 1
    parts = {(one.variant, one.section) for one in updates}
    assert parts == {(f"v{n}", component) for n in range(3) for component in ("ask", "check")}
    own = {row.trajectory_id: row.variant for row in given_}
    assert all(own[source] == one.variant for one in updates for source in one.sources)
    assert len({row.chain // CHAINS for row in asker.rows}) == 6


def test_a_lone_part_has_the_chains_it_had() -> None:
    _, _, asker = reduced([text("v0")], [record(n) for n in range(45)], PLAN)
    assert max(row.chain for row in asker.rows) < CHAINS


@pytest.mark.parametrize("count", [1, 3, 4, 10, 99, 100, 700])
def test_paper_compat_is_gepas_two_levels_whatever_the_number(count: int) -> None:
    """Every record twice, in floor(sqrt n) calls that write a text, and one call over all of these."""
    state = RunState(phase="Learning", facts=DataFacts(count, 50, 50, 0, {}))
    plan = iteration_plan(RunSpec.model_validate(COMPAT | {"batching": fixed(count)}), state)
    client = Client(None)
    method = GepaMethod(Terms(budget_tokens=2000, whole_texts=True))
    context: Any = _Context(method, Progress(), 8, client)
    ((reduction, updates),) = asyncio.run(
        _parts(context, plan, [text("v0")], [record(n) for n in range(count)], [])
    )
    *leaves, last = [prompt.messages[0].content for prompt in client.asked]
    if math.isqrt(count) == 1:
        leaves, last = [last], ""
    held = [RECORD.findall(said) for said in leaves]
    assert len(held) == math.isqrt(count)
    assert max(map(len, held)) - min(map(len, held)) <= 1
    copies = 2 if len(held) > 1 else 1
    assert sorted(id_ for group in held for id_ in group) == sorted(
        [f"r-{n:05d}" for n in range(count)] * copies
    )
    assert len(re.findall("^## Proposal", last, re.M)) == (len(held) if last else 0)
    assert [level.calls for level in reduction.levels] == [len(held), int(bool(last))]
    assert [one.op for one in updates] == ["UPDATE"]


@pytest.mark.parametrize(
    ("texts", "changes"),
    [
        (4, {}),
        (1, {"redundancy": "Retransmit", "copies": 1}),
        (1, {"max_fan_in": 5, "max_input_tokens": 4000}),
    ],
)
def test_10000_reflections_never_put_more_than_the_caps_into_one_call(
    texts: int, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the records to the last call; what is counted of retention plays no part in it."""
    monkeypatch.setattr("combee.work.reduction.Reduction.report", lambda *_: frozenset())
    monkeypatch.setattr("combee.work.retention.Lessons.to_send_again", lambda *_: [])
    shown = [text(f"v{n}") for n in range(texts)]
    plan = replace(PLAN, batch_size=10_000, **changes)
    given_ = [record(n, name_of(shown, dealt_to(shown, n)), words=n % 40) for n in range(10_000)]
    client = Client(None)
    context: Any = _Context(GepaMethod(Terms(budget_tokens=2000)), Progress(), 64, client)
    done = asyncio.run(_parts(context, plan, shown, given_, []))
    leaves = [prompt for prompt in client.asked if prompt.schema_name == "lessons"]
    last = [prompt for prompt in client.asked if prompt.schema_name != "lessons"]
    assert len(leaves) >= 10_000 / 8 and len(last) == texts
    for prompt in client.asked:
        said = prompt.messages[0].content
        assert len(RECORD.findall(said)) <= min(plan.max_fan_in, plan.leaf_size)
        assert len(re.findall(r"^- Item", said, re.M)) <= plan.max_fan_in
        assert estimate_tokens(said) <= plan.max_input_tokens
    held = {source for _, updates in done for one in updates for source in one.sources}
    assert len(held) == 10_000
