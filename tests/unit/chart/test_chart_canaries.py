"""What the admission policy reckons with is the theory that the operator warns by."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from itertools import pairwise
from typing import Any

import pytest
from chart_tools import objects

from combee.algo.power import EPSILONS, least_pairs, pairs_needed
from combee.api.playbook import PlaybookSpec
from combee.api.stakes import WEAKEST
from combee.plan.playbook.traffic import warnings
from combee.plan.playbook.unasked import WITHOUT_CANARY

NEAR, FEW = 0.05, 2
"""how far between two rows of the table the policy may be off: a share, or so many pairs."""


def policy(way: str = "default") -> dict[str, Any]:
    (found,) = [
        one["spec"]
        for one in objects(way, "ValidatingAdmissionPolicy")
        if one["metadata"]["name"].endswith("-canaries")
    ]
    return dict(found)


def table() -> list[list[float]]:
    (text,) = [one["expression"] for one in policy()["variables"] if one["name"] == "table"]
    rows: list[list[float]] = ast.literal_eval(text)
    return rows


def test_the_table_of_the_policy_is_the_theory_s() -> None:
    assert [row[0] for row in table()] == list(EPSILONS)
    for epsilon, pairs, windows in table():
        assert (pairs, windows) == (pairs_needed(epsilon), least_pairs(epsilon))


@pytest.mark.parametrize("power", [2, 1])
def test_between_two_rows_the_policy_is_near_the_theory(power: int) -> None:
    """power 2: pairs; 1: windows."""
    rows = [(row[0], row[3 - power]) for row in table()]
    exact = pairs_needed if power == 2 else least_pairs
    asked = [0.0003, *(low + (high - low) * part for low, high in pairwise(EPSILONS) for part in (0.35, 0.7))]
    for epsilon in asked:
        place = bisect_right([row[0] for row in rows], epsilon)
        low, high = rows[max(place - 1, 0)], rows[place]
        way = (epsilon - low[0]) / (high[0] - low[0]) if place else 0.0
        ends = [pairs * at**power for at, pairs in (low, high)]
        reckoned = (ends[0] + (ends[1] - ends[0]) * way) / epsilon**power
        found = exact(epsilon)
        assert found is not None
        assert abs(reckoned - found) <= max(FEW, NEAR * found), epsilon


def test_the_policy_warns_and_refuses_nothing() -> None:
    for way in ("default", "namespaces"):
        (binding,) = [
            one["spec"]
            for one in objects(way, "ValidatingAdmissionPolicyBinding")
            if one["metadata"]["name"].endswith("-canaries")
        ]
        assert binding["validationActions"] == ["Warn"]
        assert policy(way)["failurePolicy"] == "Ignore"


def test_the_policy_says_of_no_canary_and_of_a_deadline_too_soon_what_combee_validate_says() -> None:
    validations = policy()["validations"]
    (absent,) = [one for one in validations if one["expression"] == "has(object.spec.canary)"]
    assert absent["message"] == WITHOUT_CANARY
    (late,) = [one for one in validations if "leastDeadline" in one["expression"]]
    pieces = re.split(r"' \+ string\(variables\.[\w.]+\) \+ '", late["messageExpression"].strip("'"))
    canary = {"mode": "Prometheus", "durationSeconds": 86_401, "deadlineSeconds": 518_399}
    query = {"query": "$(side)", "unit": "Ratio"}
    asked = {"url": "http://p", "score": query, "labelDelaySeconds": 1}
    (said,) = warnings(
        PlaybookSpec.model_validate({"canary": {**canary, "epsilon": 0.02, "prometheus": asked}})
    )
    assert said == f"{pieces[0]}518399{pieces[1]}518401{pieces[2]}"


def test_waivers_are_refused_where_the_chart_says_so_and_nowhere_else() -> None:
    def waivers(way: str) -> list[dict[str, Any]]:
        kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        found = [one for kind in kinds for one in objects(way, kind)]
        return [one["spec"] for one in found if one["metadata"]["name"].endswith("-waivers")]

    assert waivers("default") == waivers("namespaces") == []
    asked, binding = waivers("everything")
    assert asked["failurePolicy"] == "Fail" and binding["validationActions"] == ["Deny"]
    (validation,) = asked["validations"]
    assert "has(object.spec.canary.waived)" in validation["expression"]
    assert "playbooks.allowWaivedCanary" in validation["message"]


def test_the_policy_proposes_no_epsilon_that_the_failure_cost_forbids() -> None:
    """As api/stakes.py has it: the last one is that of the class that is not named."""
    (text,) = [one["expression"] for one in policy()["variables"] if one["name"] == "largest"]
    words = re.findall(r"'(\w+)' \? ([\d.]+)", text)
    assert {cost: float(largest) for cost, largest in words} == {
        cost: WEAKEST[cost].epsilon for cost in ("Low", "High")
    }
    assert text.endswith(f" : {WEAKEST['Medium'].epsilon}") and len(WEAKEST) == 3
