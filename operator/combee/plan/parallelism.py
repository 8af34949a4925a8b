"""The shape of a run's parallelism: which one fits and why, what it can bring, and what was rejected. Pure.

It follows from the share of the run's slots that calls keep busy: as measured over its iterations, and before
any as the plan expects it. It changes nothing of the run; it tells what to do beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from combee.algo.parallelism import LEAST_UTILISATION, SHAPES, Load, ShapeName, shape_for
from combee.api.run import RunSpec
from combee.api.status import Parallelism
from combee.plan.batching import measured, next_batch
from combee.plan.cluster.engines import own_engines_in_use
from combee.plan.engine import hardware_slots
from combee.plan.expected import expected_load
from combee.plan.observed import own_seconds
from combee.plan.state import RunState

_LEAST = f"{100 * LEAST_UTILISATION:.0f} %"
_ALWAYS = (
    "another hardware class, server load, prefix cache, row length or split",
    "one after the other each call would be faster than beside others, as it was timed",
    "a call that waits in a server's queue counts as a busy slot",
    "the time between steps is left out",
)


def parallelism_of(spec: RunSpec, state: RunState) -> Parallelism | None:
    """Return the shape that fits a run as far as it has come; None before its data was counted."""
    if state.facts is None or not state.facts.train_rows:
        return None
    slots, by = hardware_slots(spec)
    iterations, load = state.load_iterations, state.load
    if iterations and own_seconds(state.waves, measured(spec, state)) is None:
        source = f"measured over {iterations} iteration{'s' if iterations > 1 else ''}"
    else:
        iterations, size = 0, next_batch(spec, state, affordable=None).size
        load, by_profile = expected_load(spec, state, size)
        pace = "profile's calls" if by_profile else "calls of an H200"
        source = f"expected of {size} examples at the pace of {pace}"
    if not load.utilisation(slots):
        return None
    widest = 1 if spec.aggregation.traits.in_order else max(state.facts.train_rows, state.facts.select_rows)
    shape = shape_for(load.utilisation(slots), widest, slots)
    facts = _Facts(load, slots, widest, source)
    limits = () if iterations else ("this run's own calls, which are not measured yet",)
    by_number = f"servers that take another number of calls at once than {slots} ({by})"
    return Parallelism(
        name=shape,
        reason=_reason(shape, facts),
        advice="" if shape == "Candidate" else _advice(spec),
        iterations=iterations,
        slots=slots,
        utilisation=round(load.utilisation(slots), 4),
        speed_up=round(load.in_flight, 2),
        ceiling=round(load.ceiling, 2),
        beside=round(1 / load.utilisation(slots), 2),
        rejected={other: _against(other, shape, facts) for other in SHAPES if other != shape},
        invalidated_by=(*limits, by_number, *_ALWAYS),
    )


def _advice(spec: RunSpec) -> str:
    """Return how other runs get to the idle slots."""
    used = own_engines_in_use(spec)
    unshared = [engine.name for engine in spec.engines if engine.name in used and not engine.shared]
    fewer = "or give this one fewer slots"
    if not used:
        return f"run similar tasks beside it at the same address, each with a heldOut of its own, {fewer}"
    beside = "start runs of similar tasks with the same entry, each with a heldOut of its own"
    if not unshared:
        return f"{beside}, {fewer}"
    return f"write shared: true under engines[{', '.join(unshared)}] and {beside}, {fewer}"


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the sentences are about. ``widest``: the examples of the largest batch that the data allows."""

    load: Load
    slots: int
    widest: int
    source: str

    @property
    def busy(self) -> str:
        return f"{100 * self.load.utilisation(self.slots):.0f} %"


def _reason(shape: ShapeName, facts: _Facts) -> str:
    busy = f"its calls keep {facts.busy} of {facts.slots} slots busy ({facts.source})"
    if shape == "Candidate":
        return f"{busy}, and {_LEAST} is enough for one run"
    if shape == "Task":
        most = f"{facts.widest} example{'s' if facts.widest > 1 else ''} at once at most"
        return f"{busy}, under {_LEAST}, and no batch can fill them: {most}"
    return f"{busy}, under {_LEAST}, though its data has {facts.widest} examples to work on at once"


def _against(other: ShapeName, shape: ShapeName, facts: _Facts) -> str:
    """Return why ``other`` does not fit where ``shape`` does."""
    if other == "Candidate":
        return (
            f"one run alone leaves {100 * (1 - facts.load.utilisation(facts.slots)):.0f} % of the slots idle"
        )
    if shape == "Candidate":
        return f"a second run would wait for slots, {facts.busy} of which are busy"
    if other == "Task":
        return f"this task alone has batches that fill {_LEAST} of the slots and more"
    return f"more of this task's candidates at once would need more than its {facts.widest} examples"
