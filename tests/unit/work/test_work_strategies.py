"""TopK and Summarize at work: what the aggregator is given, what is counted, and the same at any pace."""

from __future__ import annotations

import asyncio
import json
import random
import re
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from combee.algo.tokens import estimate_tokens
from combee.clients.model.embedding import MAX_TEXTS, encoded
from combee.clients.model.wire import Answered, ChatRequest, Completion
from combee.errors import ContextLengthError, EndpointError, TransientError
from combee.methods.ace import AceMethod
from combee.methods.protocol import Rendered, Update
from combee.plan.types import IterationPlan
from combee.records import Lesson, Prompt, Reflection
from combee.sim.embedding import embed
from combee.work.aggregation.model import climb
from combee.work.aggregation.table import reduce_of
from combee.work.asker import Asker
from combee.work.context import line_of
from combee.work.reduction import Reduction

PLAN = IterationPlan(
    iteration=0, epoch=0, offset=0, batch_size=40, batch_reason="test", seed=7, in_order=False, shards=1,
    strategy="TopK", merge="Structured", verify="Replay", redundancy="Duplicate", copies=2, max_rounds=1,
    leaf_size=8, max_fan_in=8, max_input_tokens=24_000, subgroups="", render_token_budget=8000,
    reflection_rounds=1, evaluate=False, token_factor=1.0,
)  # fmt: skip
PLAYBOOK = Rendered("", 0)
ITEM = re.compile(r"^\[([rs]-\d{5})\]", re.M)
LESSON = re.compile(r"^- lesson: (.*)$", re.M)


def reflections(count: int, words: int = 20) -> list[Reflection]:
    """Each with a lesson whose number no other has."""
    filler = " ".join(f"w{k:03d}" for k in range(words))
    return [
        Reflection(
            f"r-{n:05d}", f"{n}@0", n % 3 == 0, "The first step went astray.",
            (Lesson(f"r-{n:05d}.1", f"For formula F{n:03d} use a rate of {100 + n} points {filler}".strip()),
             ),
        )
        for n in range(count)
    ]  # fmt: skip


def items_of(prompt: Prompt) -> list[str]:
    return ITEM.findall(prompt.messages[-1].content)


def embedded(prompt: Prompt) -> str:
    return encoded([embed(message.content) for message in prompt.messages])


def aggregated(prompt: Prompt) -> str:
    """Every lesson as an entry that cites the item it stands in."""
    entries, cited = [], ""
    for line in prompt.messages[-1].content.splitlines():
        if found := ITEM.match(line):
            cited = found[1]
        if said := LESSON.match(line):
            entries.append({"op": "ADD", "section": "strategies", "text": said[1], "reflections": [cited]})
    return json.dumps({"entries": entries})


def summarized(prompt: Prompt) -> str:
    """The lessons, one a line."""
    return "\n".join(LESSON.findall(prompt.messages[-1].content))


def kind_of(prompt: Prompt) -> str:
    return {"embeddings": "embed", "summary": "summary"}.get(prompt.schema_name, "aggregate")


ANSWERS: dict[str, Callable[[Prompt], str]] = {
    "embed": embedded,
    "summary": summarized,
    "aggregate": aggregated,
}


@dataclass
class Client:
    """Answers after a random number of turns of the loop."""

    says: Mapping[str, Callable[[Prompt], str]]
    luck: random.Random
    asked: list[Prompt] = field(default_factory=list)

    context_tokens = None

    def key_of(self, request: object) -> str:
        return repr(request)

    async def ask(self, request: ChatRequest, *_: object) -> Answered:
        self.asked.append(request.prompt)
        for _ in range(self.luck.randrange(5)):
            await asyncio.sleep(0)
        text = self.says[kind_of(request.prompt)](request.prompt)
        tokens = sum(estimate_tokens(message.content) for message in request.prompt.messages)
        return Answered(Completion(text, tokens, 1, 0, 0.5, "stop", 1), hit=False)

    def of(self, kind: str) -> list[Prompt]:
        return [prompt for prompt in self.asked if kind_of(prompt) == kind]


