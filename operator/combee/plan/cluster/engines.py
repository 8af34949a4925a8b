"""When a run's engines hold their GPUs, and what time alone uses up. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from combee.algo.budget import Spend, fits
from combee.algo.parallelism import share
from combee.api.run import RunSpec
from combee.plan.cluster.memory import Memory, Served
from combee.plan.cluster.seen import Seen
from combee.plan.engine import served_at_once
from combee.plan.money import money_of
from combee.plan.state import RunState, limits_of
from combee.plan.types import Clocks, Outcome
from combee.steps import DIAGNOSE, EVALUATE, ITERATION, PROFILE, PUBLISH, StepKind, kind_of, roles_ahead

FETCH_SECONDS = 5.0
"""The time between two looks at the Job that fetches weights."""
SERVICE_SECONDS = 5.0
"""The time between two looks at a service that is not ready: it is not watched."""
LEAST_IDLE_SECONDS = 30.0
"""A pod takes this long to start, so an engine does not count as idle before."""
LEAST_WAKE_SECONDS = 1.0
"""Exactly reaching a limit is still within it: the operator looks again this much later."""


PATIENCE_SECONDS = 15.0
SPREAD_SECONDS = 15.0
PAUSE_SECONDS = 20.0
LONGEST_PAUSE_SECONDS = 600.0
UNPLACED = ("Unschedulable", "WaitingForQuota")
_LET_GO = (
    "some engines find no node while others hold theirs: all are let go for a while, "
    "so that another run's can come up"
)


@dataclass(frozen=True, slots=True)
class EngineWish:
    """How many servers an engine should have. ``remove``: whether its objects should go, too."""

    replicas: int
    remove: bool = False


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the engines should be now. ``may_start``: whether a step that asks models may start."""

    wishes: Mapping[str, EngineWish]
    may_start: bool
    memory: Memory
    wake_after_seconds: float | None
    waiting: str = ""
    """why they are not up, where the operator took them down or somebody else's are not ready."""


def engines_wished(
    spec: RunSpec, memory: Memory, seen: Seen, *, due: bool, keeps: bool = False, uid: str = ""
) -> Wishes:
    """Return the engines that a tick wants. ``due``: whether a step that calls models is to be done;
    ``keeps``: whether those that are up stay for the one after it.

    They come up before the first step, stay while pods work and from one step to the next, and go when no
    step to come asks them, or when no pod of a live Job has worked for their ``idleTimeoutSeconds``: work
    that waits for a node or a quota holds no GPU for ever.
    """
    ahead = next_kind(memory.run), memory.run.unasked
    own = own_engines_in_use(spec, *ahead)
    live = [job for job in seen.jobs.values() if job.live and kind_of(job.kind).asks_models]
    half = halfway(uid, own, memory, seen)
    memory = half.memory
    admitted = not live or any(not job.held for job in live)
    working = any(job.ready for job in live)
    stuck = bool(live) and not working
    idle_since = (memory.idle_since or seen.now) if stuck else 0.0
    wishes: dict[str, EngineWish] = {}
    wake = [] if half.wake_after_seconds is None else [half.wake_after_seconds]
    waiting = waits_for(seen, engines_in_use(spec, *ahead))
    if waiting:
        wake.append(SERVICE_SECONDS)
    for engine in spec.engines:
        held = engine.name in memory.engines_since or _wished_before(seen, engine.name)
        patience = max(engine.idle_timeout_seconds, LEAST_IDLE_SECONDS)
        left = patience - (seen.now - idle_since) if stuck else None
        wanted = (
            engine.name in own
            and (due or (keeps and held))
            and not half.let_go
            and (held or (admitted and not waiting))
            and (left is None or left > 0)
        )
        if wanted and left is not None:
            wake.append(left)
        if wanted or held or engine.name in seen.engines:
            wishes[engine.name] = EngineWish(engine.server.replicas if wanted else 0)
    if any(fetch.reason != "LoadFailed" for fetch in seen.fetching.values()):
        # No event of the Job says that its pod cannot start.
        wake.append(FETCH_SECONDS)
    ready = all(name in seen.engines and seen.engines[name].ready > 0 for name in own)
    memory = replace(memory, idle_since=idle_since)
    may_start = not waiting and ready and not half.let_go
    return Wishes(wishes, may_start, memory, min(wake, default=None), half.message or waiting)


def engines_down(memory: Memory, seen: Seen) -> dict[str, EngineWish]:
    """Return wishes for no GPUs at all. An engine that was asked for and is not seen yet counts as there."""
    return {name: EngineWish(replicas=0) for name in sorted({*seen.engines, *memory.engines_since})}


def held_back_whole(seen: Seen) -> bool:
    """Return whether queues that the cluster chose hold back all that the run has to do now: its clock stops
    meanwhile. Without a Job, an engine that is held back keeps the next one from starting."""
    live = [job for job in seen.jobs.values() if job.live]
    if live:
        return all(job.held for job in live)
    return any(engine.held for engine in seen.engines.values())


