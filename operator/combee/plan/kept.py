"""What learning leaves of a budget, so that what was learned can be looked at on gate and test. Pure."""

from __future__ import annotations

from combee.algo.budget import Spend
from combee.api.run import RunSpec
from combee.plan.decide import tokens_a_rollout
from combee.plan.money import money_of
from combee.plan.state import RunState


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