@dataclass
class Notes:
    said: list[str] = field(default_factory=list)

    def begin(self, stage: str, total: int) -> None:
        pass

    def advance(self, units: int = 1) -> None:
        pass

    def note(self, text: str) -> None:
        self.said.append(text)


@dataclass
class Done:
    reduction: Reduction
    updates: list[Update]
    client: Client
    notes: Notes

    @property
    def bytes(self) -> tuple[bytes, bytes]:
        return b"".join(map(line_of, self.updates)), self.reduction.asker.encode()

    @property
    def levels(self) -> list[tuple[str, int, int, int, int]]:
        return [astuple(level) for level in self.reduction.levels]


async def _updates(reduction: Reduction) -> list[Update]:
    return await reduce_of(reduction.plan.strategy)(reduction)


def reduced(
    strategy: str,
    given: list[Reflection],
    *,
    width: int = 4,
    luck: int = 1,
    says: Mapping[str, Callable[[Prompt], str]] | None = None,
    **plan: Any,
) -> Done:
    client, notes = Client({**ANSWERS, **(says or {})}, random.Random(luck)), Notes()
    context: Any = SimpleNamespace(method=AceMethod(), progress=notes, concurrency=width)
    frozen = replace(PLAN, strategy=strategy, batch_size=len(given), **plan)
    clients: Any = {"proposer": client, "embedder": client}
    reduction = Reduction(context, frozen, Asker(clients, {}), PLAYBOOK, given)
    return Done(reduction, asyncio.run(_updates(reduction)), client, notes)


def test_no_call_of_a_tree_of_merges_is_given_a_program() -> None:
    def program(rate: int) -> Update:
        text = (
            f'def share(a):\n    """Return a share."""\n    return a * {rate}\n\n\n'
            f"def test_share():\n    assert share(1) == {rate}"
        )
        return Update("ADD", "programs", text, frozenset({f"{rate}@0"}))

    def rule(rate: int) -> Update:
        return Update("ADD", "rules", f"Use a rate of {rate} points.", frozenset({f"{rate}@0"}))

    client = Client({"aggregate": lambda prompt: '{"entries": []}'}, random.Random(1))
    context: Any = SimpleNamespace(method=AceMethod(), progress=Notes(), concurrency=4)
    clients: Any = {"proposer": client}
    reduction = Reduction(context, PLAN, Asker(clients, {}), PLAYBOOK, [])
    leaves = [[program(1), rule(1)], [rule(2)], [program(3)], [program(1)]]
    merged = asyncio.run(climb(reduction, leaves))
    assert {one.text for one in merged} == {program(1).text, program(3).text} and len(merged) == 2
    (asked,) = client.asked
    words = asked.messages[-1].content
    assert "rate of 1 points" in words and "rate of 2 points" in words and "def share" not in words


@pytest.mark.parametrize("strategy", ["TopK", "Summarize", "Naive"])
@pytest.mark.parametrize("fan_in", [2, 8])
def test_the_same_bytes_at_any_pace(strategy: str, fan_in: int) -> None:
    given = reflections(40)
    wanted = reduced(strategy, given, max_fan_in=fan_in, width=1).bytes
    for luck in range(3):
        assert reduced(strategy, given, max_fan_in=fan_in, width=16, luck=luck).bytes == wanted


