"""What a run must say before it starts, each question alone and all at once, and what is never asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import admission_cases
from combee.api.conditions import MAX_MESSAGE, Reason
from combee.api.digests import canonical
from combee.api.discipline import (
    TEMPLATE,
    advice,
    curve_is_from_here,
    escalations,
    hardware,
    lacking,
    missing_inputs,
    refusal,
    waivers,
)
from combee.api.run import RunSpec

ENDPOINT = {"endpoint": {"url": "https://llm/v1", "model": "m"}}
WHOLE: dict[str, Any] = {
    "task": {
        "type": "Formula",
        "data": {
            "train": {"uri": "s3://data/train.jsonl"},
            "heldOut": {"uri": "s3://data/heldout.jsonl", "steward": "data-platform", "usedForTuning": False},
        },
        "failureCost": "A wrong figure",
    },
    "method": {"type": "ACE"},
    "engines": [
        {"name": "main", "hardware": "3 x 2 GPUs", "vllm": {"model": "m", "gpusPerReplica": 2, "replicas": 3}}
    ],
    "models": {"task": {"engineRef": {"name": "main"}}, "proposer": {"engineRef": {"name": "main"}}},
    "serialBaseline": {"method": "ACE", "waived": "a test"},
    "budget": {"rollouts": 1000},
}
CURVE = {
    "method": "ACE",
    "curve": [{"examples": 1, "seconds": 1, "score": 0.5}],
    "source": "the paper, figure 3",
    "hardware": "3 X 2  gpus",
}


def made(values: dict[str, Any] | None = None, removed: str | None = None) -> RunSpec:
    return RunSpec.model_validate(admission_cases.changed(WHOLE, values or {}, removed))


def asked(spec: RunSpec) -> list[str]:
    return [question.path for question in missing_inputs(spec)]


def test_a_run_that_says_everything_is_asked_nothing() -> None:
    assert (missing_inputs(made()), escalations(made()), lacking(made()), advice(made())) == ((), (), "", ())
    assert refusal(made(), "Strict") is None
    assert waivers(made()) == ("the serial baseline is waived, so no speed-up is shown: a test",)


ONE = {
    "steward": ({}, "task.data.heldOut.steward", "task.data.heldOut.steward"),
    "tuning": ({}, "task.data.heldOut.usedForTuning", "task.data.heldOut.usedForTuning"),
    "failure cost": ({}, "task.failureCost", "task.failureCost"),
    "no baseline": ({}, "serialBaseline", "serialBaseline"),
    "a baseline that says nothing": ({"serialBaseline": {"method": "ACE"}}, None, "serialBaseline"),
    "whose curve": ({"serialBaseline": {**CURVE, "source": None}}, None, "serialBaseline.source"),
    "where the curve was measured": (
        {"serialBaseline": {**CURVE, "hardware": None}},
        None,
        "serialBaseline.hardware",
    ),
    "no budget": ({}, "budget", "budget"),
    "which limit binds": ({"budget": {"rollouts": 1, "tokens": 1}}, None, "budget.primary"),
    "a limit that is not there binds": (
        {"budget": {"gpuSeconds": 1, "tokens": 1, "primary": "rollouts"}},
        None,
        "budget.primary",
    ),
    "an endpoint's hardware": ({"models.task": ENDPOINT}, None, "models.task.endpoint.hardware"),
    "the proposer's": ({"models.proposer": ENDPOINT}, None, "models.proposer.endpoint.hardware"),
    "one address, asked once": (
        {"models": {"task": ENDPOINT, "proposer": {"endpoint": {"url": "https://llm/v1/", "model": "n"}}}},
        None,
        "models.task.endpoint.hardware",
    ),
    "a server that is there already": (
        {"engines": [{"name": "main", "ref": {"kind": "LLMInferenceService", "name": "qwen"}}]},
        None,
        "engines[0].hardware",
    ),
}


@pytest.mark.parametrize(("values", "removed", "path"), ONE.values(), ids=ONE)
def test_what_is_not_said_is_asked_and_nothing_else(
    values: dict[str, Any], removed: str | None, path: str
) -> None:
    spec = made(values, removed)
    assert asked(spec) == [path]
    (question,) = missing_inputs(spec)
    assert advice(spec) == (f"not stated: spec.{path}: {question.asks}",)
    assert advice(spec, TEMPLATE)[0].startswith(f"not stated: spec.learn.template.{path}: ")
    reason, error = refusal(spec, "Strict") or (None, None)
    assert reason is Reason.MISSING_INPUT and f"spec.{path} ({question.asks})" in str(error)


def at_one_address(task: str, proposer: str, slash: str = "") -> dict[str, Any]:
    """Two roles of one address, each with its description of the hardware there."""
    return {
        "models": {
            "task": {"endpoint": {"url": "https://llm/v1", "model": "m", "hardware": task}},
            "proposer": {"endpoint": {"url": f"https://llm/v1{slash}", "model": "n", "hardware": proposer}},
        }
    }


NOT_ASKED: dict[str, dict[str, Any]] = {
    "true is an answer": {"task.data.heldOut.usedForTuning": True},
    "a baseline that is measured": {"serialBaseline": {"method": "ACE", "measure": True}},
    "a curve with its origin": {"serialBaseline": CURVE},
    "a serial run is a serial baseline": {
        "serialBaseline": None,
        "aggregation": {"strategy": "Sequential"},
    },
    "one limit binds": {"budget": {"money": 5}, "prices": {"currency": "EUR", "perGpuHour": 2}},
    "of two the stated one": {"budget": {"rollouts": 9, "tokens": 9, "primary": "tokens"}},
    "one address, said once": {
        "models": {
            "task": ENDPOINT,
            "proposer": {"endpoint": {"url": "https://llm/v1", "model": "m", "hardware": "8x H100"}},
        }
    },
    "one address, said twice in the same words": at_one_address("8x H200", "8X  h200"),
    "traces score nothing": {
        "task": {
            "type": "Traces",
            "data": {"train": {"uri": "s3://data/traces.jsonl"}},
            "failureCost": "A wrong figure",
        },
        "serialBaseline": None,
        "budget": {"tokens": 9},
    },
}


@pytest.mark.parametrize("values", NOT_ASKED.values(), ids=NOT_ASKED)
def test_what_can_be_derived_is_not_asked(values: dict[str, Any]) -> None:
    assert lacking(made(values)) == ""


def test_rollouts_are_no_limit_of_a_run_that_rolls_nothing_out() -> None:
    traces = {**NOT_ASKED["traces score nothing"], "budget": {"rollouts": 9}}
    (question,) = missing_inputs(made(traces))
    assert (question.path, "rollouts" in question.asks) == ("budget", False)


FROM_TRAIN = (
    "spec.task.data.heldOut (the rows of train: a gain on rows that were learned from does not last; give "
    "others)"
)
FROM_ELSEWHERE = (
    "spec.serialBaseline.hardware (8x H200, and this run is on 3 x 2 GPUs: nothing is compared across "
    "hardware; measure the baseline here)"
)
TWO_WORDS = (
    "spec.models.proposer.endpoint.hardware (8x H100, and models.task.endpoint.hardware says 8x H200 of the "
    "same address: one of them is wrong)"
)


UNSOUND: dict[str, tuple[dict[str, Any], str]] = {
    "train as heldOut": (
        {"task.data.train": {"uri": "s3://data/heldout.jsonl", "secretRef": {"name": "s3"}}},
        FROM_TRAIN,
    ),
    "two descriptions of one address": (at_one_address("8x H200", "8x H100", "/"), TWO_WORDS),
    "the paper's numbers": ({"serialBaseline": {**CURVE, "hardware": "8x H200"}}, FROM_ELSEWHERE),
}


@pytest.mark.parametrize(("values", "message"), UNSOUND.values(), ids=UNSOUND)
def test_what_no_statement_makes_good_is_refused(values: dict[str, Any], message: str) -> None:
    reason, error = refusal(made(values), "Strict") or (None, None)
    end = "Change it, or set spec.discipline: Advisory to be warned instead"
    assert (reason, str(error)) == (Reason.UNSOUND, f"discipline Strict: not sound: {message}. {end}")


def test_gpus_that_are_only_counted_are_no_objection_to_a_curve() -> None:
    """They may be those of the curve: a cluster looks at its nodes, or asks which they are."""
    counted = {"engines": [{"name": "main", "vllm": {"model": "m", "gpusPerReplica": 2, "replicas": 3}}]}
    spec = made({**counted, "serialBaseline": {**CURVE, "hardware": "6x H100"}})
    assert refusal(spec, "Strict") is None and curve_is_from_here(spec) is None
    (question,) = missing_inputs(spec, {"main": "Two kinds fit."})
    assert question.path == "engines[0].hardware" and question.asks.endswith(" Two kinds fit.")


def test_a_question_comes_before_what_is_unsound_and_both_are_in_one_message() -> None:
    spec = made(UNSOUND["train as heldOut"][0], "task.failureCost")
    reason, error = refusal(spec, "Strict") or (None, None)
    assert reason is Reason.MISSING_INPUT
    assert "not stated: spec.task.failureCost (" in str(error)
    assert "; not sound: spec.task.data.heldOut (" in str(error)


@pytest.mark.parametrize(
    ("stated", "default", "refused"),
    [
        (None, "Strict", True),
        (None, "Advisory", False),
        ("Strict", "Advisory", True),
        ("Advisory", "Strict", False),
    ],
)
def test_a_run_says_its_discipline_and_else_the_installation_does(
    stated: str | None, default: Any, refused: bool
) -> None:
    assert (refusal(made({"discipline": stated}, "budget"), default) is not None) is refused


def test_hardware_is_told_with_whether_it_is_shared() -> None:
    assert hardware(made()) == "3 x 2 GPUs, shared by task model and proposer"
    apart = {"models.proposer": {"endpoint": {**ENDPOINT["endpoint"], "hardware": "theirs"}}}
    assert hardware(made(apart)) == "task model on 3 x 2 GPUs; proposer on theirs"
    assert hardware(made({"models": {"task": ENDPOINT, "proposer": ENDPOINT}})) == (
        "not stated, shared by task model and proposer"
    )
    counted = {"engines": [{"name": "main", "vllm": {"model": "m", "gpusPerReplica": 2, "replicas": 3}}]}
    assert hardware(made(counted)).startswith("3 x 2 GPUs, ")
    stated = {"engines": [{"name": "main", "hardware": "6x H100", "vllm": {"model": "m"}}]}
    assert hardware(made(stated)).startswith("6x H100, ")


SAID = (
    "task.data.heldOut.steward",
    "task.data.heldOut.usedForTuning",
    "task.failureCost",
    "serialBaseline",
    "budget",
)


@given(st.sets(st.sampled_from(SAID)), st.booleans())
def test_each_answer_ends_its_question_and_no_other(given_: set[str], endpoint: bool) -> None:
    """Questions are independent: what is asked is exactly what was left out, in one order."""
    manifest = WHOLE
    for path in SAID:
        if path not in given_:
            manifest = admission_cases.changed(manifest, {}, path)
    values = {"models": {"task": ENDPOINT, "proposer": ENDPOINT}} if endpoint else {}
    spec = RunSpec.model_validate(admission_cases.changed(manifest, values))
    hardware_asked = {"models.task.endpoint.hardware"} if endpoint else set()
    assert set(asked(spec)) == (set(SAID) - given_) | hardware_asked
    assert len(asked(spec)) == len(set(asked(spec)))
    assert (refusal(spec, "Strict") is None) is (not asked(spec))
    # A condition has room for all of them.
    assert len(f"the plan is good; {lacking(spec)}".encode()) < MAX_MESSAGE
    refused = refusal(spec, "Strict")
    assert refused is None or len(str(refused[1]).encode()) < MAX_MESSAGE


def test_all_questions_and_both_objections_fit_in_a_condition() -> None:
    values = {
        "models": {
            "task": {"endpoint": {"url": "https://a/v1", "model": "m"}},
            "proposer": {"endpoint": {"url": "https://b/v1", "model": "m"}},
        },
        "task": {
            "type": "Formula",
            "data": {name: {"uri": "s3://data/train.jsonl"} for name in ("train", "heldOut")},
        },
        "serialBaseline": None,
        "budget": {},
    }
    refused = refusal(made(values), "Strict")
    assert refused is not None and len(missing_inputs(made(values))) == 7
    assert len(str(refused[1]).encode()) < MAX_MESSAGE


def test_an_answer_that_was_a_default_makes_no_other_run_of_a_spec() -> None:
    """Earlier releases took usedForTuning for false and primary for rollouts, and put that into digests."""
    silent = made({"budget": {"rollouts": 9}}, "task.data.heldOut.usedForTuning")
    said = made({"budget": {"rollouts": 9, "primary": "rollouts"}, "task.data.heldOut.usedForTuning": False})
    assert canonical(silent) == canonical(said) == said.dump()
    assert silent.dump() != said.dump()
    tuned = made({"task.data.heldOut.usedForTuning": True})
    assert canonical(tuned)["task"]["data"]["heldOut"]["usedForTuning"] is True
