"""When a run's engines hold their GPUs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from combee.api.run import RunSpec
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import Seen

LEAST_IDLE_SECONDS = 30.0
"""A pod takes a while to start: an engine is not idle for that."""


@dataclass(frozen=True, slots=True)
class EngineWish:
    """How many servers an engine should have; ``remove``: the objects should go, too."""

    replicas: int
    remove: bool = False


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the engines should be now. ``ready``: every one in use has a server that answers."""

    wishes: Mapping[str, EngineWish]
    ready: bool
    idle_since: float
    wake_after_seconds: float | None


def engines_wished(spec: RunSpec, memory: Memory, seen: Seen, *, due: bool) -> Wishes:
    """The engines a tick wants. ``due``: a step that calls models is to be done.

    They come up with the first step that was admitted, stay while pods work, and go when no pod
    of a placed Job has worked for their ``idleTimeoutSeconds``: work that waits for a node or for a
    quota holds no GPU for ever.
    """
    used = engines_in_use(spec)
    live = [job for job in seen.jobs.values() if job.live and job.kind != "publish"]
    admitted = any(not job.held for job in live) or (spec.queue is None and not live)
    working = any(job.ready for job in live)
    stuck = bool(live) and not working
    idle_since = (memory.idle_since or seen.now) if stuck else 0.0
    wishes: dict[str, EngineWish] = {}
    wake: list[float] = []
    for engine in spec.engines:
        if engine.name not in used:
            continue
        patience = max(engine.idle_timeout_seconds, LEAST_IDLE_SECONDS)
        left = patience - (seen.now - idle_since) if stuck else None
        wanted = due and admitted and (left is None or left > 0)
        if wanted and left is not None:
            wake.append(left)
        if wanted or engine.name in seen.engines:
            wishes[engine.name] = EngineWish(engine.vllm.replicas if wanted else 0)
    ready = all(name in seen.engines and seen.engines[name].ready > 0 for name in used)
    return Wishes(wishes, ready, idle_since, min(wake) if wake else None)


def engines_in_use(spec: RunSpec) -> tuple[str, ...]:
    """Names of the engines that a role refers to, sorted."""
    return tuple(sorted({m.engine_ref.name for m in spec.roles().values() if m.engine_ref is not None}))


def gpu_seconds(spec: RunSpec, memory: Memory, now: float) -> float:
    """Seconds times GPUs held so far; GPUs count from when an engine's pods are asked for until they
    are not."""
    return memory.gpu_seconds + sum(
        _gpus(spec).get(name, 0) * max(0.0, now - since) for name, since in memory.engines_since.items()
    )


def account(spec: RunSpec, memory: Memory, wishes: Mapping[str, EngineWish], now: float) -> Memory:
    """The memory with what engines held that now go, and the start of those that now come."""
    held = {name for name, wish in wishes.items() if wish.replicas}
    gone = {name: since for name, since in memory.engines_since.items() if name not in held}
    spent = sum(_gpus(spec).get(name, 0) * max(0.0, now - since) for name, since in gone.items())
    since = {name: memory.engines_since.get(name, now) for name in sorted(held)}
    return replace(memory, gpu_seconds=memory.gpu_seconds + spent, engines_since=since)


def _gpus(spec: RunSpec) -> dict[str, int]:
    return {engine.name: engine.vllm.gpus_per_replica * engine.vllm.replicas for engine in spec.engines}
