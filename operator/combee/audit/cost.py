"""What an audit will cost, from the record of the run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from combee.report.result import Result
from combee.report.stamps import claims_gain
from combee.report.tables_cost import currency
from combee.report.text import Table, amount, duration, price

SEEDS = 3
"""Other seeds that a run is done again with."""
HEADROOM = 2
"""How many times what the run used a seed may use, where the manifest does not allow less."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an audit."""

    name: str
    rollouts: int
    tokens: int
    seconds: float
    money: float | None = None
    """None without prices."""


def other_seeds(result: Result) -> tuple[int, ...]:
    """Return the seeds of an audit: those after the run's. A result of an older version names none; it is
    taken to be 0, the default."""
    first = result.setup.seed or 0
    return tuple(range(first + 1, first + 1 + SEEDS))


def at_most(used: float, limit: float | None) -> float:
    """Return what a seed may use of a thing of which the run used so much, under a limit of its manifest."""
    return HEADROOM * used if limit is None else min(HEADROOM * used, limit)


def parts(result: Result, *, second_engine: bool) -> list[Part]:
    """Return what will be asked: nothing where the result claims no gain.

    A whole run may take HEADROOM times what this one took, as its limits on tokens and money see to. Answers
    that the shared memo has are charged, as always, and not asked for, so that a seed takes less of a server
    than it says.
    """
    if not claims_gain(result):
        return []
    limits = {line.name: line.limit for line in result.budget}
    money = next((line.spent for line in result.budget if line.name == "money"), None)
    whole = (
        round(at_most(result.rollouts, limits.get("rollouts"))),
        round(at_most(result.tokens, limits.get("tokens"))),
        at_most(result.wall_seconds, limits.get("wallClockSeconds")),
        None if money is None else at_most(money, limits.get("money")),
    )
    looked = result.test or result.gate
    rollouts = 2 * looked.n if looked else 0
    share = min(1.0, rollouts / result.rollouts) if result.rollouts else 0.0
    # A task may make many calls of a rollout; an evaluator scores some rollouts only where it has a proxy.
    made = {
        "task": result.rollouts,
        "evaluator": result.usage["evaluator"].calls if "evaluator" in result.usage else 0,
    }
    per_rollout = sum(
        (use.prompt_tokens + use.completion_tokens) / max(1, made[role])
        for role, use in result.usage.items()
        if role in made
    )
    scored = Part(
        f"{'test' if result.test else 'gate'}, fresh answers",
        rollouts,
        round(per_rollout * rollouts),
        result.evaluation.wall_seconds if result.evaluation else 0.0,
        None if money is None else money * share,
    )
    seeds = [Part(f"seed {seed}", *whole) for seed in other_seeds(result)]
    return [scored, *seeds, *([Part("second engine", *whole)] if second_engine else [])]


def together(listed: Sequence[Part]) -> Part:
    """Return the sum."""
    money = [part.money for part in listed if part.money is not None]
    return Part(
        "together",
        sum(part.rollouts for part in listed),
        sum(part.tokens for part in listed),
        sum(part.seconds for part in listed),
        sum(money) if money else None,
    )


def table(result: Result, listed: Sequence[Part]) -> Table:
    """Return the parts and their sum."""
    unit = currency(result)

    def row(part: Part) -> tuple[str, ...]:
        paid = (price(part.money) if part.money is not None else "",) if unit else ()
        return (part.name, f"{part.rollouts:,}", amount(part.tokens), duration(part.seconds), *paid)

    rows = tuple(row(part) for part in [*listed, together(listed)]) if listed else ()
    columns = ("part", "#rollouts", "#tokens", "#time", *((f"#{unit}",) if unit else ()))
    return Table("cost", "At most about", columns, rows, "No model is asked: the result claims no gain.")
