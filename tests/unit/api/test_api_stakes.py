"""What a failure costs bounds a Playbook's canary: one table, for models, API server and page alike."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from combee.api.canary import Canary
from combee.api.playbook import PlaybookSpec
from combee.api.stakes import WEAKEST, FailureCost, too_weak

PAGE = (Path(__file__).resolve().parents[3] / "docs/promotion.md").read_text(encoding="utf-8")
GATEWAY = {"gateway": {"enabled": True, "upstream": {"url": "http://llm/v1"}}}
ORDER: tuple[FailureCost, ...] = ("Low", "Medium", "High")
JUDGED = {"evaluator": {"url": "http://judge/v1", "model": "judge"}}
MODES: dict[str, dict[str, Any]] = {
    "Shadow": JUDGED,
    "Replay": {**JUDGED, "replay": {"requests": {"uri": "s3://bucket/requests"}}},
    "Prometheus": {"prometheus": {"url": "http://p", "score": {"query": "$(side)", "unit": "Ratio"}}},
}

WITHOUT_TRAFFIC = ({"mode": "Manual"}, {"waived": "a demo"})


def spec(cost: str | None, mode: str, **canary: Any) -> PlaybookSpec:
    said = {} if cost is None else {"failureCost": cost}
    about = {"mode": mode, **MODES.get(mode, {}), "deadlineSeconds": 10**7, **canary}
    return PlaybookSpec.model_validate({**said, "canary": about, "delivery": GATEWAY})


def uncounted(cost: str, **canary: Any) -> Canary:
    made = PlaybookSpec.model_validate({"failureCost": cost, "canary": canary}).canary
    assert made is not None
    return made


def weakest(cost: FailureCost) -> dict[str, float]:
    least = WEAKEST[cost]
    figures = least.min_samples, least.duration_seconds, least.epsilon
    return dict(zip(("minSamples", "durationSeconds", "epsilon"), figures, strict=True))


def test_a_higher_cost_is_never_less_strict() -> None:
    for lower, higher in pairwise(ORDER):
        one, other = WEAKEST[lower], WEAKEST[higher]
        assert one.min_samples < other.min_samples and one.duration_seconds < other.duration_seconds
        assert one.epsilon > other.epsilon
    assert tuple(WEAKEST) == ORDER and WEAKEST["High"].duration_seconds == 7 * 86_400


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cost", ORDER)
def test_the_weakest_is_taken_and_anything_weaker_is_refused_by_name(cost: FailureCost, mode: str) -> None:
    least = weakest(cost)
    assert spec(cost, mode, **least).failure_cost == cost
    weaker = {
        "minSamples": least["minSamples"] - 1,
        "durationSeconds": least["durationSeconds"] - 1,
        "epsilon": least["epsilon"] * 1.01,
    }
    for name, value in weaker.items():
        if value < 0:
            continue
        with pytest.raises(ValidationError, match=rf"canary\.{name} is .* with failureCost {cost} \("):
            spec(cost, mode, **{**least, name: value})


@pytest.mark.parametrize("mode", MODES)
def test_the_defaults_of_a_canary_are_those_of_medium_which_is_the_default(mode: str) -> None:
    assert spec(None, mode).failure_cost == "Medium"


@pytest.mark.parametrize("cost", ORDER)
def test_a_person_and_a_waiver_have_no_samples_to_count(cost: str) -> None:
    for without in WITHOUT_TRAFFIC:
        uncounted(cost, **without, minSamples=1, durationSeconds=0)


@pytest.mark.parametrize("without", WITHOUT_TRAFFIC, ids=["Manual", "waived"])
@pytest.mark.parametrize("cost", ORDER)
def test_the_watch_after_a_person_or_a_waiver_goes_by_no_larger_epsilon_than_a_canary(
    cost: FailureCost, without: dict[str, str]
) -> None:
    largest = WEAKEST[cost].epsilon
    assert uncounted(cost, **without).epsilon <= largest
    assert uncounted(cost, **without, epsilon=largest).epsilon == largest
    with pytest.raises(ValidationError, match=re.escape(too_weak("epsilon", cost))):
        uncounted(cost, **without, epsilon=largest * 1.01)


@given(
    cost=st.sampled_from(ORDER),
    samples=st.integers(1, 2_000),
    seconds=st.integers(0, 10**6),
    epsilon=st.floats(0, 0.999),
)
def test_what_is_taken_is_at_least_as_strict_as_the_table(
    cost: FailureCost, samples: int, seconds: int, epsilon: float
) -> None:
    least = WEAKEST[cost]
    strict = samples >= least.min_samples and seconds >= least.duration_seconds and epsilon <= least.epsilon
    try:
        spec(cost, "Shadow", minSamples=samples, durationSeconds=seconds, epsilon=epsilon)
    except ValidationError:
        assert not strict
    else:
        assert strict


def test_the_page_has_the_table() -> None:
    rows = re.findall(r"^\| `(Low|Medium|High)` \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) \|", PAGE, re.MULTILINE)
    told = {row[0]: (*(int(number.replace(",", "")) for number in row[1:3]), float(row[3])) for row in rows}
    assert told == {
        cost: (least.min_samples, least.duration_seconds, least.epsilon) for cost, least in WEAKEST.items()
    }
