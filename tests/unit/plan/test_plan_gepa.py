"""What is planned for GEPA: how it aggregates, what it asks, what a preview counts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from combee.algo.ranges import Range
from combee.api.method_gepa import NO_CAP
from combee.api.run import RunSpec
from combee.plan.decide import iteration_plan
from combee.plan.preview import DataShape, Preview, preview
from combee.plan.state import DataFacts, RunState

ENDPOINT = {"endpoint": {"url": "http://h/v1", "model": "m"}}
FACTS = DataFacts(100, 50, 50, 0, {})


def spec(options: dict[str, Any] | None = None, size: int = 100, **aggregation: Any) -> RunSpec:
    return RunSpec.model_validate(
        {
            "task": {
                "type": "Formula",
                "data": {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}},
            },
            "method": {"type": "GEPA", **({"gepa": options} if options is not None else {})},
            "models": dict.fromkeys(("task", "proposer", "embedder"), ENDPOINT),
            "aggregation": aggregation,
            "batching": {"mode": "Fixed", "size": size, "reason": "test"},
        }
    )


def shown(one: RunSpec, components: int = 1) -> Preview:
    return preview(one, DataShape(FACTS, 300.0, components=components))


def test_a_plan_has_gepas_budget_and_no_reflection_rounds() -> None:
    plan = iteration_plan(spec({"renderTokenBudget": 500}), RunState(phase="Learning", facts=FACTS))
    assert (plan.render_token_budget, plan.reflection_rounds) == (500, 1)
    assert (plan.redundancy, plan.copies, plan.max_fan_in, plan.subgroups) == ("Duplicate", 2, 32, "")
    stated = iteration_plan(spec(redundancy={"mode": "Retransmit"}), RunState(phase="Learning", facts=FACTS))
    assert (stated.redundancy, stated.max_rounds) == ("Retransmit", 4)


def test_paper_compat_is_gepas_two_levels_without_caps() -> None:
    stated = spec({"paperCompat": True}, maxFanIn=4)
    plan = iteration_plan(stated, RunState(phase="Learning", facts=FACTS))
    assert (plan.redundancy, plan.copies, plan.subgroups) == ("Duplicate", 2, "Sqrt")
    assert (plan.max_fan_in, plan.max_input_tokens) == (NO_CAP, NO_CAP)
    batch = shown(stated).batches[0]
    assert (batch.leaves, batch.leaf_inputs, batch.rounds) == (10, 20, Range(1, 1))


@pytest.mark.parametrize(
    ("options", "aggregation", "words"),
    [
        ({}, {"verify": "Support"}, "tries out every proposal"),
        ({"paperCompat": True}, {"strategy": "Naive"}, "not gepa's"),
        ({"paperCompat": True}, {"merge": "Model"}, "not gepa's"),
        ({"paperCompat": True}, {"redundancy": {"mode": "Retransmit"}}, "not gepa's"),
        ({"renderTokenBudget": 12001}, {}, "12001 is over half of aggregation.maxInputTokens 24000"),
        ({}, {"maxInputTokens": 15_999}, "over half of aggregation.maxInputTokens 15999"),
        ({"frontier": "Objective"}, {}, "type Formula has none"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: dict[str, Any], aggregation: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        spec(options, **aggregation)


def test_a_preview_counts_no_reflections_and_what_it_takes_to_accept() -> None:
    found = shown(spec())
    assert found.reflections == Range(0, 0)
    # Two children asked the batch of 100; select of 50 for the start, both, and a merge.
    assert found.batches[0].replays == Range(0, 200 + 4 * 50)
    assert found.rollouts.high - found.rollouts.low >= 400
    # Two copies of 100 records in leaves of 8, and the one last call.
    assert found.batches[0].aggregator_calls == Range(25, 26)


def test_several_in_flight_share_the_batch_and_each_is_scored() -> None:
    several = spec({"variantsInFlight": 4})
    batch = shown(several).batches[0]
    assert batch.replays == Range(0, 200 + (1 + 2 * 4 + 1) * 50)
    # One variant: 25 leaves and a last call; four: two copies of 25 records each, so 7 leaves and a last call
    # each.
    assert batch.aggregator_calls == Range(25, 4 * (7 + 1))
    plan = iteration_plan(several, RunState(phase="Learning", facts=FACTS))
    assert (plan.variants, plan.redundancy) == (4, "Duplicate")
    few = iteration_plan(spec({"variantsInFlight": 4}, size=3), RunState(phase="Learning", facts=FACTS))
    assert few.variants == 3


def test_one_variant_in_flight_is_the_manifest_that_it_was() -> None:
    assert spec({"variantsInFlight": 1}).dump() == spec({}).dump()
    assert "variantsInFlight" not in spec({}).dump()["method"]["gepa"]
    stated = spec({"variantsInFlight": 2}).dump()
    assert stated["method"]["gepa"]["variantsInFlight"] == 2
    assert RunSpec.model_validate(stated).method.variants_in_flight == 2


def test_components_are_retried_and_reduced_one_by_one() -> None:
    found = shown(spec(), components=3)
    assert found.batches[0].replays.high == 2 * 100 * (1 + 3) + 4 * 50
    assert found.batches[0].aggregator_calls == Range(3 * 25, 3 * 26)
