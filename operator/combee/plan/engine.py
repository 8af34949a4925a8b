"""The digest of what a run's times were measured on: observations of another engine do not count."""

from __future__ import annotations

from typing import Any

from combee.algo.seeds import digest_of
from combee.api.engines import Engine
from combee.api.run import RunSpec

_SHOWN = 12


def engine_digest(spec: RunSpec) -> str:
    """Return 12 hex digits over the models by role, the engines' servers with their arguments, and the slots.

    Placement, idle time-outs, what people say of hardware, a ceiling, and everything that is not about speed
    are left out.
    """
    worded: dict[str, Any] = {"endpoint": {"hardware"}, "ceiling": True}
    roles = {role: model.model_dump(mode="json", exclude=worded) for role, model in spec.roles().items()}
    engines = {
        # Of a service the model is left out: pods know it from the start, the operator once it was seen.
        engine.name: engine.vllm.model_dump(mode="json")
        if engine.vllm is not None
        else {"ref": engine.ref and engine.ref.model_dump(mode="json", exclude={"model"})}
        for engine in spec.engines
    }
    identity = {"models": roles, "engines": engines, "slots": spec.workers.concurrency}
    return digest_of(identity)[:_SHOWN]


def hardware_slots(spec: RunSpec) -> tuple[int, str]:
    """Return how many calls can be in flight at once, and what says so.

    That is ``workers.concurrency``, or ``--max-num-seqs`` times the replicas of the task model's engine where
    the flag is stated and the product is smaller.
    """
    slots, why = spec.workers.concurrency, "workers.concurrency"
    ref = spec.models.task.engine_ref
    for engine in spec.engines:
        served = served_at_once(engine)
        if ref is not None and engine.name == ref.name and served is not None and served < slots:
            slots, why = served, f"--max-num-seqs of engine {engine.name}"
    return slots, why


def served_at_once(engine: Engine) -> int | None:
    """Return how many calls an engine of the run's own works on at once; None where no flag states it."""
    stated = _max_num_seqs(engine.vllm.args) if engine.vllm is not None else None
    return None if engine.vllm is None or stated is None else stated * engine.vllm.replicas


def _max_num_seqs(args: tuple[str, ...]) -> int | None:
    """Return the last value of ``--max-num-seqs``, as ``N`` or ``=N``; None when absent or no number."""
    last = None
    for arg, after in zip(args, (*args, "")[1:], strict=True):
        flag, _, value = arg.replace("_", "-").partition("=")
        number = value or after
        if flag == "--max-num-seqs" and number.isascii() and number.isdigit() and int(number) > 0:
            last = int(number)
    return last
