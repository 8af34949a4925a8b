"""What a run must say before anything starts, and what it may not do. Strict refuses; Advisory warns.

Nothing is asked that can be derived or measured. The start's held-out score is measured by profile; input,
output and metric are the task's; hardware of servers that the run brings up follows from them, and whether
task model and proposer share it from their addresses; a budget of one limit says itself which binds. A run
of traces scores nothing, so it is not asked about scores; a Sequential run is a serial baseline itself.

Source: the strategist's INPUTS YOU REQUIRE and ESCALATION PROTOCOL (docs/discipline.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from combee.api.common import one_line, yaml_name
from combee.api.conditions import Reason
from combee.api.run import Budget, Discipline, RunSpec
from combee.errors import ManifestError

SPEC = "spec"
TEMPLATE = "spec.learn.template"
_REASON_BYTES = 300
_ASKED_OF = ("task", "proposer")
"""the roles whose hardware decides what a speed-up means."""


@dataclass(frozen=True, slots=True)
class Question:
    """A field and what a person must answer there, or why what stands there is refused."""

    path: str
    """below the spec, such as ``budget.primary``."""
    asks: str

    def at(self, spec: str) -> str:
        """Return its field's whole path."""
        return f"{spec}.{self.path}"


def missing_inputs(spec: RunSpec) -> tuple[Question, ...]:
    """Return what the run must say and does not, in the order of its fields."""
    return tuple(_missing(spec))


def escalations(spec: RunSpec) -> tuple[Question, ...]:
    """Return what the run asks for that no statement makes good."""
    return tuple(_escalations(spec))


def waivers(spec: RunSpec) -> tuple[str, ...]:
    """Return what is left out for a stated reason, in sentences without full stops."""
    reason = spec.serial_baseline.waived if spec.serial_baseline is not None else None
    if reason is None:
        return ()
    return (f"the serial baseline is waived, so no speed-up is shown: {one_line(reason, _REASON_BYTES)}",)


def hardware(spec: RunSpec) -> str:
    """Return in words what the task model and the proposer run on, and whether they share it."""
    roles = [role for role in _ASKED_OF if role in spec.roles_in_use()]
    places = {role: _place(spec, role) for role in roles}
    if len({place.key for place in places.values()}) == 1:
        stated = next((place.hardware for place in places.values() if place.hardware), "not stated")
        return f"{stated}{', shared by task model and proposer' if len(places) > 1 else ''}"
    named = {"task": "task model"}
    return "; ".join(f"{named.get(r, r)} on {place.hardware or 'not stated'}" for r, place in places.items())


def advice(spec: RunSpec, at: str = SPEC) -> tuple[str, ...]:
    """Return what discipline Strict would refuse, a line each: the warnings of discipline Advisory."""
    missing = (f"not stated: {one.at(at)}: {one.asks}" for one in missing_inputs(spec))
    return (*missing, *(f"{one.at(at)}: {one.asks}" for one in escalations(spec)))


def lacking(spec: RunSpec, at: str = SPEC) -> str:
    """Return all of that in one sentence without a full stop; empty where there is nothing."""
    missing = ", ".join(f"{one.at(at)} ({one.asks})" for one in missing_inputs(spec))
    refused = ", ".join(f"{one.at(at)} ({one.asks})" for one in escalations(spec))
    parts = (f"not stated: {missing}" if missing else "", f"not sound: {refused}" if refused else "")
    return "; ".join(filter(None, parts))


def refusal(spec: RunSpec, default: Discipline, at: str = SPEC) -> tuple[Reason, ManifestError] | None:
    """Return why a run may not start, and the reason of its condition; None where it may.

    ``default``: the discipline of a run that names none.
    """
    if (spec.discipline or default) != "Strict" or not (lacks := lacking(spec, at)):
        return None
    asks = bool(missing_inputs(spec))
    fix = f"{'Say it there' if asks else 'Change it'}, or set {at}.discipline: Advisory to be warned instead"
    reason = Reason.MISSING_INPUT if asks else Reason.UNSOUND
    return reason, ManifestError(f"discipline Strict: {lacks}", fix=fix)


