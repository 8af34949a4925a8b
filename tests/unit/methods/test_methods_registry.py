"""Which method a run has, with which options, and how its published texts are read."""

from __future__ import annotations

from typing import Any

import pytest

from combee.api.run import RunSpec
from combee.errors import BugError
from combee.methods import registry
from combee.methods.gepa import GepaMethod, Terms, terms_of
from combee.methods.gepa.templates import WHOLE_TEXTS, Templates
from combee.methods.gepa.verification import Rules
from combee.methods.registry import diff_texts, method_of, served_text

ENDPOINT = {"endpoint": {"url": "http://h/v1", "model": "m"}}
DATA = {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}}


def spec(method: dict[str, Any], **aggregation: Any) -> RunSpec:
    return RunSpec.model_validate(
        {
            "task": {"type": "FiNER", "data": DATA},
            "method": method,
            "models": dict.fromkeys(("task", "proposer", "embedder"), ENDPOINT),
            "aggregation": aggregation,
            "seed": 7,
        }
    )


def gepa(**options: Any) -> dict[str, Any]:
    return {"type": "GEPA", "gepa": options}


def test_a_run_has_the_method_it_names_with_its_options() -> None:
    ace, at_once = (method_of(spec({"type": "ACE", "ace": stated})) for stated in ({}, {"reasoning": False}))
    assert ace.name == at_once.name == "ACE"
    asked = [one.rollout_prompt("Solve.", "", "A").messages[0].content for one in (ace, at_once)]
    assert ["your steps" in text for text in asked] == [True, False]
    assert method_of(spec({"type": "GEPA"})) == GepaMethod(Terms(seed=7))
    stated = spec(
        gepa(renderTokenBudget=500, frontier="Hybrid", merges=0, reduceTemplate="<curr_param> <side_info>")
    )
    assert method_of(stated) == GepaMethod(
        Terms(
            seed=7,
            budget_tokens=500,
            rules=Rules("Hybrid", 0),
            reduce_template="<curr_param> <side_info>",
        )
    )
    assert terms_of(stated).asked_with == Templates(Templates().map, "<curr_param> <side_info>")


@pytest.mark.parametrize(
    ("options", "aggregation", "whole"),
    [
        ({}, {}, False),
        ({}, {"strategy": "Sequential"}, False),
        ({}, {"strategy": "Naive"}, True),
        ({}, {"strategy": "TopK"}, True),
        ({}, {"strategy": "Summarize"}, True),
        ({}, {"merge": "Model"}, True),
        ({"paperCompat": True}, {}, True),
    ],
)
def test_where_no_call_follows_the_lessons_whole_texts_are_proposed(
    options: dict[str, Any], aggregation: dict[str, Any], whole: bool
) -> None:
    found = terms_of(spec(gepa(**options), **aggregation))
    assert found.whole_texts is whole
    assert found.asked_with == (WHOLE_TEXTS if whole else Templates())


def test_a_text_is_served_as_the_method_that_made_it_says() -> None:
    text = "Round late.\n- [r-1] Divide first."
    assert served_text(text) == served_text(text, "ACE") != text
    assert served_text(text, "GEPA") == text
    assert served_text(text, "Later") == text


def test_texts_of_two_methods_are_compared_line_by_line() -> None:
    old, new = "one\ntwo", "two\nthree"
    for methods in (("GEPA", "GEPA"), ("", "GEPA"), ("Later", "Later")):
        assert [told.text for told in diff_texts(old, new, methods).added] == ["three"]
    bullets = "## general\n[g-1] helpful=0 harmful=0 :: Divide first."
    assert diff_texts(bullets, bullets.replace("first", "last")).changed[0].id == "g-1"


def test_a_method_that_manifests_cannot_name_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(registry.METHODS, "GEPA")
    with pytest.raises(BugError, match="no base method GEPA"):
        method_of(spec({"type": "GEPA"}))
