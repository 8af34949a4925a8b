"""When a run's engines hold their GPUs, and what time alone uses up. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from combee.algo.budget import Spend, fits
from combee.api.run import RunSpec
from combee.plan.cluster.halfway import halfway
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import Seen
from combee.plan.decide import limits_of
from combee.plan.types import Outcome
from combee.steps import kind_of

FETCH_SECONDS = 5.0
"""Between two looks at the Job that fetches weights."""
LEAST_IDLE_SECONDS = 30.0
"""A pod takes a while to start: an engine is not idle for that."""
LEAST_WAKE_SECONDS = 1.0
"""Exactly reaching a limit is within it: ask again a little later."""


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
    memory: Memory
    wake_after_seconds: float | None
    waiting: str = ""
    """why they are not up, where that is our own doing."""


def engines_wished(spec: RunSpec, memory: Memory, seen: Seen, *, due: bool, uid: str = "") -> Wishes:
    """The engines a tick wants. ``due``: a step that calls models is to be done.

    They come up with the first step that was admitted, stay while pods work and from one step to the
    next, and go when no pod of a live Job has worked for their ``idleTimeoutSeconds``: work that waits
    for a node, a quota or a queue holds no GPU for ever. ``uid``: the run's; ``halfway`` says what for.
    """
    used = engines_in_use(spec)
    half = halfway(uid, used, memory, seen)
    memory = half.memory
    live = [job for job in seen.jobs.values() if job.live and kind_of(job.kind).asks_models]
    admitted = any(not job.held for job in live) or (spec.queue is None and not live)
    working = any(job.ready for job in live)
    stuck = bool(live) and not working
    idle_since = (memory.idle_since or seen.now) if stuck else 0.0
    wishes: dict[str, EngineWish] = {}
    wake = [] if half.wake_after_seconds is None else [half.wake_after_seconds]
    for engine in spec.engines:
        if engine.name not in used:
            continue
        patience = max(engine.idle_timeout_seconds, LEAST_IDLE_SECONDS)
        left = patience - (seen.now - idle_since) if stuck else None
        held = engine.name in memory.engines_since
        wanted = due and not half.let_go and (admitted or held) and (left is None or left > 0)
        if wanted and left is not None:
            wake.append(left)
        if wanted or held or engine.name in seen.engines:
            wishes[engine.name] = EngineWish(engine.vllm.replicas if wanted else 0)
    if any(fetch.reason != "LoadFailed" for fetch in seen.fetching.values()):
        # No event of the Job tells that its pod cannot start.
        wake.append(FETCH_SECONDS)
    ready = all(name in seen.engines and seen.engines[name].ready > 0 for name in used)
    memory = replace(memory, idle_since=idle_since)
    return Wishes(wishes, ready and not half.let_go, memory, min(wake) if wake else None, half.said)


def engines_down(memory: Memory, seen: Seen) -> dict[str, EngineWish]:
    """No engine holds a GPU; one that was asked for and is not seen yet counts as there."""
    return {name: EngineWish(replicas=0) for name in sorted({*seen.engines, *memory.engines_since})}


def waits_in_queue(spec: RunSpec, memory: Memory, seen: Seen) -> bool:
    """Whether a queue holds all there is to do back: such time is not the run's."""
    live = [job for job in seen.jobs.values() if job.live]
    if live:
        return all(job.held for job in live)
    return spec.queue is not None and not (memory.active_since or memory.active_seconds)


@dataclass(frozen=True, slots=True)
class Deadline:
    """How far the limits that time alone reaches are. ``passed``: the first that is."""

    passed: Outcome | None
    seconds_left: float | None
    """until the next one; None: no such limit, or nothing counts towards it now."""


def deadline(spec: RunSpec, memory: Memory, now: float) -> Deadline:
    """wallClockSeconds and gpuSeconds, which hold whatever the run is at, as on a laptop."""
    limits = replace(limits_of(spec), rollouts=None, tokens=None)
    spent = Spend(gpu_seconds=gpu_seconds(spec, memory, now), wall_clock_seconds=memory.elapsed(now))
    exceeded = fits(spent, Spend(), limits)
    if exceeded is not None:
        return Deadline(
            Outcome("BudgetExhausted", f"the budget of {exceeded.limit:,.0f} {exceeded.name} is spent"), None
        )
    left = []
    if limits.wall_clock_seconds is not None and memory.active_since:
        left.append(limits.wall_clock_seconds - spent.wall_clock_seconds)
    held = sum(_gpus(spec).get(name, 0) for name in memory.engines_since)
    if limits.gpu_seconds is not None and held:
        left.append((limits.gpu_seconds - spent.gpu_seconds) / held)
    return Deadline(None, max(LEAST_WAKE_SECONDS, min(left)) if left else None)


def engines_in_use(spec: RunSpec) -> tuple[str, ...]:
    """Names of the engines that a role in use refers to, sorted."""
    return tuple(
        sorted({m.engine_ref.name for m in spec.roles_in_use().values() if m.engine_ref is not None})
    )


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
