"""What keeps proposals from being all alike, decided for each iteration before it starts. Pure."""

from __future__ import annotations

from combee.api.run import RunSpec
from combee.plan.state import RunState
from combee.records import Diversity

HOTTER = 0.2
"""What an evaluation on select without a better one adds to the proposer's temperature."""
HOTTEST = 1.0
"""The most that it is raised to."""
STUCK_ITERATIONS = 2
"""Iterations in a row without a new proposal from which a run starts afresh."""
WEIGHED_FROM = 4
"""The first iteration, from 0, whose edits are drawn by what those before lifted."""


def diversity_of(spec: RunSpec, state: RunState) -> Diversity | None:
    """Return the decisions of the next iteration; None where the manifest does not ask for them.

    The proposer is as hot as the manifest says, and ``HOTTER`` for each evaluation in a row without a better
    one. An iteration is fresh after ``STUCK_ITERATIONS`` without a new proposal, and when one evaluation more
    without a better one would end the run.
    """
    if not spec.method.diversity:
        return None
    flat, stated = state.evaluations_since_best, spec.models.proposer.sampling.temperature
    raised = max(stated, min(HOTTEST, stated + HOTTER * flat))
    last_chance = max(1, spec.stopping.patience - 1)
    return Diversity(
        temperature=round(raised, 2),
        fresh=state.repeating >= STUCK_ITERATIONS or flat >= last_chance,
        weights=state.edit_weights if state.iteration >= WEIGHED_FROM else (),
    )
