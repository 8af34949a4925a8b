"""Where a run stands, and its conditions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from combee.api import evaluation
from combee.api.conditions import Condition, ConditionType, Reason
from combee.api.discipline import lacking, waivers
from combee.api.run import RunSpec
from combee.api.status import Phase
from combee.plan.calibrated import who_scores
from combee.plan.cluster.decide import ClusterPlan
from combee.plan.cluster.engines import engines_in_use, next_kind, own_engines_in_use, waits_for
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.queues import held_back, not_admitted
from combee.plan.cluster.rollouts import troubled
from combee.plan.cluster.seen import EngineSeen, Seen, Trouble
from combee.plan.diagnosis import words
from combee.plan.state import repeats

T, R = ConditionType, Reason
Stand = tuple[str, Reason, str]
"""The status, reason and message of a condition."""

ERRORS: Mapping[str, Reason] = {
    "InvalidManifest": R.INVALID_MANIFEST,
    "NotAvailable": R.NOT_AVAILABLE,
    "UserError": R.INVALID_MANIFEST,
    "InvalidData": R.INVALID_DATA,
    "DataOverlap": R.DATA_OVERLAP,
    "HeldOutTooSmall": R.HELD_OUT_TOO_SMALL,
    "HeldOutMoved": R.HELD_OUT_MOVED,
    "EvaluatorNotCalibrated": R.EVALUATOR_NOT_CALIBRATED,
    "NoVerdict": R.EVALUATOR_NOT_CALIBRATED,
    "NoProxyVerdict": R.PROXY_NOT_CALIBRATED,
    "ProxyNotCalibrated": R.PROXY_NOT_CALIBRATED,
    "AddressNotAllowed": R.ADDRESS_NOT_ALLOWED,
    "Endpoint": R.ENDPOINT_REFUSED,
    "ContextLength": R.ENDPOINT_REFUSED,
    "Store": R.STORE_UNUSABLE,
    "Damaged": R.STORE_UNUSABLE,
    "ArtifactTooLarge": R.STORE_UNUSABLE,
    "": R.TOO_MANY_FAILURES,
}
"""An error's code -> the reason of a failed run; any other code is an internal error."""
_ENDS: Mapping[str, tuple[Phase, Reason]] = {
    "Learned": (Phase.LEARNED, R.LEARNED),
    "Unsure": (Phase.UNSURE, R.UNSURE),
    "NothingBetter": (Phase.NOTHING_BETTER, R.NOTHING_BETTER),
    "BudgetExhausted": (Phase.BUDGET_EXHAUSTED, R.BUDGET_SPENT),
    "Stopped": (Phase.STOPPED, R.STOPPED),
}
_WORK: Mapping[Phase, Reason] = {
    Phase.PENDING: R.PENDING,
    Phase.PREPARING: R.PREPARING,
    Phase.LEARNING: R.LEARNING,
    Phase.FINISHING: R.FINISHING,
    Phase.SUSPENDED: R.SUSPENDED,
}
_SPENT: Mapping[str, Reason] = {
    "rollouts": R.ROLLOUTS_SPENT,
    "tokens": R.TOKENS_SPENT,
    "gpuSeconds": R.GPU_SECONDS_SPENT,
    "wallClockSeconds": R.WALL_CLOCK_SPENT,
    "money": R.MONEY_SPENT,
}


@dataclass(frozen=True, slots=True)
class End:
    """Where the run stands, and why."""

    phase: Phase
    reason: Reason
    message: str