def _missing(spec: RunSpec) -> Iterator[Question]:
    yield from _of_the_task(spec)
    yield from _of_hardware(spec)
    yield from _of_the_baseline(spec)
    yield from _of_the_budget(spec)


def _of_the_task(spec: RunSpec) -> Iterator[Question]:
    held_out = spec.task.data.held_out
    if held_out is not None and held_out.steward is None:
        yield Question("task.data.heldOut.steward", "who keeps these rows?")
    if held_out is not None and held_out.used_for_tuning is None:
        yield Question("task.data.heldOut.usedForTuning", "was anything tuned on these rows before?")
    if spec.task.failure_cost is None:
        yield Question("task.failureCost", "what happens if it gets worse in production?")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a role's model answers."""

    key: str
    """two roles of one key share hardware."""
    path: str
    hardware: str


def _place(spec: RunSpec, role: str) -> _Place:
    model = spec.roles()[role]
    if model.endpoint is not None:
        path = f"models.{role}.endpoint.hardware"
        return _Place(model.endpoint.url.rstrip("/"), path, model.endpoint.hardware or "")
    named = model.engine_ref.name if model.engine_ref is not None else ""
    index, engine = next((k, one) for k, one in enumerate(spec.engines) if one.name == named)
    return _Place(engine.name, f"engines[{index}].hardware", engine.hardware_class)


def _of_hardware(spec: RunSpec) -> Iterator[Question]:
    """Ask once for each place, where no role that is answered there says it."""
    places = [_place(spec, role) for role in _ASKED_OF if role in spec.roles_in_use()]
    known = {place.key for place in places if place.hardware}
    for place in places:
        if place.key not in known:
            known.add(place.key)
            yield Question(place.path, "which GPUs or CPUs answer there, and how many?")


def _of_the_baseline(spec: RunSpec) -> Iterator[Question]:
    if not spec.rolls_out or spec.aggregation.strategy == "Sequential":
        return
    baseline = spec.serial_baseline
    if baseline is None or not (baseline.measure or baseline.curve or baseline.waived):
        yield Question(
            "serialBaseline",
            "what does learning one example at a time reach? measure: true, a curve, or waived: why not",
        )
    elif baseline.curve and baseline.source is None:
        yield Question("serialBaseline.source", "who measured the curve, on which rows, and when?")
    if baseline is not None and baseline.curve and baseline.hardware is None:
        yield Question("serialBaseline.hardware", "what was the curve measured on?")


def _of_the_budget(spec: RunSpec) -> Iterator[Question]:
    """Ask for a limit that this run can reach, and of several which one binds."""
    reached = [name for name in Budget.model_fields if name != "primary" and getattr(spec.budget, name)]
    gpus = any(engine.vllm is not None for engine in spec.engines)
    out = {"rollouts": not spec.rolls_out, "gpu_seconds": not gpus}
    limits = [yaml_name(name) for name in reached if not out.get(name)]
    if not limits:
        known = [yaml_name(name) for name in Budget.model_fields if name != "primary" and not out.get(name)]
        yield Question("budget", f"what may it use at most, of {', '.join(known)}?")
    elif len(limits) > 1 and spec.budget.primary not in limits:
        yield Question("budget.primary", f"which of {', '.join(limits)} binds?")


def _escalations(spec: RunSpec) -> Iterator[Question]:
    data, baseline = spec.task.data, spec.serial_baseline
    place = (data.train.uri, data.train.config_map, data.train.pvc)
    held_out = data.held_out
    if held_out is not None and (held_out.uri, held_out.config_map, held_out.pvc) == place:
        yield Question(
            "task.data.heldOut",
            "the rows of train: a gain on rows that were learned from does not last; give others",
        )
    if baseline is not None and baseline.curve and baseline.hardware is not None:
        own = _place(spec, "task").hardware
        if own and _words(own) != _words(baseline.hardware):
            other = one_line(baseline.hardware, 80)
            yield Question(
                "serialBaseline.hardware",
                f"{other}, and this run is on {one_line(own, 80)}: nothing is compared across hardware; "
                "measure the baseline here",
            )


def _words(text: str) -> list[str]:
    return text.casefold().split()
