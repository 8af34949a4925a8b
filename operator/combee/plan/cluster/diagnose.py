"""Why a pod does not run, or died, in words that say what to do. Pure: objects in, Trouble out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from combee.api.common import one_line
from combee.plan.cluster.seen import Trouble

Object = Mapping[str, Any]
MAX_QUOTED = 300
"""bytes of somebody else's message that are quoted."""

_PULL = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError"}
_SETTING_UP = {"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"}
"""reasons of a pod's events."""
_PROBED = re.compile(r"Startup probe (?:failed|errored[^:]*): (.*)", re.DOTALL)
"""what a kubelet says of a startup probe."""
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

    ``events`` are those of a pod that is being set up, which tell what is missing; where there is no
    pod, those of what makes them (a Job, a ReplicaSet), which tell why.
    """
    ordered = sorted(pods, key=_name)
    told = _in_order(events)
    for look in (_unplaced, _waiting, partial(_not_set_up, told), _died):
        for pod in ordered:
            for trouble in look(pod):
                return trouble
    if ordered:
        return None
    return next(_not_made(told), None)


def being_set_up(pods: Iterable[Object]) -> Object | None:
    """The first pod that has a node and no container yet: its events say whether something is missing."""
    found = (pod for pod in sorted(pods, key=_name) if _is_being_set_up(pod))
    return next(found, None)


def _is_being_set_up(pod: Object) -> bool:
    status = pod.get("status", {})
    placed = any(
        c.get("type") == "PodScheduled" and c.get("status") == "True" for c in status.get("conditions", ())
    )
    begun = any("waiting" not in one.get("state", {}) for one in _containers(pod))
    return status.get("phase") == "Pending" and placed and not begun


def probed(events: Iterable[Object]) -> str:
    """Why a startup probe failed last, as the pods' ``events`` tell; empty when none has.

    A server that loads fails it, too: it says how far the server is, and is no trouble by itself.
    """
    told = [event for event in events if event.get("reason") == "Unhealthy"]
    said = [
        found.group(1) for event in _in_order(told) if (found := _PROBED.match(str(event.get("message", ""))))
    ]
    return one_line(said[-1], MAX_QUOTED) if said else ""


def _in_order(events: Iterable[Object]) -> list[Object]:
    return sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))


def fetch_trouble(job: str, failed: Object | None, trouble: Trouble | None) -> Trouble:
    """How the fetching of an engine's weights stands. ``failed`` is the Job's condition, if it gave up."""
    said = trouble.message if trouble else ""
    if failed is not None:
        why = said or one_line(str(failed.get("message", "")), MAX_QUOTED)
        return Trouble(
            "LoadFailed",
            f"its weights cannot be fetched: {why} Mend it and delete Job {job}: it is made anew.",
        )
    if trouble is not None and trouble.reason == "Crashing":
        return Trouble("Crashing", f"its weights cannot be fetched yet: {said}")
    return Trouble("Starting", f"its weights are being fetched by Job {job}{': ' + said if said else ''}")


def still_at_work(pods: Iterable[Object], now: str) -> str:
    """The first pod that may be at work, or may begin to be; empty when there is none.

    A Job that is deleted leaves its pods to the garbage collector, which may be late: another Job for the
    same step would ask every call of theirs again. One that is being deleted has until its
    ``deletionTimestamp``, whether or not its node can still say that it ended. ``now``: as the API writes times, which
    are text in order of time.
    """
    working = (str(pod["metadata"]["name"]) for pod in pods if _may_work(pod, now))
    return min(working, default="")


def only_disrupted(pods: Iterable[Object]) -> bool:
    """Whether none of a failed Job's pods died by itself, as far as they are still there to tell."""
    return not any(
        pod.get("status", {}).get("phase") == "Failed" and not _has(pod, "DisruptionTarget") for pod in pods
    )


def _has(pod: Object, type: str) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one.get("type") == type and one.get("status") == "True" for one in conditions)


def _may_work(pod: Object, now: str) -> bool:
    until = pod["metadata"].get("deletionTimestamp")
    if until is not None and str(until) < now:
        return False
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


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
            yield _unfit(pod, said)
        elif reason == "CrashLoopBackOff":
            yield Trouble("Crashing", f"pod {_name(pod)} keeps ending: {_ending(status)}")


def _not_set_up(events: Sequence[Object], pod: Object) -> Iterator[Trouble]:
    """Volumes that are not there keep a pod from starting, and nothing in its status says so."""
    if not _is_being_set_up(pod):
        return
    for event in reversed(events):
        about = event.get("involvedObject", {})
        if about.get("name") == _name(pod) and event.get("reason") in _SETTING_UP:
            yield _unfit(pod, str(event.get("message", "")))


def _unfit(pod: Object, said: str) -> Trouble:
    return Trouble(
        "Unschedulable",
        f"pod {_name(pod)} cannot be set up: {one_line(said, MAX_QUOTED)}. "
        "Create what it names, in the run's namespace.",
    )


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


def _not_made(events: Sequence[Object]) -> Iterator[Trouble]:
    for event in reversed(events):
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
