"""The gepa package's own adapters, unchanged: what they ask, what they score, and what they say of it."""

from __future__ import annotations

import json

from adapter_bench import Bench, Drive, Upstream

from combee.records import Shown

ROW = {"input": "6 * 7?", "answer": "42", "additional_context": {"hint": "multiply"}}
SEED = Shown("", (("system_prompt", "Answer with a figure."),))


def test_the_default_adapter_is_given_the_model(drive: Drive, upstream: Upstream) -> None:
    async def work(bench: Bench) -> None:
        upstream.said = "It is 42."
        right = await bench.run(shown=SEED, **ROW)
        assert (right.score, right.answer) == (1.0, "It is 42.")
        ((name, record),) = right.records or ()
        assert name == "system_prompt"
        assert record.startswith(
            "Inputs: 6 * 7?\nGenerated Outputs: It is 42.\nFeedback: The generated response is"
        )
        upstream.said = "It is 41."
        wrong = await bench.run(shown=SEED, ordinal=1, **ROW)
        assert wrong.score == 0.0
        assert "hint: multiply" in dict(wrong.records or ())["system_prompt"]

    drive("gepa.adapters.default_adapter.default_adapter:DefaultAdapter", work)
    assert [one["messages"] for one in upstream.bodies] == [
        [
            {"role": "system", "content": "Answer with a figure."},
            {"role": "user", "content": "6 * 7?"},
        ]
    ] * 2


def test_one_that_asks_by_itself_finds_the_runs_model(drive: Drive, upstream: Upstream) -> None:
    upstream.said = json.dumps({"final_answer": "42", "solution_pad": "6 times 7"})

    async def work(bench: Bench) -> None:
        found = await bench.run(shown=SEED, **ROW)
        assert found.score == 1.0
        assert found.answer == "Assistant's Solution: 6 times 7\nFinal Answer: 42"
        assert "The final answer is: 42." in dict(found.records or ())["system_prompt"]
        assert bench.asker.usage()["task"].prompt_tokens == 7
        assert bench.guard.tokens == 10

    drive("adapter_doubles:maths", work)
    assert [one["model"] for one in upstream.bodies] == ["the-model"]


def test_objectives_are_taken_over(drive: Drive) -> None:
    async def work(bench: Bench) -> None:
        code = Shown("", (("code", "sort"),))
        found = await bench.run(shown=code, wants="sort")
        assert (found.score, found.objectives) == (1.0, (("short", 0.25),))
        assert "wants sort" in dict(found.records or ())["code"]

    drive("adapter_doubles:anything", work)