@pytest.mark.parametrize("strategy", ["TopK", "Summarize"])
@pytest.mark.parametrize("count", [1, 5, 40, 130])
@pytest.mark.parametrize(("fan_in", "most_tokens"), [(8, 24_000), (32, 24_000), (4, 1800), (32, 1000)])
def test_no_call_is_above_the_caps_and_nothing_is_lost_uncounted(
    strategy: str, count: int, fan_in: int, most_tokens: int
) -> None:
    done = reduced(strategy, reflections(count), max_fan_in=fan_in, max_input_tokens=most_tokens)
    for prompt in (*done.client.of("summary"), *done.client.of("aggregate")):
        inputs = items_of(prompt)
        tokens = sum(estimate_tokens(message.content) for message in prompt.messages)
        assert len(inputs) <= fan_in
        # What separates two inputs, and the rounding of each, are not counted: under two tokens an input.
        assert tokens <= most_tokens + 2 * len(inputs) or len(inputs) == 1
    for prompt in done.client.of("embed"):
        assert len(prompt.messages) <= MAX_TEXTS
    assert len(done.client.of("aggregate")) == 1
    held = {source for update in done.updates for source in update.sources}
    assert len(held) + done.reduction.left_out == count
    assert done.levels[-1][-1] == len(held)


def test_the_tokens_of_many_reflections_are_counted_with_one_prompt_in_memory() -> None:
    """Each prompt holds the whole playbook, here 100 KB."""
    context: Any = SimpleNamespace(method=AceMethod())
    playbook, given = Rendered("x" * 100_000, 25_000), reflections(400)
    reduction = Reduction(context, PLAN, Asker({}, {}), playbook, given)
    tracemalloc.start()
    try:
        assert len(reduction.tokens) == len(given)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000


def test_topk_takes_the_nearest_and_counts_the_others() -> None:
    """Three speak of one thing and are one lesson, two of others."""
    texts = ["alpha beta", "alpha beta gamma", "alpha beta delta", "omega", "sigma tau"]
    given = [
        Reflection(f"r-{n:05d}", f"{n}@0", False, "", (Lesson(f"r-{n:05d}.1", text),))
        for n, text in enumerate(texts)
    ]
    done = reduced("TopK", given, max_fan_in=3)
    assert items_of(done.client.of("aggregate")[0]) == ["r-00000", "r-00001", "r-00002"]
    assert done.reduction.left_out == 2
    assert done.levels[0] == ("nearest", 1, 5, 3, 1)
    assert done.reduction.asker.usage()["embedder"].prompt_tokens > 0
    assert not done.notes.said


def test_topk_says_so_where_tokens_and_not_the_fan_in_decide() -> None:
    done = reduced("TopK", reflections(20, words=400), max_fan_in=20, max_input_tokens=3000)
    assert 0 < done.reduction.left_out < 20
    assert any("fit into 3000 tokens" in said for said in done.notes.said)


def test_equal_texts_are_embedded_once_and_tokens_are_charged() -> None:
    same = [replace(one, lessons=(Lesson(f"{one.id}.1", "Be exact."),)) for one in reflections(70)]
    done = reduced("TopK", same, max_fan_in=5)
    assert [len(prompt.messages) for prompt in done.client.of("embed")] == [1]
    assert len(items_of(done.client.of("aggregate")[0])) == 5


def test_topk_goes_on_without_what_could_not_be_embedded() -> None:
    def fails(prompt: Prompt) -> str:
        if any("F001 " in message.content for message in prompt.messages):
            raise TransientError("no answer after 6 attempts")
        return embedded(prompt)

    done = reduced("TopK", reflections(70), max_fan_in=100, says={"embed": fails})
    assert done.reduction.left_out == len(done.client.of("embed")[0].messages)
    assert done.reduction.lost_calls == 1
    assert any("have no embedding and were left out" in said for said in done.notes.said)


def test_a_text_that_is_too_long_for_the_embedder_is_found_and_left_out_alone() -> None:
    def refuses(prompt: Prompt) -> str:
        if any("F007 " in message.content for message in prompt.messages):
            raise ContextLengthError("longer than the model's context")
        return embedded(prompt)

    done = reduced("TopK", reflections(30), max_fan_in=100, says={"embed": refuses})
    assert done.reduction.left_out == 1
    assert "r-00007" not in items_of(done.client.of("aggregate")[0])
    assert any("an embedding was lost: ContextLength" in said for said in done.notes.said)


