"""What is planned for MIPRO: what it refuses, how it aggregates, what a preview counts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from combee.algo.ranges import Range
from combee.api.run import RunSpec
from combee.methods.mipro import MiproMethod, Terms, terms_of
from combee.methods.registry import method_of
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
            "method": {"type": "MIPRO", **({"mipro": options} if options is not None else {})},
            "models": dict.fromkeys(("task", "proposer", "embedder"), ENDPOINT),
            "aggregation": aggregation,
            "batching": {"mode": "Fixed", "size": 100, "reason": "test"},
            "seed": 7,
        }
    )


def test_a_run_has_the_options_that_it_states() -> None:
    assert method_of(spec()) == MiproMethod(Terms(seed=7))
    options = {"renderTokenBudget": 500, "proposals": 2, "demonstrations": 4, "probes": 20, "minibatch": 10}
    stated = spec(options)
    assert method_of(stated) == MiproMethod(Terms(7, 500, False, 2, 4, 20, 10))
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
def test_where_one_call_sees_all_it_proposes_at_once(aggregation: dict[str, Any], whole: bool) -> None:
    assert terms_of(spec(**aggregation)).whole_texts is whole


@pytest.mark.parametrize(
    ("options", "aggregation", "words"),
    [
        ({}, {"verify": "Off"}, "Off with method MIPRO, which tries out every proposal"),
        ({"renderTokenBudget": 12001}, {}, "mipro.renderTokenBudget 12001 is over half"),
        ({"proposals": 7}, {}, "less than or equal to 6"),
        ({"demonstrations": 17}, {}, "less than or equal to 16"),
        ({"probes": 0}, {}, "greater than or equal to 1"),
        ({"minibatch": 0}, {}, "greater than or equal to 1"),
        ({"momentum": 1}, {}, "Extra inputs are not permitted"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: dict[str, Any], aggregation: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        spec(options, **aggregation)


def test_an_adapter_has_no_place_for_demonstrations() -> None:
    document = spec({"demonstrations": 2}).dump()
    adapter = {"factory": "module:Class"}
    document["task"] |= {"type": "Custom", "custom": {"adapter": adapter}}
    with pytest.raises(ValidationError, match="demonstrations with an adapter, which has no place for them"):
        RunSpec.model_validate(document)
    document["method"]["mipro"]["demonstrations"] = 0
    assert RunSpec.model_validate(document).method.type == "MIPRO"


def test_a_record_that_was_dropped_is_sent_again_where_there_are_many() -> None:
    plan = iteration_plan(spec(), RunState(phase="Learning", facts=FACTS))
    assert (plan.redundancy, plan.max_rounds, plan.reflection_rounds) == ("Retransmit", 4, 1)


def test_a_preview_counts_each_probe_the_best_on_select_and_a_call_a_proposal() -> None:
    found = preview(spec(), DataShape(FACTS, 300.0, components=1))
    assert found.reflections == Range(0, 0)
    assert found.batches[0].replays == Range(0, 10 * 35 + (1 + 2) * 50)
    few = preview(spec({"proposals": 1, "minibatch": 100}), DataShape(FACTS, 300.0, components=1)).batches[0]
    assert few.replays == Range(0, 10 * 50 + (1 + 2) * 50)
    assert found.batches[0].aggregator_calls.high == few.aggregator_calls.high + 2
