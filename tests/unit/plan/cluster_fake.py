"""A small cluster in memory: Jobs whose pods are placed under a quota, work, die and leave results; a
store of manifests; engines that come up late; and an operator that keeps its memory as JSON only."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from cluster_bench import summary

from combee.plan.cluster.decide import ClusterPlan, Run, decide_cluster
from combee.plan.cluster.engines import gpu_seconds
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import YIELDED, EngineSeen, JobSeen, QueueSeen, Seen
from combee.plan.types import IterationPlan, Step, StepSummary

WORK_SECONDS = {"profile": 4, "diagnose": 9, "map": 7, "reduce": 5, "finish": 6, "evaluate": 5, "publish": 2}
LOADING_SECONDS = 20
ADMISSION_SECONDS = 12
KEPT_SECONDS = 40
RESYNC_SECONDS = 1e9
"""Never: what a run waits for is an event, or a time that its plan names."""
TRIES = 7
"""of an index before it has failed for good."""
SHARED = ""
"""stands for the run of an engine that none has alone."""
PHASES = ("Profiling", "Learning", "Evaluating", "Publishing", "Complete")


@dataclass(slots=True)
class FakePod:
    """A pod of a Job's index."""

    at_work: bool = False
    done: bool = False
    left: float = 0.0
    waited: float = 0.0
    tries: int = 0


@dataclass(slots=True)
class FakeJob:
    """A Job. ``gone_in``: seconds until its deletion is through."""

    run: str
    step: Step
    attempt: int
    pods: list[FakePod]
    complete: bool = False
    failed: str = ""
    gone_in: float | None = None
    expires_in: float | None = None
    said: StepSummary | None = None

    @property
    def live(self) -> bool:
        """Whether it still has something to do."""
        return not (self.complete or self.failed or self.gone_in is not None)


@dataclass(slots=True)
class FakeEngine:
    """A Deployment. ``users``: the runs that own it together, where it is shared."""

    replicas: int
    loading: float = LOADING_SECONDS
    users: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FakePlace:
    """A run's Workload. ``waits``: seconds until its queue looks at it."""

    waits: float = ADMISSION_SECONDS
    admitted: bool = False
    evicted: bool = False
    ready: bool = False


@dataclass(slots=True)
class FakeRun:
    """A run object: its spec and its status, which is JSON."""

    run: Run
    status: str = "{}"
    suspend: bool = False
    held_since: float = 0.0
    gpu_seconds: float = 0.0
    """that its engines held, by the cluster's own count."""

    @property
    def memory(self) -> Memory:
        """What an operator that has just started knows."""
        return _read(self.status)


@functools.lru_cache(64)
def _read(status: str) -> Memory:
    return Memory.from_status(json.loads(status))


