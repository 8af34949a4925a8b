"""A run's place in a queue of Kueue: the Workload that asks for all of it at once, and where that sends pods.

Kueue admits a Workload whole. The run's Jobs and engines are no business of Kueue's: they are made while the
Workload is admitted, and name no queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from combee import names
from combee.api.run import PromptLearningRun
from combee.objects.engines import engine_deployment
from combee.objects.jobs import step_job
from combee.objects.meta import metadata
from combee.objects.rollouts import rollout_job
from combee.objects.types import Object, Settings
from combee.plan.cluster.engines import own_engines_in_use
from combee.plan.cluster.seen import Assigned
from combee.plan.types import Step
from combee.records import Owner
from combee.steps import PUBLISH

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
STEPS = "steps"
ROLLOUTS = "rollouts"
_PLACEMENT = ("nodeSelector", "affinity", "tolerations", "runtimeClassName", "priorityClassName")
_REQUEUED = ("Preempted", "NodeFailures")
"""Reasons of an eviction after which Kueue considers a Workload again at once: after others it says when."""


def workload(run: PromptLearningRun, owner: Owner, settings: Settings, priority: int) -> Object:
    """Return the Workload that asks the run's queue for the most pods that the run has at once: its engines'
    servers, the shards of one step (steps follow each other), and those of a user's image. ``priority``: of
    the run's WorkloadPriorityClass. Raises ManifestError as the makers of these pods do."""
    queue = run.spec.queue
    spec: Object = {"podSets": list(_pod_sets(run, owner, settings)), "priority": priority}
    if queue is not None:
        spec["queueName"] = queue.name
        if queue.priority_class is not None:
            group, _ = names.KUEUE.split("/")
            reference = {"group": group, "kind": "WorkloadPriorityClass", "name": queue.priority_class}
            spec["priorityClassRef"] = reference
    meta = metadata(owner, names.workload_name(owner.name, owner.uid), "queue")
    return {"apiVersion": names.KUEUE, "kind": "Workload", "metadata": meta, "spec": spec}


def _pod_sets(run: PromptLearningRun, owner: Owner, settings: Settings) -> Iterator[Object]:
    used = own_engines_in_use(run.spec)
    for index, engine in enumerate(run.spec.engines):
        if engine.name in used:
            made = engine_deployment(run, owner, index, settings)
            yield _pod_set(names.pod_set_name(index, engine.name), engine.server.replicas, made)
    # The pods of all steps ask for the same; this step's need to know nothing of a plan or of services.
    name = names.step_name(owner.name, owner.uid, 0, PUBLISH.name)
    step = step_job(run, owner, Step(name, PUBLISH.name, 0, run.spec.seed), 0, settings)
    yield _pod_set(STEPS, run.spec.workers.parallelism, step)
    if run.spec.task.container is not None:
        rollouts = rollout_job(run, owner, 0, "", settings)
        yield _pod_set(ROLLOUTS, run.spec.task.container.concurrency, rollouts)


def _pod_set(name: str, count: int, maker: Object) -> Object:
    """Return a set of the pods that a Job or Deployment makes: what they ask for, and of which nodes."""
    pod = maker["spec"]["template"]["spec"]
    kept = {field: pod[field] for field in _PLACEMENT if pod.get(field)}
    for kind in ("initContainers", "containers"):
        if kind in pod:
            parts = ("name", "image", "resources", "restartPolicy")
            kept[kind] = [{part: one[part] for part in parts if part in one} for one in pod[kind]]
    return {"name": name, "count": count, "template": {"spec": kept}}


def placed(maker: Object, assigned: Assigned | None) -> Object:
    """Return the Job or Deployment with its pods where the queue sends them, and no more of a Job's pods at
    once than it admitted; as it is where no queue is asked."""
    if assigned is None:
        return maker
    spec, template = maker["spec"], maker["spec"]["template"]
    pod, meta = template["spec"], template["metadata"]
    sent = {**pod, "tolerations": [*pod.get("tolerations", ()), *assigned.tolerations]}
    if assigned.node_selector:
        sent["nodeSelector"] = {**pod.get("nodeSelector", {}), **assigned.node_selector}
    if assigned.annotations:
        meta = {**meta, "annotations": {**meta.get("annotations", {}), **assigned.annotations}}
    made = {**spec, "template": {"metadata": meta, "spec": sent}}
    if "parallelism" in spec:
        made["parallelism"] = min(spec["parallelism"], assigned.count)
    return {**maker, "spec": made}


def given_back(workload: Object, now: str) -> Object:
    """Return the patch of an evicted Workload's status that gives its quota back, as Kueue's own integrations
    write it. It holds only for the Workload as it was read. ``now``: as the API writes times."""
    evicted = condition_of(workload, "Evicted")
    why = str(evicted.get("message", ""))
    changes = {
        "QuotaReserved": ("False", "Pending", why),
        "Admitted": ("False", "NoReservation", "The workload has no reservation"),
        "Requeued": (str(evicted.get("reason") in _REQUEUED), str(evicted.get("reason", "")), why),
    }
    kept = [one for one in workload["status"]["conditions"] if one["type"] not in (*changes, "PodsReady")]
    written = [_condition(workload, type, *one, now) for type, one in changes.items()]
    return _status(workload, {"admission": None, "conditions": [*kept, *written]})


def pods_ready(workload: Object, now: str) -> Object:
    """Return the patch that tells Kueue that the run's pods came up: it may be set to wait only so long."""
    kept = [one for one in workload["status"]["conditions"] if one["type"] != "PodsReady"]
    ready = _condition(workload, "PodsReady", "True", "Started", "A step of the run is at work", now)
    return _status(workload, {"conditions": [*kept, ready]})


def condition_of(workload: Object, type: str) -> dict[str, Any]:
    """Return a condition of a Workload; empty where it has none of the type."""
    conditions = workload.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == type), {})


def _condition(workload: Object, type: str, status: str, reason: str, message: str, now: str) -> Object:
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": workload["metadata"].get("generation", 0),
        "lastTransitionTime": now,
    }


def _status(workload: Object, status: Object) -> Object:
    return {"metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]}, "status": status}