@dataclass(frozen=True, slots=True)
class Deadline:
    """How far away the limits are that time alone reaches. ``passed``: the first that is passed."""

    passed: Outcome | None
    seconds_left: float | None
    """the time until the next limit; None without one, or while nothing counts towards it."""


def deadline(spec: RunSpec, memory: Memory, now: float) -> Deadline:
    """Return the deadline by wallClockSeconds, gpuSeconds and money, which hold at any point of a run."""
    limits = replace(limits_of(spec), rollouts=None, tokens=None)
    held_seconds = gpu_seconds(spec, memory, now)
    money = money_of(spec, memory.run.usage, held_seconds)
    spent = Spend(gpu_seconds=held_seconds, wall_clock_seconds=memory.elapsed(now), money=money)
    exceeded = fits(spent, Spend(), limits)
    if exceeded is not None:
        return Deadline(Outcome("BudgetExhausted", exceeded.is_spent), None)
    margins = []
    if limits.wall_clock_seconds is not None and memory.active_since:
        margins.append(limits.wall_clock_seconds - spent.wall_clock_seconds)
    held = sum(_gpus_charged(spec, memory, name) for name in memory.engines_since)
    if limits.gpu_seconds is not None and held:
        margins.append((limits.gpu_seconds - spent.gpu_seconds) / held)
    if limits.money is not None and (a_second := money_of(spec, {}, held)):
        margins.append((limits.money - spent.money) / a_second)
    return Deadline(None, max(LEAST_WAKE_SECONDS, min(margins)) if margins else None)


def next_kind(state: RunState) -> StepKind:
    """Return the first kind of step that a run in this state has still to do."""
    if state.phase == "Profiling":
        return PROFILE if state.facts is None else DIAGNOSE
    return {"Learning": ITERATION[0], "Evaluating": EVALUATE}.get(state.phase, PUBLISH)


