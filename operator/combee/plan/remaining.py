"""How long a run still takes, by what it took so far. Pure.

An iteration is everything it does: map, reduce, merge, replays and select; gate follows the last one. The
pace is that of the finished iterations. Before there is one, the first takes as much longer than profile as
``plan.expected`` says. What nobody can know is left out: an end before the last row, and what the check at
the end of an epoch finds to drop.
"""

from __future__ import annotations

from combee.api.run import RunSpec
from combee.plan.decide import evaluation_due
from combee.plan.engine import hardware_slots
from combee.plan.expected import pace_of, stages
from combee.plan.state import RunState


def seconds_left(
    spec: RunSpec, state: RunState, batch_size: int, *, begun_seconds: float = 0.0
) -> float | None:
    """Return the seconds that are left, over 0; None where nothing can be said.

    ``batch_size``: of the iteration that was begun ``begun_seconds`` ago; in the closing phase the look at
    gate was begun then. When the last thing that a run does takes longer than expected, the estimate was
    wrong, and there is no other.
    """
    facts = state.facts
    if facts is None or state.outcome is not None:
        return None
    closing = state.look_seconds
    later = facts.train_rows * spec.method.epochs - state.examples_done - batch_size
    if state.phase != "Learning":
        left = closing - begun_seconds
    elif (iteration := _iteration_seconds(spec, state, batch_size)) is None:
        return None
    elif later > 0:
        left = max(0.0, iteration - begun_seconds) + iteration * later / batch_size + closing
    else:
        left = iteration - begun_seconds
        left = left + closing if left > 0 else 0.0
    return left if left > 0 else None


def _iteration_seconds(spec: RunSpec, state: RunState, batch_size: int) -> float | None:
    """Return the seconds that an iteration is expected to take, None where nothing tells."""
    profile_seconds = state.profile_seconds
    if batch_size < 1:
        return None
    if state.examples_done:
        before = profile_seconds + (state.diagnosis.wall_seconds if state.diagnosis is not None else 0.0)
        return (state.spend.wall_clock_seconds - before) / state.examples_done * batch_size
    assert state.facts is not None
    pace, (slots, _) = pace_of(spec, state), hardware_slots(spec)
    select = pace.seconds((state.facts.select_rows, pace.answer_tokens), slots)
    profiled = sum(seconds for _, seconds in state.waves) or select
    if not profiled or profile_seconds <= 0:
        return None
    expected = sum(pace.seconds(stage, slots) for stage in stages(spec, batch_size, pace))
    if evaluation_due(spec, state, batch_size):
        expected += select
    return expected * state.scoring_seconds / profiled