@dataclass(slots=True)
class World:
    """The cluster. ``quota``: pods at once; ``room``: runs that the queue admits at once."""

    runs: dict[str, FakeRun]
    quota: int = 99
    room: int = 99
    places: dict[str, FakePlace] = field(default_factory=dict)
    now: float = 1_000_000.0
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    engines: dict[tuple[str, str], FakeEngine] = field(default_factory=dict)
    plans: dict[tuple[str, int], IterationPlan] = field(default_factory=dict)
    store: dict[tuple[str, int], StepSummary] = field(default_factory=dict)
    finished: list[tuple[str, str, str]] = field(default_factory=list)
    """(run, step, artifact) in the order they were made."""
    turn: int = 0
    known: dict[str, tuple[Seen, str, float]] = field(default_factory=dict)
    """run -> the facts and the status that it was settled on, and when it wants to be looked at again."""

    # -- time ------------------------------------------------------------------------------------------

    def pass_seconds(self, seconds: float) -> None:
        """Let the controllers, the scheduler, the pods and the engines go on."""
        self.now += seconds
        for name, job in list(self.jobs.items()):
            _count_down(job, seconds)
            if (job.gone_in is not None and job.gone_in <= 0) or (
                job.expires_in is not None and job.expires_in <= 0
            ):
                del self.jobs[name]
        for engine in self.engines.values():
            if engine.replicas:
                engine.loading -= seconds
            for user in engine.users:
                gpus = self.runs[user].run.spec.engines[0].vllm.gpus_per_replica
                self.runs[user].gpu_seconds += seconds * gpus * engine.replicas / len(engine.users)
        self._admit(seconds)
        self._place()
        for name, job in list(self.jobs.items()):
            if job.live:
                self._work(name, job, seconds)

    def _admit(self, seconds: float) -> None:
        """Whoever came first, as far as there is room."""
        for place in self.places.values():
            place.waits -= seconds
            free = self.room - sum(one.admitted or one.evicted for one in self.places.values())
            if free > 0 and place.waits <= 0 and not place.evicted:
                place.admitted = True

    def _place(self) -> None:
        """Each free place to some Job's pod; whose turn it is changes, as it does on a cluster."""
        self.turn += 1
        names = sorted(self.jobs)
        cut = self.turn % max(1, len(names))
        free = self.quota - sum(pod.at_work for job in self.jobs.values() for pod in job.pods)
        for name in names[cut:] + names[:cut]:
            job = self.jobs[name]
            for pod in job.pods if job.live else ():
                if free > 0 and not pod.at_work and not pod.done and pod.tries < TRIES:
                    pod.at_work, pod.left, pod.waited = True, WORK_SECONDS[job.step.kind], 0.0
                    free -= 1

    def _work(self, name: str, job: FakeJob, seconds: float) -> None:
        for index, pod in enumerate(job.pods):
            if pod.at_work:
                self._pod(job, index, pod, seconds)
        over = [pod.done or pod.tries >= TRIES for pod in job.pods]
        if all(over):
            job.complete = all(pod.done for pod in job.pods)
            job.failed = "" if job.complete else "FailedIndexes"

    def _pod(self, job: FakeJob, index: int, pod: FakePod, seconds: float) -> None:
        step = job.step
        there = self.store.get((step.name, index))
        if there is None and not self._inputs(step):
            limit = step.params.get("waitSeconds")
            assert limit is not None, f"{step.name} was started in turn and its inputs are not there"
            pod.waited += seconds
            if pod.waited > limit:
                pod.at_work, pod.done = False, True
                job.said = StepSummary(step.name, step.kind, error=YIELDED)
            return
        if there is None and step.kind not in ("publish", "finish") and not self._served(job.run):
            return
        pod.left -= seconds
        if there is not None or pod.left <= 0:
            pod.at_work, pod.done = False, True
            job.said = self._leave(job, index)

    def _inputs(self, step: Step) -> bool:
        plan = next((p for (_, i), p in self.plans.items() if i == step.iteration), None)
        needed = {"map": plan.shards if plan else 0, "reduce": 1}
        return all(
            (step.inputs[kind], k) in self.store
            for kind in ("map", "reduce")
            if kind in step.inputs
            for k in range(needed[kind])
        )

    def _served(self, run: str) -> bool:
        mine = [one for (owner, _), one in self.engines.items() if owner == run or run in one.users]
        asked = self.runs[run].run.spec.engines
        return len(mine) == len(asked) and all(e.replicas and e.loading <= 0 for e in mine)

    def _leave(self, job: FakeJob, index: int) -> StepSummary:
        """Write the shard's manifest; the first one wins."""
        step, key = job.step, (job.step.name, index)
        if key not in self.store:
            self.store[key] = self._summary(job.run, step, index)
            if "artifact" in self.store[key].outputs:
                self.finished.append((job.run, step.name, self.store[key].outputs["artifact"]))
        return self.store[key]

    def _summary(self, run: str, step: Step, index: int) -> StepSummary:
        if step.kind == "map":
            return StepSummary(step.name, "map")
        said = replace(summary(step.kind, step.iteration), step=step.name)
        if step.kind != "finish":
            return said
        read = (dict(step.inputs), self.plans[run, step.iteration].to_json().decode())
        artifact = hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()
        return replace(said, outputs={"artifact": artifact})

    # -- what an operator sees and does ----------------------------------------------------------------

    def see(self, name: str) -> Seen:
        """One tick's facts of a run."""
        run = self.runs[name]
        iteration = run.memory.run.iteration
        plan = self.plans.get((name, iteration))
        return Seen(
            now=self.now,
            suspend=run.suspend,
            jobs={one.name: one for one in self._jobs(name)},
            engines={
                engine: EngineSeen(
                    engine,
                    one.replicas,
                    one.replicas if one.loading <= 0 else 0,
                    users=max(1, len(one.users)),
                    place=sorted(one.users).index(name) if one.users else 0,
                )
                for (owner, engine), one in self.engines.items()
                if owner == name or name in one.users
            },
            plans={} if plan is None else {iteration: plan},
            queue=self._queue(name),
        )

    def _queue(self, name: str) -> QueueSeen | None:
        if self.runs[name].run.spec.queue is None:
            return None
        place = self.places.get(name)
        if place is None:
            return QueueSeen()
        return QueueSeen(True, admitted=place.admitted, evicted=place.evicted, ready=place.ready)

    def _jobs(self, run: str) -> Iterator[JobSeen]:
        for name, job in self.jobs.items():
            if job.run == run:
                yield JobSeen(
                    name=name,
                    step=job.step.name,
                    kind=job.step.kind,
                    iteration=job.step.iteration,
                    attempt=job.attempt,
                    completions=len(job.pods),
                    ready=sum(pod.at_work for pod in job.pods),
                    succeeded=sum(pod.done for pod in job.pods),
                    complete=job.complete,
                    failed=job.failed,
                    deleting=job.gone_in is not None,
                    expiring=job.expires_in is not None,
                    summary=job.said if job.complete and job.step.kind != "map" else None,
                )

    def due(self, name: str) -> bool:
        """Whether anything of a run changed, or the time it asked for has come."""
        facts, status, wake = self.known.get(name, (Seen(now=0.0), "", 0.0))
        changed = status != self.runs[name].status or replace(self.see(name), now=0.0) != facts
        return changed or self.now >= wake

    def settled(self, name: str, plan: ClusterPlan) -> None:
        """Nothing is to be done before something changes or the plan's time comes."""
        wake = self.now + (plan.wake_after_seconds or RESYNC_SECONDS)
        self.known[name] = (replace(self.see(name), now=0.0), self.runs[name].status, wake)

    def tick(self, name: str, *, seen: Seen | None = None, writes: bool = True) -> ClusterPlan:
        """One reconcile on fresh or given facts. ``writes``: whether the status gets through."""
        run = self.runs[name]
        before = run.memory
        seen = seen or self.see(name)
        plan = decide_cluster(run.run, before, seen)
        while plan.freeze is not None:
            kept = self.plans.setdefault((name, plan.freeze.iteration), plan.freeze)
            seen = replace(seen, plans={**seen.plans, kept.iteration: kept})
            plan = decide_cluster(run.run, before, seen)
        self._follow(name, plan, seen)
        if writes:
            check_forward(before, plan.memory, run.run, seen.now)
            run.status = json.dumps(plan.memory.to_status())
            assert run.memory == plan.memory
        return plan

    def _follow(self, name: str, plan: ClusterPlan, seen: Seen) -> None:
        if seen.queue is not None and not seen.queue.admitted:
            assert not plan.jobs and not any(wish.replicas for wish in plan.engines.values()), "out of turn"
        if plan.queue in ("GiveBack", "Leave", "Join") and not plan.memory.ended:
            mine = [job for job in self.jobs.values() if job.run == name and job.live]
            assert not mine and (name, "main") not in self.engines, f"{plan.queue} while it holds something"
        if plan.queue == "Join":
            self.places.setdefault(name, FakePlace())
        elif plan.queue == "Leave":
            self.places.pop(name, None)
        elif (place := self.places.get(name)) is not None and plan.queue == "GiveBack":
            self.places[name] = FakePlace(place.waits)
        elif place is not None and plan.queue == "TellReady":
            place.ready = True
        for gone in plan.delete:
            if (job := self.jobs.get(gone)) is not None and job.gone_in is None:
                job.gone_in = 3.0
                for pod in job.pods:
                    pod.at_work = False
        for engine, wish in plan.engines.items():
            self._engine(name, engine, wish.replicas, remove=wish.remove)
        for wished in plan.jobs:
            if wished.name not in seen.jobs and wished.name not in self.jobs:
                check_early(wished.step, seen)
                pods = [FakePod() for _ in range(wished.step.shards)]
                self.jobs[wished.name] = FakeJob(name, wished.step, wished.attempt, pods)
        for old in plan.expire:
            if old in self.jobs:
                self.jobs[old].expires_in = self.jobs[old].expires_in or KEPT_SECONDS

    def _share(self, run: str, engine: str, replicas: int) -> None:
        """Join a shared engine, or leave it; the last one takes it down."""
        there = self.engines.get((SHARED, engine))
        if there is None and replicas:
            there = self.engines[SHARED, engine] = FakeEngine(replicas)
        if there is not None:
            there.users = [user for user in there.users if user != run] + [run] * bool(replicas)
            if not there.users:
                del self.engines[SHARED, engine]

    def _engine(self, run: str, engine: str, replicas: int, *, remove: bool) -> None:
        if self.runs[run].run.spec.engines[0].shared:
            self._share(run, engine, replicas)
            return
        there = self.engines.get((run, engine))
        if there is None and not replicas:
            return
        if there is None:
            there = self.engines[run, engine] = FakeEngine(0)
        owner = self.runs[run]
        vllm = owner.run.spec.engines[0].vllm
        if replicas and not there.replicas:
            owner.held_since, there.loading = self.now, LOADING_SECONDS
        if there.replicas and not replicas:
            owner.gpu_seconds += (self.now - owner.held_since) * vllm.gpus_per_replica * there.replicas
        there.replicas = replicas
        if remove:
            del self.engines[run, engine]


