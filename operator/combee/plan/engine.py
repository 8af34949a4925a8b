"""What the times of a run were measured on, as a digest: observations of another engine do not count."""

from __future__ import annotations

from combee.algo.seeds import digest_of
from combee.api.run import RunSpec

_SHOWN = 12


def engine_digest(spec: RunSpec) -> str:
    """12 hex digits over the models by role, the engines' servers with their arguments, and the slots.

    Placement, idle time-outs and everything that is not about speed are left out.
    """
    roles = {role: model.model_dump(mode="json") for role, model in spec.roles().items()}
    engines = {engine.name: engine.vllm.model_dump(mode="json") for engine in spec.engines}
    identity = {"models": roles, "engines": engines, "slots": spec.workers.concurrency}
    return digest_of(identity)[:_SHOWN]


def hardware_slots(spec: RunSpec) -> tuple[int, str]:
    """How many calls can be in flight at once, and what says so.

    ``workers.concurrency``, or ``--max-num-seqs`` times the replicas of the task model's engine where
    that is stated and smaller.
    """
    slots, why = spec.workers.concurrency, "workers.concurrency"
    ref = spec.models.task.engine_ref
    for engine in spec.engines:
        stated = _max_num_seqs(engine.vllm.args)
        if ref is not None and engine.name == ref.name and stated is not None:
            served = stated * engine.vllm.replicas
            if served < slots:
                slots, why = served, f"--max-num-seqs of engine {engine.name}"
    return slots, why


def _max_num_seqs(args: tuple[str, ...]) -> int | None:
    """The value of the last ``--max-num-seqs N`` or ``--max-num-seqs=N``; None when absent or no number."""
    last = None
    for arg, after in zip(args, (*args, "")[1:], strict=True):
        flag, _, value = arg.replace("_", "-").partition("=")
        number = value or after
        if flag == "--max-num-seqs" and number.isascii() and number.isdigit() and int(number) > 0:
            last = int(number)
    return last
