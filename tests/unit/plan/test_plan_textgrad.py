"""What is planned for TextGrad: what it refuses, how it aggregates, what a preview counts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from combee.algo.ranges import Range
from combee.api.run import RunSpec
from combee.methods.registry import method_of
from combee.methods.textgrad import Terms, TextGradMethod, terms_of
from combee.plan.decide import iteration_plan
from combee.plan.preview import DataShape, preview
from combee.plan.state import DataFacts, RunState

ENDPOINT = {"endpoint": {"url": "http://h/v1", "model": "m"}}
FACTS = DataFacts(100, 50, 50, 0, {})


def spec(options: dict[str, Any] | None = None, **aggregation: Any) -> RunSpec:
    return RunSpec.model_validate(
        {
            "task": {
                "type": "Formula",
                "data": {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}},
            },
            "method": {"type": "TextGrad", **({"textgrad": options} if options is not None else {})},
            "models": dict.fromkeys(("task", "proposer", "embedder"), ENDPOINT),
            "aggregation": aggregation,
            "batching": {"mode": "Fixed", "size": 100, "reason": "test"},
            "seed": 7,
        }
    )


def test_a_run_has_the_options_that_it_states() -> None:
    assert method_of(spec()) == TextGradMethod(Terms(seed=7))
    stated = spec(
        {"renderTokenBudget": 500, "momentum": 3, "constraints": ["Be brief."]}, maxInputTokens=20_000
    )
    assert method_of(stated) == TextGradMethod(Terms(7, 500, False, 3, ("Be brief.",), 20_000))
    assert RunSpec.model_validate(stated.dump()) == stated


@pytest.mark.parametrize(
    ("aggregation", "whole"),
    [
        ({}, False),
        ({"strategy": "Sequential"}, False),
        ({"strategy": "Naive"}, True),
        ({"merge": "Model"}, True),
    ],
)
def test_one_call_over_all_criticism_is_the_step_itself(aggregation: dict[str, Any], whole: bool) -> None:
    assert terms_of(spec(**aggregation)).whole_texts is whole


@pytest.mark.parametrize(
    ("options", "aggregation", "words"),
    [
        ({}, {"verify": "Off"}, "Off with method TextGrad, which tries out every proposal"),
        ({"renderTokenBudget": 12001}, {}, "textgrad.renderTokenBudget 12001 is over half"),
        ({"momentum": 17}, {}, "less than or equal to 16"),
        ({"constraints": [""]}, {}, "at least 1 character"),
        ({"constraints": ["Be brief."] * 17}, {}, "at most 16 items"),
        (
            {"renderTokenBudget": 1000, "constraints": ["x" * 500] * 16},
            {"maxInputTokens": 3999},
            "have 2000 tokens, which with renderTokenBudget 1000 leave no room in aggregation.maxInputTokens",
        ),
        ({"frontier": "Instance"}, {}, "Extra inputs are not permitted"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: dict[str, Any], aggregation: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        spec(options, **aggregation)


def test_a_reflection_that_was_dropped_is_sent_again_where_there_are_many() -> None:
    plan = iteration_plan(spec(), RunState(phase="Learning", facts=FACTS))
    assert (plan.redundancy, plan.max_rounds, plan.reflection_rounds) == ("Retransmit", 4, 1)


def test_a_preview_counts_a_call_about_each_attempt_one_rewrite_and_its_scores() -> None:
    found = preview(spec(), DataShape(FACTS, 300.0, components=1))
    assert found.reflections == Range(100, 100)
    assert found.batches[0].replays == Range(0, 2 * 50)
    several = preview(spec(), DataShape(FACTS, 300.0, components=3)).batches[0]
    one = found.batches[0]
    assert several.aggregator_calls.low == 3 * one.aggregator_calls.low
