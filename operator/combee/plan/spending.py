"""What a run's next steps and its closing look will spend, at what its rollouts took so far. Pure."""

from __future__ import annotations

from dataclasses import replace

from combee.algo.budget import Spend, largest_affordable
from combee.api.run import RunSpec
from combee.plan.money import money_of
from combee.plan.state import RunState, limits_of
from combee.plan.types import Scorer


def closing_cost(state: RunState) -> Spend:
    """Estimate what scoring select once more and the closing look at gate and test will cost."""
    if state.facts is None or state.facts.select_rows == 0:
        return Spend()
    select, look = state.facts.select_rows, state.facts.look_rollouts
    tokens = select * tokens_a_rollout(state, state.scored_by) + look * tokens_a_rollout(state)
    return Spend(rollouts=select + look, tokens=int(tokens))


def least_spend(spec: RunSpec, state: RunState, examples: int) -> Spend:
    """Return what a run needs in all, from its start, to learn from ``examples`` more and be evaluated."""
    spent, per_example, closing = priced(spec, state)
    return spent + closing + per_example.times(examples)


def tokens_a_rollout(state: RunState, scored_by: Scorer = "evaluator") -> float:
    """Return the tokens of a rollout so far, with a verdict where there is one. Gate and test have the
    evaluator's."""
    used = (state.usage.get(role) for role in ("task", scored_by))
    return sum(one.tokens / max(one.calls, 1) for one in used if one is not None)


def affordable(spec: RunSpec, state: RunState, gpu_seconds: float) -> int | None:
    """Return the largest batch that the budget pays for beside the closing evaluation; None: no limit."""
    spent, per_example, closing = priced(spec, state, gpu_seconds)
    return largest_affordable(per_example, closing, spent, limits_of(spec))


def priced(spec: RunSpec, state: RunState, gpu_seconds: float = 0.0) -> tuple[Spend, Spend, Spend]:
    """Return what was spent, and what an example more and the closing evaluation take, with their money: a
    token to come costs what one did so far, with the GPUs' time."""
    money = money_of(spec, state.usage, gpu_seconds)
    per_token = money / state.spend.tokens if state.spend.tokens else 0.0
    per_example, closing = (
        replace(cost, money=cost.tokens * per_token)
        for cost in (state.per_example or _first_guess(state), closing_cost(state))
    )
    return replace(state.spend, money=money), per_example, closing


def _first_guess(state: RunState) -> Spend:
    """Guess what one example costs before any was learned from: a rollout, a reflection, its share of the
    tree and three replays, each about as long as profile's rollouts. Without rollouts nothing is known."""
    if state.facts is not None and not state.facts.held_out_rows:
        return Spend()
    return Spend(rollouts=4, tokens=int(6 * tokens_a_rollout(state, state.scored_by)))


def kept_for_look(spec: RunSpec, state: RunState, *, gpus: float = 0.0, gpu_seconds: float = 0.0) -> Spend:
    """Return what the steps of learning may not spend, a diagnosis included: what the closing look is
    expected to take, at the pace and the tokens of the rollouts so far. Nothing once learning is over, and
    before profile is done. ``gpus``: held meanwhile; ``gpu_seconds``: held so far."""
    if state.facts is None or state.phase not in ("Profiling", "Learning"):
        return Spend()
    rollouts = state.facts.look_rollouts
    tokens = int(rollouts * tokens_a_rollout(state))
    money = money_of(spec, state.usage, gpu_seconds)
    return Spend(
        rollouts=rollouts,
        tokens=tokens,
        gpu_seconds=state.look_seconds * gpus,
        wall_clock_seconds=state.look_seconds,
        money=money / state.spend.tokens * tokens if state.spend.tokens else 0.0,
    )