def engines_in_use(spec: RunSpec, kind: StepKind = PROFILE, unasked: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the engines that a role in use refers to, sorted; only those that a step of this
    kind, or a later one, asks. ``unasked``: roles that the run turned out not to need."""
    ahead = roles_ahead(kind).difference(unasked)
    refs = (model.engine_ref for role, model in spec.roles_in_use().items() if role in ahead)
    return tuple(sorted({ref.name for ref in refs if ref is not None}))


def own_engines_in_use(
    spec: RunSpec, kind: StepKind = PROFILE, unasked: Collection[str] = ()
) -> tuple[str, ...]:
    """Return those of them that the run brings up itself."""
    own = {engine.name for engine in spec.engines if engine.vllm is not None}
    return tuple(name for name in engines_in_use(spec, kind, unasked) if name in own)


def shared_engines(spec: RunSpec) -> tuple[str, ...]:
    """Return the engines of a run whose servers other runs may use: what a GPU does there is nobody's own."""
    used = own_engines_in_use(spec)
    return tuple(engine.name for engine in spec.engines if engine.shared and engine.name in used)


def waits_for(seen: Seen, used: Collection[str]) -> str:
    """Return what the first service of the engines ``used`` that is not ready lacks; empty when all are."""
    services = sorted((name, service) for name, service in seen.services.items() if name in used)
    lacks = ((name, service.waits_for) for name, service in services)
    return next((f"engine {name} waits for {lack}" for name, lack in lacks if lack), "")


def with_services(memory: Memory, seen: Seen) -> Memory:
    """Return the memory with where services answer now, and with the model of those that were not seen
    before."""
    ready = {name: service for name, service in seen.services.items() if service.url}
    served = {
        name: Served(service.url, known.model if (known := memory.services.get(name)) else service.model)
        for name, service in ready.items()
    }
    return replace(memory, services={**memory.services, **served})


def gpu_seconds(spec: RunSpec, memory: Memory, now: float) -> float:
    """Return seconds times GPUs held so far. GPUs are held for as long as an engine's pods are asked for."""
    return memory.gpu_seconds + _gpu_seconds_since(spec, memory, memory.engines_since, now)


def clocks_of(spec: RunSpec, memory: Memory, now: float) -> Clocks:
    """Return what the clocks show, as a decision sees them and as they are recorded with it."""
    return Clocks(round(memory.elapsed(now), 3), round(gpu_seconds(spec, memory, now), 3))


def _gpu_seconds_since(spec: RunSpec, memory: Memory, starts: Mapping[str, float], now: float) -> float:
    return sum(_gpus_charged(spec, memory, name) * max(0.0, now - since) for name, since in starts.items())


def _gpus_charged(spec: RunSpec, memory: Memory, name: str) -> float:
    """Return the run's part of an engine's GPUs: all runs that use it pay alike."""
    return _gpus(spec).get(name, 0) / memory.engine_users.get(name, 1)


def account(spec: RunSpec, memory: Memory, wishes: Mapping[str, EngineWish], seen: Seen) -> Memory:
    """Return the memory with what leaving engines held, and with the start of those that now come. A stretch
    ends, too, when another run comes to a shared engine or leaves it, and when a queue holds all its pods
    back."""
    held = {name for name, one in seen.engines.items() if one.held}
    holding = {name for name, wish in wishes.items() if wish.replicas and name not in held}
    users = {name: one.users for name, one in seen.engines.items() if name in holding and one.users > 1}
    ended = {
        name: since
        for name, since in memory.engines_since.items()
        if name not in holding or users.get(name, 1) != memory.engine_users.get(name, 1)
    }
    known = {name: since for name, since in memory.engines_since.items() if name not in ended}
    return replace(
        memory,
        gpu_seconds=memory.gpu_seconds + _gpu_seconds_since(spec, memory, ended, seen.now),
        engines_since={name: known.get(name, seen.now) for name in sorted(holding)},
        engine_users=users,
    )


def calls_at_once(spec: RunSpec, seen: Seen, roles: Collection[str]) -> int | None:
    """Return how many calls of ``roles`` may be in flight beside those of the other runs that use the same
    engines now: an equal part of what an engine takes, the least of several. None where none is shared."""
    used = {
        model.engine_ref.name
        for role, model in spec.roles_in_use().items()
        if role in roles and model.engine_ref is not None
    }
    parts = [
        share(served_at_once(engine) or spec.workers.concurrency, one.users, one.place)
        for engine in spec.engines
        if engine.shared and engine.name in used and (one := seen.engines.get(engine.name)) is not None
    ]
    return min(spec.workers.concurrency, *parts) if parts else None


def gpus_in_use(spec: RunSpec, kind: StepKind) -> int:
    """Return how many GPUs the run's own engines hold while a step of this kind works."""
    return sum(_gpus(spec)[name] for name in own_engines_in_use(spec, kind))


def gpus_charged(spec: RunSpec, memory: Memory, kind: StepKind) -> float:
    """Return the run's part of these GPUs, as it is charged for them now; none for roles that it turned out
    not to need."""
    own = own_engines_in_use(spec, kind, memory.run.unasked)
    return sum(_gpus_charged(spec, memory, name) for name in own)


def _gpus(spec: RunSpec) -> dict[str, int]:
    servers = {engine.name: engine.vllm for engine in spec.engines if engine.vllm is not None}
    return {name: vllm.gpus_per_replica * vllm.replicas for name, vllm in servers.items()}


@dataclass(frozen=True, slots=True)
class Halfway:
    """Whether the engines are taken down for now. ``message`` says why, and is empty otherwise."""

    memory: Memory
    let_go: bool = False
    wake_after_seconds: float | None = None
    message: str = ""


def halfway(uid: str, used: tuple[str, ...], memory: Memory, seen: Seen) -> Halfway:
    """Return what to do about engines of which some have a node and others have none.

    Two runs that each hold half of the GPUs that both need would wait for ever. So a run waits a while and
    then scales all its engines to 0 for a pause. How long differs from run to run and from time to time, so
    that two runs do not take turns in step; the one still waiting then finds the GPUs that the other freed.
    """
    if memory.let_go_until:
        seconds_left = memory.let_go_until - seen.now
        if seconds_left > 0:
            return Halfway(memory, True, seconds_left, _LET_GO)
        memory = replace(memory, let_go_until=0.0, halfway_since=0.0)
    stuck = [name for name in used if _stuck(seen, name)]
    if not stuck or len(stuck) == len(used):
        ready = all(name in seen.engines and seen.engines[name].ready for name in used)
        return Halfway(replace(memory, halfway_since=0.0, let_goes=0 if ready else memory.let_goes))
    since = memory.halfway_since or seen.now
    memory = replace(memory, halfway_since=since)
    patience = PATIENCE_SECONDS + SPREAD_SECONDS * _luck(uid, memory.let_goes, "patience")
    seconds_left = patience - (seen.now - since)
    if seconds_left > 0:
        return Halfway(memory, wake_after_seconds=seconds_left)
    pause = _pause(uid, memory.let_goes)
    memory = replace(memory, halfway_since=0.0, let_go_until=seen.now + pause, let_goes=memory.let_goes + 1)
    return Halfway(memory, True, pause, _LET_GO)


def _wished_before(seen: Seen, name: str) -> bool:
    engine = seen.engines.get(name)
    return engine is not None and engine.replicas > 0


def _stuck(seen: Seen, name: str) -> bool:
    engine = seen.engines.get(name)
    return (
        engine is not None
        and engine.replicas > 0
        and engine.ready == 0
        and engine.trouble is not None
        and engine.trouble.reason in UNPLACED
    )


def _pause(uid: str, times: int) -> float:
    """Return a pause, longer each time, since whoever got the GPUs needs them for longer than a pause."""
    longest = min(LONGEST_PAUSE_SECONDS, PAUSE_SECONDS * 2.0 ** min(times + 1, 10))
    return PAUSE_SECONDS + (longest - PAUSE_SECONDS) * _luck(uid, times, "pause")


def _luck(uid: str, times: int, purpose: str) -> float:
    """Return a uniform number in [0, 1), always the same for equal arguments."""
    digest = hashlib.sha256(f"{uid}:{times}:{purpose}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / float(1 << 48)
