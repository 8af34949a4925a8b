"""Whether a verdict takes more than its ceiling, and what the proxy says of the same answers then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from test_work_evaluator import SPEC, TASK, Asked, answered, number_in

from combee.algo.calibration import PROXY, Calibration, read_figures
from combee.api.metric import Ceiling
from combee.errors import EndpointError, ProxyVerdictError, TransientError
from combee.methods.protocol import ParseError
from combee.plan.state import VERDICT_COST
from combee.records import Prompt
from combee.work.asker import CallRow
from combee.work.ceiling import Bounded, under_ceiling

Says = Callable[[str, Prompt], tuple[tuple[bool, ...], float]]


def row(chain: int, tokens: int, *, role: str = "evaluator", **changes: Any) -> CallRow:
    return CallRow(role, "wave 0", chain, 1.0, tokens - 100, 100, 0, False, 1, **changes)


def as_the_evaluator(_: str, prompt: Prompt) -> tuple[tuple[bool, ...], float]:
    return (number_in(prompt) % 5 >= 2,) * 3, number_in(prompt) % 5 / 4


def bounded(
    rows: list[CallRow], says: Says = as_the_evaluator, opinion: Calibration | None = None, **ceiling: Any
) -> tuple[Bounded, Any]:
    """What is found of 60 answers, and the asker. The ceiling is 1,000 tokens unless stated."""
    asker: Any = Asked(says)
    asker.rows = rows
    price = SimpleNamespace(of=lambda prompt, completion, cached, lost: (prompt + 2 * completion) / 1000)
    spec = SimpleNamespace(
        task=SPEC,
        models=SimpleNamespace(evaluator=SimpleNamespace(ceiling=Ceiling(**ceiling or {"tokens": 1000}))),
        prices=SimpleNamespace(currency="EUR", per_gpu_hour=0.0),
        price_of=lambda _: price,
    )
    quiet = SimpleNamespace(begin=lambda *_: None, advance=lambda *_: None, note=lambda _: None)
    context: Any = SimpleNamespace(spec=spec, task=TASK, progress=quiet, concurrency=8)
    return asyncio.run(under_ceiling(context, asker, [answered(n) for n in range(60)], opinion)), asker


@pytest.mark.parametrize(
    ("rows", "cost"),
    [
        ([row(0, 400), row(1, 600)], 500.0),
        ([row(0, 400), row(0, 400), row(1, 600)], 700.0),
        ([row(0, 1000, lost_tokens=9000)], 1000.0),
        ([row(0, 400), row(1, 99_000, role="referee"), row(0, 99_000, role="task")], 400.0),
        ([], 0.0),
    ],
    ids=["mean", "a repair is part of its verdict", "requests that were lost are not", "others", "none"],
)
def test_within_the_ceiling_the_proxy_is_not_asked(rows: list[CallRow], cost: float) -> None:
    found, asker = bounded(rows)
    assert found.figures == {VERDICT_COST: cost} and not found.scores and not asker.prompts
    assert "the proxy is not asked" in found.words


def test_above_it_the_proxy_scores_all_answers_of_select() -> None:
    found, asker = bounded([row(0, 1001)])
    assert {role for role, _ in asker.prompts} == {"proxy"} and len(asker.prompts) == 60
    compared = read_figures(found.figures, PROXY)
    assert compared is not None and compared.verdict == "Calibrated" and compared.pairs == 60
    assert found.scores == {f"s{n}": (3 * (n % 5 >= 2) + n % 5 / 4) / 4 for n in range(60)}
    assert "over the ceiling of 1,000 tokens: the proxy scores map, replays and select" in found.words


def test_a_ceiling_in_money_goes_by_the_prices() -> None:
    assert not bounded([row(0, 900)], money=1.0)[0].scores
    found, _ = bounded([row(0, 901)], money=1.0)
    assert found.scores and found.figures[VERDICT_COST] == 1.001


def test_a_proxy_that_orders_otherwise_is_found_out() -> None:
    found, _ = bounded([row(0, 1001)], lambda _, prompt: ((True,) * 3, number_in(prompt) % 7 / 6))
    compared = read_figures(found.figures, PROXY)
    assert compared is not None and compared.verdict == "NotCalibrated"
    assert "the proxy may not score" in found.words


def test_a_verdict_that_the_proxy_does_not_give_scores_nothing_and_is_not_compared() -> None:
    def says(_: str, prompt: Prompt) -> tuple[tuple[bool, ...], float]:
        if number_in(prompt) % 10 == 4:
            raise TransientError("no answer (503)")
        return as_the_evaluator(_, prompt)

    found, _ = bounded([row(0, 1001)], says)
    compared = read_figures(found.figures, PROXY)
    assert compared is not None and compared.pairs == 54 and found.scores["s4"] == 0.0


def test_most_of_its_verdicts_lost_are_its_endpoints_fault() -> None:
    def says(_: str, prompt: Prompt) -> tuple[tuple[bool, ...], float]:
        raise TransientError("no answer (503)")

    with pytest.raises(EndpointError, match="60 of 60 verdicts") as caught:
        bounded([row(0, 1001)], says)
    assert caught.value.where == "spec.models.proxy"


def test_a_proxy_whose_replies_hold_no_verdict_is_named() -> None:
    def says(_: str, prompt: Prompt) -> tuple[tuple[bool, ...], float]:
        raise ParseError("it has no field score")

    with pytest.raises(
        ProxyVerdictError, match=r"60 of 60 .* the proxy gave no verdict: it has no"
    ) as caught:
        bounded([row(0, 1001)], says)
    assert caught.value.where == "spec.models.proxy"


def test_the_proxy_of_a_refuted_evaluator_is_not_asked() -> None:
    found, asker = bounded([row(0, 1001)], opinion=Calibration(0.4, 0.2, 0.55, 200))
    assert found == Bounded() and not asker.prompts