def standing(memory: Memory, plan: ClusterPlan, seen: Seen) -> End:
    """Return where the run stands, in a phase, a reason and a sentence."""
    outcome = memory.run.outcome
    if memory.ended and outcome is not None:
        if outcome.name == "Failed":
            return End(Phase.FAILED, ERRORS.get(memory.error, R.INTERNAL_ERROR), outcome.reason)
        phase, reason = _ENDS[outcome.name]
        calls = sum(usage.calls - usage.hits for usage in memory.run.usage.values())
        if outcome.name == "Learned" and not calls and memory.run.usage:
            reason = R.ALREADY_LEARNED
        return End(phase, reason, outcome.reason)
    if plan.held:
        return End(Phase.PREPARING, R.CHANGE_UNEXPLAINED, plan.held)
    if seen.suspend:
        return End(Phase.SUSPENDED, R.SUSPENDED, "spec.suspend is true: set it to false to go on")
    state = memory.run
    trouble = _trouble(seen)
    if state.phase == "Profiling":
        started = any(job.ready or job.succeeded for job in seen.jobs.values())
        phase = Phase.PREPARING if started else Phase.PENDING
        waiting = plan.waiting or "the first pod is being started"
        doing = "the start is scored on heldOut" if state.facts is None else "serial learning is diagnosed"
        activity = doing if started or state.facts is not None else waiting
    elif state.phase == "Learning":
        phase, activity = Phase.LEARNING, f"iteration {state.iteration + 1}"
        if (frozen := seen.plans.get(state.iteration)) is not None:
            activity += f", {frozen.batch_size} examples"
    else:
        phase = Phase.FINISHING
        activity = "the best artifact is compared with the start on gate, and published"
    begun = state.phase != "Profiling"
    hindrance = trouble.message if trouble else plan.waiting if begun else ""
    return End(phase, _WORK[phase], f"{activity}; {hindrance}" if hindrance else activity)


def _trouble(seen: Seen) -> Trouble | None:
    live = [job for job in sorted(seen.jobs.values(), key=lambda job: job.name) if job.live]
    jobs = [job.trouble for job in live if job.trouble]
    engines = [engine.trouble for _, engine in sorted(seen.engines.items()) if engine.trouble]
    fetches = [fetch for name, fetch in sorted(seen.fetching.items()) if name not in seen.engines]
    rollouts = [job.trouble for job in troubled(seen)]
    return next(iter([*engines, *fetches, *jobs, *rollouts]), None)


def conditions(spec: RunSpec, memory: Memory, plan: ClusterPlan, seen: Seen, end: End) -> Iterator[Condition]:
    over, failed = end.phase.over, end.phase is Phase.FAILED
    good = end.reason in (R.LEARNED, R.UNSURE, R.NOTHING_BETTER, R.ALREADY_LEARNED)
    suspended, held = end.phase is Phase.SUSPENDED, bool(plan.held)
    yield condition(T.READY, "True" if good else "False", end.reason, end.message)
    working = not over and not suspended and not held
    yield condition(T.RECONCILING, "True" if working else "False", end.reason, end.message)
    # Without this, kstatus would call a run that is over and not good in progress for ever.
    stalled = held or (over and not good)
    yield condition(T.STALLED, "True" if stalled else "False", end.reason, end.message)
    going = R.SUSPENDED if suspended else R.IN_PROGRESS
    complete = over and not failed
    completed = ("True", end.reason) if complete else ("False", going)
    yield condition(T.COMPLETE, *completed, end.message)
    yield condition(T.FAILED, "True" if failed else "False", end.reason if over else going, end.message)
    if held or (failed and end.reason in _REFUSALS):
        yield condition(T.PLAN_ACCEPTED, "False", end.reason, end.message)
    else:
        lacks = filter(None, (lacking(spec, unknown=memory.nodes.unknown),))
        parts = (*waivers(spec), *lacks, *spec.task.stakes.sentences(), *evaluation.sentences(spec))
        accepted = "; ".join(("the plan is good", *parts))
        yield condition(T.PLAN_ACCEPTED, "True", R.ACCEPTED, accepted)
    yield condition(T.QUOTA_RESERVED, *_quota(spec, seen, suspended, over))
    yield condition(T.PODS_PLACED, *_placed(seen, suspended, over))
    yield condition(T.ENGINES_READY, *_engines(spec, memory, seen, suspended or held or over))
    if spec.task.is_evaluated:
        yield condition(T.EVALUATOR_CALIBRATED, *calibrated(memory, end))
        if spec.models.proxy is not None:
            yield condition(T.PROXY_CALIBRATED, *proxied(spec, memory, end))
    yield condition(T.CONVERGING, *_converging(spec, memory))
    yield condition(T.BUDGET_EXHAUSTED, *_budget(memory))


