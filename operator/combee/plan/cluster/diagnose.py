"""Why a pod does not run, or died, in words that say what to do. Pure: objects in, Trouble out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from combee.api.common import one_line
from combee.plan.cluster.seen import Trouble

Object = Mapping[str, Any]
MAX_QUOTED = 300
"""bytes of somebody else's message that are quoted."""

_PULL = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError"}
_ADVICE = (
    (
        "nvidia.com/gpu",
        "Wait until GPUs are free, or ask for fewer: engines[].vllm.gpusPerReplica, replicas.",
    ),
    ("persistentvolumeclaim", "Create the claim that the run names, or wait until it is bound."),
    ("unbound immediate PersistentVolumeClaims", "See `kubectl describe pvc`: no volume fits the claim."),
    ("didn't match Pod's node affinity", "No node has the labels that template.spec asks for."),
    ("untolerated taint", "Add a toleration in template.spec, or wait until the taint is gone."),
    ("Insufficient memory", "Ask for less memory, or add a node."),
    ("Insufficient cpu", "Ask for less CPU, or add a node."),
)


def diagnose(pods: Iterable[Object], events: Iterable[Object] = ()) -> Trouble | None:
    """The first trouble found, the same whatever the order of ``pods``; None when there is none.

    ``events`` are those of what makes the pods (a Job, a ReplicaSet): they tell why there are none.
    """
    ordered = sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
    for look in (_unplaced, _waiting, _died):
        for pod in ordered:
            for trouble in look(pod):
                return trouble
    if ordered:
        return None
    return next(_not_made(events), None)


def _unplaced(pod: Object) -> Iterator[Trouble]:
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            said = one_line(str(condition.get("message", "")), MAX_QUOTED)
            if condition.get("reason") == "SchedulingGated":
                yield Trouble("WaitingForQuota", f"pod {_name(pod)} is held back by its queue: {said}")
            else:
                yield Trouble(
                    "Unschedulable", f"pod {_name(pod)} finds no node: {said} {advice(said)}".strip()
                )


def advice(said: str) -> str:
    """What to do about a scheduler's message; empty where there is nothing to add.

    >>> advice("0/1 nodes are available: 1 Insufficient memory.")
    'Ask for less memory, or add a node.'
    """
    return next((fix for words, fix in _ADVICE if words in said), "")


def _waiting(pod: Object) -> Iterator[Trouble]:
    for status in _containers(pod):
        waiting = status.get("state", {}).get("waiting") or {}
        reason, said = waiting.get("reason", ""), one_line(str(waiting.get("message", "")), MAX_QUOTED)
        if reason in _PULL:
            yield Trouble(
                "ImagePullFailed",
                f"the image {status.get('image', '')} of pod {_name(pod)} cannot be pulled ({reason}: {said}). "
                "Is its name right, does it exist, and is a pull secret needed?",
            )
        elif reason in _CONFIG:
            yield Trouble(
                "Unschedulable",
                f"pod {_name(pod)} cannot be set up: {said}. Create what it names, in the run's namespace.",
            )
        elif reason == "CrashLoopBackOff":
            yield Trouble("Crashing", f"pod {_name(pod)} keeps ending: {_ending(status)}")


def _died(pod: Object) -> Iterator[Trouble]:
    status = pod.get("status", {})
    if status.get("reason") == "Evicted":
        said = one_line(str(status.get("message", "")), MAX_QUOTED)
        yield Trouble("Unschedulable", f"pod {_name(pod)} was evicted: {said}")
    for container in _containers(pod):
        ended = container.get("state", {}).get("terminated") or {}
        if ended and ended.get("exitCode"):
            yield Trouble("Crashing", f"pod {_name(pod)} died: {_ending(container)}")


def _ending(container: Object) -> str:
    """How a container ended last, with what to do."""
    state = container.get("state", {})
    ended = state.get("terminated") or container.get("lastState", {}).get("terminated") or {}
    reason, code = ended.get("reason", ""), ended.get("exitCode", "?")
    if reason == "OOMKilled" or code == 137:
        return (
            f"killed with exit code {code} ({reason or 'killed'}), mostly for memory: raise its memory limit."
        )
    said = one_line(str(ended.get("message", "")), MAX_QUOTED)
    return f"exit code {code} ({reason or 'ended'}){': ' + said if said else ''}. See its log: kubectl combee logs."


def _not_made(events: Iterable[Object]) -> Iterator[Trouble]:
    latest = sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    for event in reversed(latest):
        if event.get("reason") != "FailedCreate":
            continue
        said = one_line(str(event.get("message", "")), MAX_QUOTED)
        if "exceeded quota" in said:
            yield Trouble(
                "WaitingForQuota",
                f"a quota of the namespace is used up: {said}. It goes on when there is room.",
            )
        elif "violates PodSecurity" in said:
            yield Trouble("Unschedulable", f"the namespace's pod security forbids the pods: {said}")
        else:
            yield Trouble("Unschedulable", f"its pods cannot be made: {said}")


def _containers(pod: Object) -> Iterator[Object]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses", ())
    yield from status.get("containerStatuses", ())


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])
