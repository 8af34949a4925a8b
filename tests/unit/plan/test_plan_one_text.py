"""What is planned for TextGrad and MIPRO: what they refuse, how they aggregate, what a preview counts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from combee.algo.ranges import Range
from combee.api.run import RunSpec
from combee.methods import mipro, textgrad
from combee.methods.registry import method_of
from combee.plan.decide import iteration_plan
from combee.plan.preview import DataShape, preview
from combee.plan.state import DataFacts, RunState

ENDPOINT = {"endpoint": {"url": "http://h/v1", "model": "m"}}
FACTS = DataFacts(100, 50, 50, 0, {})
METHODS = pytest.mark.parametrize("method", ["TextGrad", "MIPRO"])


def spec(method: str, options: dict[str, Any] | None = None, **aggregation: Any) -> RunSpec:
    return RunSpec.model_validate(
        {
            "task": {
                "type": "Formula",
                "data": {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}},
            },
            "method": {"type": method, **({method.lower(): options} if options is not None else {})},
            "models": dict.fromkeys(("task", "proposer", "embedder"), ENDPOINT),
            "aggregation": aggregation,
            "batching": {"mode": "Fixed", "size": 100, "reason": "test"},
            "seed": 7,
        }
    )


@pytest.mark.parametrize(
    ("method", "options", "aggregation", "plain", "stated"),
    [
        (
            "TextGrad",
            {"renderTokenBudget": 500, "momentum": 3, "constraints": ["Be brief."]},
            {"maxInputTokens": 20_000},
            textgrad.TextGradMethod(textgrad.Terms(seed=7)),
            textgrad.TextGradMethod(textgrad.Terms(7, 500, False, 3, ("Be brief.",), 20_000)),
        ),
        (
            "MIPRO",
            {"renderTokenBudget": 500, "proposals": 2, "demonstrations": 4, "probes": 20, "minibatch": 10},
            {"maxInputTokens": 20_000},
            mipro.MiproMethod(mipro.Terms(seed=7)),
            mipro.MiproMethod(mipro.Terms(7, 500, False, 2, 4, 20, 10, 20_000)),
        ),
    ],
    ids=["TextGrad", "MIPRO"],
)
def test_a_run_has_the_options_that_it_states(
    method: str, options: dict[str, Any], aggregation: dict[str, Any], plain: object, stated: object
) -> None:
    assert method_of(spec(method)) == plain
    given = spec(method, options, **aggregation)
    assert method_of(given) == stated
    assert RunSpec.model_validate(given.dump()) == given


@METHODS
@pytest.mark.parametrize(
    ("aggregation", "whole"),
    [
        ({}, False),
        ({"strategy": "Sequential"}, False),
        ({"strategy": "Naive"}, True),
        ({"merge": "Model"}, True),
    ],
)
def test_where_one_call_sees_all_it_writes_the_text_itself(
    method: str, aggregation: dict[str, Any], whole: bool
) -> None:
    made = method_of(spec(method, **aggregation))
    assert isinstance(made, textgrad.TextGradMethod | mipro.MiproMethod)
    assert made.terms.whole_texts is whole


@pytest.mark.parametrize(
    ("method", "options", "aggregation", "words"),
    [
        ("TextGrad", {}, {"verify": "Off"}, "Off with method TextGrad, which tries out every proposal"),
        ("TextGrad", {"renderTokenBudget": 12001}, {}, "textgrad.renderTokenBudget 12001 is over half"),
        ("TextGrad", {"momentum": 17}, {}, "less than or equal to 16"),
        ("TextGrad", {"constraints": [""]}, {}, "at least 1 character"),
        ("TextGrad", {"constraints": ["Be brief."] * 17}, {}, "at most 16 items"),
        (
            "TextGrad",
            {"renderTokenBudget": 1000, "constraints": ["x" * 500] * 16},
            {"maxInputTokens": 3999},
            "have 2000 tokens, which with renderTokenBudget 1000 leave no room in aggregation.maxInputTokens",
        ),
        ("TextGrad", {"frontier": "Instance"}, {}, "Extra inputs are not permitted"),
        ("MIPRO", {}, {"verify": "Off"}, "Off with method MIPRO, which tries out every proposal"),
        ("MIPRO", {"renderTokenBudget": 12001}, {}, "mipro.renderTokenBudget 12001 is over half"),
        ("MIPRO", {"proposals": 7}, {}, "less than or equal to 6"),
        ("MIPRO", {"demonstrations": 17}, {}, "less than or equal to 16"),
        ("MIPRO", {"probes": 0}, {}, "greater than or equal to 1"),
        ("MIPRO", {"minibatch": 0}, {}, "greater than or equal to 1"),
        ("MIPRO", {"momentum": 1}, {}, "Extra inputs are not permitted"),
    ],
)
def test_what_makes_no_sense_is_refused(
    method: str, options: dict[str, Any], aggregation: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        spec(method, options, **aggregation)


def test_an_adapter_has_no_place_for_demonstrations() -> None:
    document = spec("MIPRO", {"demonstrations": 2}).dump()
    adapter = {"factory": "module:Class"}
    document["task"] |= {"type": "Custom", "custom": {"adapter": adapter}}
    with pytest.raises(ValidationError, match="demonstrations with an adapter, which has no place for them"):
        RunSpec.model_validate(document)
    document["method"]["mipro"]["demonstrations"] = 0
    assert RunSpec.model_validate(document).method.type == "MIPRO"


@METHODS
def test_a_reflection_that_was_dropped_is_sent_again_where_there_are_many(method: str) -> None:
    plan = iteration_plan(spec(method), RunState(phase="Learning", facts=FACTS))
    assert (plan.redundancy, plan.max_rounds, plan.reflection_rounds) == ("Retransmit", 4, 1)


def test_a_preview_counts_a_call_about_each_attempt_one_rewrite_and_its_scores() -> None:
    found = preview(spec("TextGrad"), DataShape(FACTS, 300.0, components=1))
    assert found.reflections == Range(100, 100)
    assert found.batches[0].replays == Range(0, 2 * 50)
    several = preview(spec("TextGrad"), DataShape(FACTS, 300.0, components=3)).batches[0]
    one = found.batches[0]
    assert several.aggregator_calls.low == 3 * one.aggregator_calls.low


def test_a_preview_counts_each_probe_the_best_on_select_and_a_call_a_proposal() -> None:
    found = preview(spec("MIPRO"), DataShape(FACTS, 300.0, components=1))
    assert found.reflections == Range(0, 0)
    assert found.batches[0].replays == Range(0, 10 * 35 + (1 + 2) * 50)
    few = preview(
        spec("MIPRO", {"proposals": 1, "minibatch": 100}), DataShape(FACTS, 300.0, components=1)
    ).batches[0]
    assert few.replays == Range(0, 10 * 50 + (1 + 2) * 50)
    assert found.batches[0].aggregator_calls.high == few.aggregator_calls.high + 2
