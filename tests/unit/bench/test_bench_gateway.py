"""The gateway's row: one phase that breaks the promise, or one lost request, fails the row."""

from __future__ import annotations

from typing import Any

import pytest


def load(median: float, slowest: float, wrong: dict[str, int] | None = None) -> dict[str, Any]:
    """What a load of 200 requests saw, in milliseconds; two of a hundred are slow."""
    times = [median / 1000] * 196 + [slowest / 1000] * 4
    return {"total": times, "first": times, "wrong": wrong or {}, "asked": 200}


def figures(**of_gateway: dict[str, Any]) -> Any:
    """All phases as promised, but for the gateway in those that are given."""
    from bench.gateway import PHASES, SWITCHES, Figures, Part

    made = Figures(switch_ms=[20.0] * SWITCHES, refusal_ms=20.0, mirrored={"evaluatorHanging": {"Kept": 5}})
    for name in PHASES:
        part = made.phases[name] = Part()
        part.take("direct", load(42.0, 43.0))
        part.take("bare", load(43.0, 50.0))
        part.take("gateway", of_gateway.get(name, load(44.0, 55.0)))
    return made


def test_the_row_is_met_where_each_phase_is() -> None:
    from bench.gateway import PHASES, row

    made = row("n", "t", figures())
    assert made.met and made.figure == 2.0
    assert set(made.detail["phases"]) == {"whole", *PHASES}
    assert made.detail["phases"]["whole"]["requests"] == 200 * len(PHASES)
    assert made.detail["phases"]["alone"]["p99Ms"] == {"direct": 43.0, "bare": 50.0, "gateway": 55.0}


@pytest.mark.parametrize("phase", ["switching", "operatorDown", "evaluatorHanging", "candidateHanging"])
@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(load(46.0, 55.0), id="4 ms added"),
        pytest.param(load(44.0, 101.0), id="p99 over twice the bare proxy's"),
        pytest.param(load(44.0, 55.0, {"19 of 20 chunks": 1}), id="one lost"),
    ],
)
def test_one_phase_that_is_not_as_promised_is_enough(phase: str, seen: dict[str, Any]) -> None:
    from bench.gateway import row

    made = row("n", "t", figures(**{phase: seen}))
    assert made.met is False
    assert not made.detail["phases"][phase]["met"] and made.detail["phases"]["alone"]["met"]


def test_a_switch_that_did_not_come_or_nothing_mirrored_is_not_passed_over() -> None:
    from bench.gateway import row

    few, slow, idle = figures(), figures(), figures()
    few.switch_ms.pop()
    slow.refusal_ms = 1500.0
    idle.mirrored = {}
    assert [row("n", "t", made).met for made in (few, slow, idle)] == [False, False, False]


def test_what_the_gateway_adds_alone_is_held_against_what_the_bare_proxy_adds() -> None:
    from bench.gateway import row

    # 59 ms of a request is not twice 50; 17 ms added are more than twice 8.
    assert row("n", "t", figures(alone=load(44.0, 59.0))).met is False
    assert row("n", "t", figures(switching=load(44.0, 59.0))).met is True


@pytest.mark.parametrize(
    ("changed", "met"),
    [
        ({}, True),
        ({"wrong": {"no answer: EOF": 1}}, False),
        ({"failed": {"500": 3, "429": 2, "cut": 1}}, False),
    ],
    ids=["nothing lost", "one lost", "a fault that never came"],
)
def test_a_steady_row_is_met_where_every_fault_came_and_nothing_was_lost(
    changed: dict[str, Any], met: bool
) -> None:
    from bench.gatewaysteady import PODS, RESTARTS, row

    seen = {**load(42.0, 43.0), "p50": 42.0, "p99": 43.0}
    seen |= {"failed": {"500": 3, "429": 2, "cut": 1, "dropped": 2}, **changed}
    assert row(60.0, 100.0, seen, [0] * (RESTARTS * PODS)).met is met
    assert row(60.0, 100.0, seen, [0]).met is False


@pytest.mark.parametrize(
    ("quiet", "burst", "peak_mib", "met"),
    [
        ({}, {"come again: 429 Too Many Requests": 90}, 100, True),
        ({"come again: 429 Too Many Requests": 3}, {}, 100, False),
        ({}, {"no answer: EOF": 1}, 100, False),
        ({}, {}, 600, False),
    ],
    ids=["all as promised", "the other key is shed", "one is lost", "too much memory"],
)
def test_a_crowded_row_is_met_where_the_other_key_is_served(
    quiet: dict[str, int], burst: dict[str, int], peak_mib: int, met: bool
) -> None:
    from bench.gatewaycrowd import row

    seen = [load(42.0, 43.0), load(42.0, 43.0, quiet), load(42.0, 43.0, burst)]
    assert row(500.0, *seen, peak_mib * 2**20).met is met
