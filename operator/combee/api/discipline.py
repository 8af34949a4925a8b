"""What a run must say before anything starts, and what it may not do. Strict refuses; Advisory warns.

Nothing is asked that can be derived or measured. The start's held-out score is measured by profile; input,
output and metric are the task's; the GPUs of servers that the run brings up are those of the nodes, where an
operator may read them (``plan/cluster/hardware.py``); whether task model and proposer share hardware follows
from their addresses; a budget of one limit says itself which binds. A run of traces scores nothing, so it is
not asked about scores; a Sequential run is a serial baseline itself.

Source: the strategist's INPUTS YOU REQUIRE and ESCALATION PROTOCOL (docs/discipline.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from combee.api.common import one_line, yaml_name
from combee.api.conditions import Reason
from combee.api.engines import Engine
from combee.api.run import Budget, Discipline, RunSpec
from combee.errors import ManifestError

SPEC = "spec"
TEMPLATE = "spec.learn.template"
_REASON_BYTES = 300
_ASKED_OF = ("task", "proposer")
"""the roles whose hardware decides what a speed-up means."""
NOTHING_UNKNOWN: Mapping[str, str] = {}
"""Engine -> why the nodes do not tell its GPUs; empty off a cluster, where nobody could have looked."""


@dataclass(frozen=True, slots=True)
class Question:
    """A field and what a person must answer there, or why what stands there is refused."""

    path: str
    """below the spec, such as ``budget.primary``."""
    asks: str

    def at(self, spec: str) -> str:
        """Return its field's whole path."""
        return f"{spec}.{self.path}"


def missing_inputs(spec: RunSpec, unknown: Mapping[str, str] = NOTHING_UNKNOWN) -> tuple[Question, ...]:
    """Return what the run must say and does not, in the order of its fields. ``unknown``: engines whose GPUs
    the nodes do not tell, and why."""
    return tuple(_missing(spec, unknown))


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


def curve_is_from_here(spec: RunSpec) -> bool | None:
    """Return whether the stated serial curve was measured on the task model's class of hardware; None where
    nobody can tell, or no curve is stated.

    GPUs that are only counted may be those of the curve: a cluster looks at its nodes, or asks.
    """
    baseline, place = spec.serial_baseline, _place(spec, "task")
    if baseline is None or baseline.hardware is None or not place.hardware:
        return None
    if same_hardware(place.hardware, baseline.hardware):
        return True
    return None if place.counted else False


def untyped(spec: RunSpec) -> tuple[Engine, ...]:
    """Return the engines of the task model and the proposer whose GPUs the run counts and does not name."""
    counted = {place.key for place in _places(spec) if place.counted}
    return tuple(engine for engine in spec.engines if engine.name in counted)


def same_hardware(one: str, other: str) -> bool:
    """Return whether two descriptions are of one class of hardware: their words are the same.

    >>> same_hardware("8x H100", "8X  h100")
    True
    """
    return one.casefold().split() == other.casefold().split()


def advice(spec: RunSpec, at: str = SPEC) -> tuple[str, ...]:
    """Return what discipline Strict would refuse, a line each: the warnings of discipline Advisory."""
    missing = (f"not stated: {one.at(at)}: {one.asks}" for one in missing_inputs(spec))
    return (*missing, *(f"{one.at(at)}: {one.asks}" for one in escalations(spec)))


def lacking(spec: RunSpec, at: str = SPEC, unknown: Mapping[str, str] = NOTHING_UNKNOWN) -> str:
    """Return all of that in one sentence without a full stop; empty where there is nothing. ``unknown``: as
    of ``missing_inputs``."""
    missing = ", ".join(f"{one.at(at)} ({one.asks})" for one in missing_inputs(spec, unknown))
    refused = ", ".join(f"{one.at(at)} ({one.asks})" for one in escalations(spec))
    parts = (f"not stated: {missing}" if missing else "", f"not sound: {refused}" if refused else "")
    return "; ".join(filter(None, parts))


def refusal(
    spec: RunSpec, default: Discipline, at: str = SPEC, unknown: Mapping[str, str] = NOTHING_UNKNOWN
) -> tuple[Reason, ManifestError] | None:
    """Return why a run may not start, and the reason of its condition; None where it may.

    ``default``: the discipline of a run that names none. ``unknown``: as of ``missing_inputs``.
    """
    if (spec.discipline or default) != "Strict" or not (lacks := lacking(spec, at, unknown)):
        return None
    asks = bool(missing_inputs(spec, unknown))
    fix = f"{'Say it there' if asks else 'Change it'}, or set {at}.discipline: Advisory to be warned instead"
    reason = Reason.MISSING_INPUT if asks else Reason.UNSOUND
    return reason, ManifestError(f"discipline Strict: {lacks}", fix=fix)


def _missing(spec: RunSpec, unknown: Mapping[str, str]) -> Iterator[Question]:
    yield from _of_the_task(spec)
    yield from _of_hardware(spec, unknown)
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
    counted: bool = False
    """whether that has only the number of GPUs."""


def _place(spec: RunSpec, role: str) -> _Place:
    model = spec.roles()[role]
    if model.endpoint is not None:
        path = f"models.{role}.endpoint.hardware"
        return _Place(model.endpoint.url.rstrip("/"), path, model.endpoint.hardware or "")
    named = model.engine_ref.name if model.engine_ref is not None else ""
    index, engine = next((k, one) for k, one in enumerate(spec.engines) if one.name == named)
    path = f"engines[{index}].hardware"
    return _Place(engine.name, path, engine.hardware_class, engine.only_counts_gpus)


def _places(spec: RunSpec) -> list[_Place]:
    return [_place(spec, role) for role in _ASKED_OF if role in spec.roles_in_use()]


def _of_hardware(spec: RunSpec, unknown: Mapping[str, str]) -> Iterator[Question]:
    """Ask once for each place, where no role that is answered there says it."""
    places = _places(spec)
    known = {place.key for place in places if place.hardware and place.key not in unknown}
    for place in places:
        if place.key not in known:
            known.add(place.key)
            why = f" {unknown[place.key]}" if place.key in unknown else ""
            yield Question(place.path, f"which GPUs or CPUs answer there, and how many?{why}")


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
    yield from _contradictions(spec)
    if baseline is not None and curve_is_from_here(spec) is False:
        other, own = one_line(baseline.hardware or "", 80), one_line(_place(spec, "task").hardware, 80)
        yield Question(
            "serialBaseline.hardware",
            f"{other}, and this run is on {own}: nothing is compared across hardware; measure the baseline "
            "here",
        )


def _contradictions(spec: RunSpec) -> Iterator[Question]:
    """Object to two descriptions of what answers at one address."""
    by_address: dict[str, tuple[str, str]] = {}
    for role, model in spec.roles_in_use().items():
        if model.endpoint is None or model.endpoint.hardware is None:
            continue
        path, words = f"models.{role}.endpoint.hardware", model.endpoint.hardware
        first, before = by_address.setdefault(model.endpoint.url.rstrip("/"), (path, words))
        if not same_hardware(before, words):
            asks = f"{one_line(words, 80)}, and {first} says {one_line(before, 80)} of the same address"
            yield Question(path, f"{asks}: one of them is wrong")