_REFUSALS = (
    R.INVALID_MANIFEST,
    R.NOT_AVAILABLE,
    R.INVALID_DATA,
    R.DATA_OVERLAP,
    R.HELD_OUT_MOVED,
    R.HELD_OUT_TOO_SMALL,
)


def _quota(spec: RunSpec, seen: Seen, suspended: bool, over: bool) -> Stand:
    if suspended:
        return "False", R.SUSPENDED, "the run is suspended"
    if over and spec.queue is not None:
        if seen.queue is not None and seen.queue.made:
            return "True", R.RESERVED, f"the run leaves queue {spec.queue.name} when its last pod has ended"
        if seen.queue is not None and seen.queue.hidden:
            left = f"nobody can see whether it has left queue {spec.queue.name}"
            return "True", R.RESERVED, f"the run is over, and {left}: {seen.queue.lacks}"
        return "True", R.NO_QUEUE, f"the run is over and has left queue {spec.queue.name}"
    if waits := _waits_in_queue(spec, seen):
        return "False", R.WAITING_FOR_QUOTA, waits
    live = sorted((job for job in seen.jobs.values() if job.live), key=lambda job: job.name)
    # A Job that is there early may wait while the one before it works: the run does not.
    if live and all(job.held for job in live):
        return "False", R.WAITING_FOR_QUOTA, held_back(live[0].name, live[0].queue)
    for name, engine in sorted(seen.engines.items()):
        if engine.held and engine.trouble is not None:
            return "False", R.WAITING_FOR_QUOTA, f"engine {name}: {engine.trouble.message}"
    if spec.queue is None:
        return "True", R.NO_QUEUE, "the run uses no queue"
    return "True", R.RESERVED, f"queue {spec.queue.name} admitted the run"


def _waits_in_queue(spec: RunSpec, seen: Seen) -> str:
    """Return what the run's queue says while it does not let the run go on; empty where it does."""
    queue = seen.queue
    return not_admitted(spec, queue) if queue is not None and not queue.admitted else ""


def _placed(seen: Seen, suspended: bool, over: bool) -> Stand:
    if suspended:
        return "False", R.SUSPENDED, "the run is suspended"
    live = [job for job in seen.jobs.values() if job.live and not job.held]
    met = [job.trouble for job in sorted(live, key=lambda job: job.name)]
    for trouble in (*met, *(job.trouble for job in troubled(seen))):
        if trouble is not None and trouble.reason in _UNPLACED:
            return "False", Reason(trouble.reason), trouble.message
    if not live and not over:
        return "Unknown", R.NOT_STARTED, "no pod is asked for now"
    return "True", R.PLACED, "every pod has a node or is being started"


_UNPLACED = (R.UNSCHEDULABLE.value, R.IMAGE_PULL_FAILED.value, R.WAITING_FOR_QUOTA.value)


def _engines(spec: RunSpec, memory: Memory, seen: Seen, down: bool) -> Stand:
    used = engines_in_use(spec)
    if not used:
        return "True", R.NO_ENGINES, "the run has none of its own"
    if down:
        return "False", R.SCALED_DOWN, "they are taken down"
    if waits := _waits_in_queue(spec, seen):
        return "False", R.WAITING_FOR_QUOTA, waits
    ahead = next_kind(memory.run), memory.run.unasked
    if lacking := waits_for(seen, engines_in_use(spec, *ahead)):
        return "False", R.NOT_READY, lacking
    own = own_engines_in_use(spec, *ahead)
    absent = [name for name in own if name not in seen.engines]
    for name in absent:
        if (fetch := seen.fetching.get(name)) is not None:
            return "False", Reason(fetch.reason), f"engine {name}: {fetch.message}"
    if absent:
        return "Unknown", R.NOT_STARTED, f"not asked for yet: {', '.join(absent)}"
    for name in own:
        engine = seen.engines[name]
        if not engine.replicas:
            return "False", R.SCALED_DOWN, f"engine {name} is taken down: it was idle"
        if not engine.ready:
            trouble_reason = engine.trouble.reason if engine.trouble else ""
            shown = trouble_reason in (R.CRASHING, R.WAITING_FOR_QUOTA)
            reason = Reason(trouble_reason) if shown else R.STARTING
            loading = "its servers load the model"
            if engine.probed:
                loading = f"{loading}; their startup probe says: {engine.probed}"
            message = engine.trouble.message if engine.trouble else loading
            return "False", reason, f"engine {name}: {message}"
    counts = [f"{name} {_count(seen.engines[name])}" for name in own]
    hosts = [f"{n} at {urlsplit(service.url).netloc}" for n, service in sorted(seen.services.items())]
    return "True", R.SERVING, f"servers ready: {', '.join([*counts, *hosts])}"