def test_an_embedder_of_no_use_ends_the_step() -> None:
    def refuses(prompt: Prompt) -> str:
        raise EndpointError("the server gives no embeddings at /embeddings (404)")

    with pytest.raises(EndpointError):
        reduced("TopK", reflections(3), says={"embed": refuses})

    def grows(prompt: Prompt) -> str:
        return encoded([np.ones(len(prompt.messages), dtype=np.float32) for _ in prompt.messages])

    with pytest.raises(EndpointError, match="dimensions in one batch"):
        reduced("TopK", reflections(45), says={"embed": grows})


def test_topk_without_any_embedding_asks_no_aggregator() -> None:
    def fails(prompt: Prompt) -> str:
        raise TransientError("no answer")

    done = reduced("TopK", reflections(4), says={"embed": fails})
    assert done.updates == [] and done.client.of("aggregate") == []
    assert done.reduction.left_out == 4 and done.levels[-1] == ("one call", 0, 0, 4, 0)


def test_an_entry_from_a_summary_has_the_sources_that_still_back_it() -> None:
    done = reduced("Summarize", reflections(20), max_fan_in=8)
    assert [len(items_of(prompt)) for prompt in done.client.of("summary")] == [6, 7, 7]
    (last,) = done.client.of("aggregate")
    assert items_of(last) == ["s-00001", "s-00002", "s-00003"]
    for update in done.updates:
        (source,) = update.sources
        number = int(source.partition("@")[0])
        assert f"F{number:03d} " in update.text and len(update.cited) in (6, 7)
    assert done.levels == [("summary level 1", 3, 20, 20, 20), ("one call", 1, 3, 20, 20)]


def test_a_platitude_from_a_summary_has_one_source_that_replay_can_try() -> None:
    def vague(prompt: Prompt) -> str:
        return json.dumps({"entries": [{"op": "ADD", "text": "Be careful.", "reflections": ["s-00001"]}]})

    done = reduced("Summarize", reflections(6), says={"aggregate": vague})
    (update,) = done.updates
    assert update.sources == {"0@0"} and len(update.cited) == 6
    assert done.levels[-1] == ("one call", 1, 1, 6, 0)


def test_summaries_are_summarized_until_one_call_takes_them() -> None:
    done = reduced("Summarize", reflections(100), max_fan_in=4)
    assert [(level[0], level[1]) for level in done.levels] == [
        ("summary level 1", 25),
        ("summary level 2", 7),
        ("summary level 3", 2),
        ("one call", 1),
    ]
    assert all(len(update.sources) == 1 for update in done.updates)


def test_what_a_summary_leaves_out_shows_in_its_level() -> None:
    def first_only(prompt: Prompt) -> str:
        return LESSON.findall(prompt.messages[-1].content)[0]

    done = reduced("Summarize", reflections(16), max_fan_in=8, says={"summary": first_only})
    assert done.levels == [("summary level 1", 2, 16, 16, 2), ("one call", 1, 2, 16, 2)]
    assert done.reduction.left_out == 0


def test_a_lost_summary_is_counted_and_the_rest_goes_on() -> None:
    def fails(prompt: Prompt) -> str:
        if "[r-00000]" in prompt.messages[-1].content:
            raise TransientError("no answer")
        return summarized(prompt)

    done = reduced("Summarize", reflections(16), max_fan_in=8, says={"summary": fails})
    assert done.reduction.left_out == 8 and done.reduction.lost_calls == 1
    assert any("a summary was lost: Transient" in said for said in done.notes.said)
    assert len(done.updates) == 8


def test_summaries_that_cannot_share_a_call_are_left_out_and_said() -> None:
    def long(prompt: Prompt) -> str:
        return "\n".join("words about nothing " * 35 for _ in range(6))

    done = reduced("Summarize", reflections(12), max_fan_in=4, max_input_tokens=1800, says={"summary": long})
    assert len(items_of(done.client.of("aggregate")[0])) == 1
    assert done.reduction.left_out == 8
    assert any("summaries do not fit into 1800 tokens" in said for said in done.notes.said)