def _count_down(job: FakeJob, seconds: float) -> None:
    if job.gone_in is not None:
        job.gone_in -= seconds
    if job.expires_in is not None and (job.complete or job.failed):
        job.expires_in -= seconds


def check_early(step: Step, seen: Seen) -> None:
    """A step that waits for its inputs is made only when every pod before it has its place."""
    if "waitSeconds" not in step.params:
        return
    before = {"reduce": "map", "finish": "reduce"}[step.kind]
    there = [job for job in seen.jobs.values() if (job.kind, job.iteration) == (before, step.iteration)]
    assert any(job.placed for job in there), f"{step.name} is early: {there}"


def check_forward(before: Memory, after: Memory, run: Run, now: float) -> None:
    """A memory never goes back."""

    def position(memory: Memory) -> tuple[int, int, int]:
        return (memory.run.iteration, PHASES.index(memory.run.phase), memory.run.examples_done)

    assert position(after) >= position(before)
    assert after.run.spend.rollouts >= before.run.spend.rollouts
    assert after.elapsed(now) >= before.elapsed(now) - 1e-6
    assert gpu_seconds(run.spec, after, now) >= gpu_seconds(run.spec, before, now) - 1e-6
    assert before.started in (0.0, after.started) and before.ended in (0.0, after.ended)
    assert before.gate in (None, after.gate) and before.baseline in ("", after.baseline)
    assert after.notes[: len(before.notes)] == before.notes