def _count(engine: EngineSeen) -> str:
    """Return how many servers are ready, and how many runs they are ready for."""
    beside = f" for {engine.users} runs" if engine.users > 1 else ""
    return f"{engine.ready}/{engine.replicas}{beside}"


def calibrated(memory: Memory, end: End) -> Stand:
    """Return what is known of the evaluator of a run that has one."""
    calibration = memory.run.calibration
    if end.reason is R.EVALUATOR_NOT_CALIBRATED:
        return "False", R.EVALUATOR_NOT_CALIBRATED, end.message
    if calibration is None:
        return "Unknown", R.NOT_EVALUATED, "the evaluator was not compared yet"
    if calibration.verdict == "Calibrated":
        return "True", R.CALIBRATED, str(calibration)
    return "Unknown", R.INCONCLUSIVE, str(calibration)


def proxied(spec: RunSpec, memory: Memory, end: End) -> Stand:
    """Return what is known of the evaluator's proxy of a run that has one."""
    state = memory.run
    says = who_scores(spec, state.verdict_cost, state.proxy)
    if end.reason is R.PROXY_NOT_CALIBRATED:
        return "False", R.PROXY_NOT_CALIBRATED, end.message
    if not says:
        return "Unknown", R.NOT_EVALUATED, "what a verdict takes is not known yet"
    if state.proxy is None:
        return "Unknown", R.WITHIN_CEILING, says
    if state.proxy.verdict == "Calibrated":
        return "True", R.CALIBRATED, says
    return "Unknown", R.INCONCLUSIVE, says


def _converging(spec: RunSpec, memory: Memory) -> Stand:
    state, patience = memory.run, spec.stopping.patience
    if state.diagnosis is not None and not state.diagnosis.go:
        return "False", R.NOT_CONVERGING, words(state.diagnosis)
    if state.evaluations_since_best < patience and (says := repeats(state)):
        return "False", R.PROPOSER_REPEATS, says
    if state.facts is not None and not state.facts.held_out_rows:
        return "Unknown", R.NOT_EVALUATED, "there is no heldOut, so nothing is scored"
    if state.best is None or state.last_select is None:
        return "Unknown", R.NOT_EVALUATED, "heldOut was not scored yet"
    if state.diagnosis is not None and state.diagnosis.verdict == "Inconclusive" and not state.evaluated_at:
        return "Unknown", R.INCONCLUSIVE, words(state.diagnosis)
    count, best = state.evaluations_since_best, f"{state.best.select:.3f}"
    if count >= patience:
        return "False", R.PLATEAU, f"{count} evaluations without a better score than {best}"
    flat = f"; {count} of {patience} evaluations in a row without a better one" if count else ""
    return "True", R.IMPROVING, f"best score on select {best}{flat}"


def _budget(memory: Memory) -> Stand:
    stop = memory.run.stop or memory.run.outcome
    if stop is None or stop.name != "BudgetExhausted":
        return "False", R.WITHIN_BUDGET, "no limit is reached"
    reason = next((r for name, r in _SPENT.items() if name in stop.reason), R.ROLLOUTS_SPENT)
    return "True", reason, stop.reason


def condition(type: ConditionType, status: str, reason: Reason, message: str) -> Condition:
    return Condition.model_validate({"type": type, "status": status, "reason": reason, "message": message})


def dated(conditions: Iterator[Condition] | list[Condition], generation: int, now: str) -> list[Condition]:
    at = {"observed_generation": generation, "last_transition_time": now}
    return [condition.model_copy(update=at) for condition in conditions]
