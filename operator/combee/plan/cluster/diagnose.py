"""Why a pod does not run, or died, in words that say what to do. Pure: objects in, Trouble out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from combee.api.common import one_line
from combee.plan.cluster.seen import Trouble
from combee.times import seconds_of

Object = Mapping[str, Any]
MAX_QUOTED = 300
"""The most bytes of somebody else's message that are quoted."""

_PULL = {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError"}
_SETTING_UP = {"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"}
"""Reasons of a pod's events while it is being set up."""
_PROBED = re.compile(r"Startup probe (?:failed|errored[^:]*): (.*)", re.DOTALL)
"""What a kubelet says of a startup probe."""
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

_STATE = "State them in resources of engines[].template.spec or workers.template.spec, or in the chart"
_PASSING = ("failed to sync configmap cache", "failed to sync secret cache", " not registered")
"""What a kubelet says that has not read an object yet: it asks again by itself, and nothing is missing."""
PASSING_SECONDS = 120.0
"""What is still said of a pod that is older does not pass by itself."""


def diagnose(pods: Iterable[Object], events: Iterable[Object] = ()) -> Trouble | None:
    """Return the first trouble, the same whatever the order of ``pods``; None when there is none.

    ``events`` are those of a pod that is being set up, which tell what is missing; where there is no
    pod, they are those of the maker (a Job, a ReplicaSet), which tell why.
    """
    ordered = sorted(pods, key=_name)
    by_time = _in_order(events)
    for look in (_unplaced, _waiting, partial(_not_set_up, by_time), _died):
        for pod in ordered:
            for trouble in look(pod):
                return trouble
    if ordered:
        return None
    return next(_not_made(by_time), None)


def unready(claim: Object) -> Trouble:
    """Return why a SandboxClaim has no pod that is ready, where its pods say nothing."""
    conditions = claim.get("status", {}).get("conditions", ())
    ready = next((one for one in conditions if one.get("type") == "Ready"), None)
    name = claim["metadata"]["name"]
    if ready is None:
        more = "See whether its controller runs, or set the chart's agentSandbox to false."
        return Trouble("Unschedulable", f"SandboxClaim {name}: agent-sandbox does not answer. {more}")
    cause = _quoted(ready)
    if "exceeded quota" in cause:
        more = "a quota of the namespace is used up. It goes on when there is room."
        return Trouble("WaitingForQuota", f"SandboxClaim {name} is not ready: {cause}: {more}")
    more = "See `kubectl describe sandboxclaims,sandboxes`, or set the chart's agentSandbox to false."
    return Trouble("Unschedulable", f"SandboxClaim {name} is not ready: {cause}. {more}")


def being_set_up(pods: Iterable[Object]) -> Object | None:
    """Return the first pod with a node and no container yet: its events say whether something is missing."""
    return next((pod for pod in sorted(pods, key=_name) if _is_being_set_up(pod)), None)


def _is_being_set_up(pod: Object) -> bool:
    status = pod.get("status", {})
    started = any("waiting" not in container.get("state", {}) for container in _containers(pod))
    return status.get("phase") == "Pending" and _has(pod, "PodScheduled") and not started


def probed(events: Iterable[Object]) -> str:
    """Return why a startup probe failed last, as the pods' ``events`` tell; empty when none has.

    A server that is loading fails its probe, too: that says how far the server is, and is no trouble.
    """
    failures = _in_order(event for event in events if event.get("reason") == "Unhealthy")
    matches = (_PROBED.match(str(event.get("message", ""))) for event in failures)
    causes = [match.group(1) for match in matches if match]
    return one_line(causes[-1], MAX_QUOTED) if causes else ""


def gated(pod: Object) -> bool:
    """Return whether a queue holds a pod back, so that it has no place and no GPU."""
    return any(
        c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated"
        for c in pod.get("status", {}).get("conditions", ())
    )


def _quoted(source: Object) -> str:
    """Return the message of a condition, an event or a container's state, as it is repeated to people."""
    return one_line(str(source.get("message", "")), MAX_QUOTED)


def _in_order(events: Iterable[Object]) -> list[Object]:
    return sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))


def fetch_trouble(job: str, failed: Object | None, trouble: Trouble | None) -> Trouble:
    """Return how the fetch of an engine's weights stands. ``failed``: the Job's condition, if it gave up."""
    cause = trouble.message if trouble else ""
    if failed is not None:
        advice = f"Mend it and delete Job {job}: it is made anew."
        return Trouble("LoadFailed", f"its weights cannot be fetched: {cause or _quoted(failed)} {advice}")
    if trouble is not None and trouble.reason == "Crashing":
        return Trouble("Crashing", f"its weights cannot be fetched yet: {cause}")
    return Trouble("Starting", f"its weights are being fetched by Job {job}{': ' + cause if cause else ''}")


def still_at_work(pods: Iterable[Object], now: str) -> str:
    """Return the first pod that works or may begin to work; empty when there is none.

    A Job that is deleted leaves its pods to the garbage collector, which may be late: another Job for the
    same step would ask every call of theirs again. A pod that is being deleted has until its
    ``deletionTimestamp``, whether or not its node can still say that it ended. ``now``: as the API writes
    times, which are texts that sort by time.
    """
    return min((_name(pod) for pod in pods if _may_work(pod, now)), default="")


def only_disrupted(pods: Iterable[Object]) -> bool:
    """Return whether none of a failed Job's pods died by itself, as far as they are still there to tell."""
    return not any(
        pod.get("status", {}).get("phase") == "Failed" and not _has(pod, "DisruptionTarget") for pod in pods
    )


def _has(pod: Object, type: str) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c.get("type") == type and c.get("status") == "True" for c in conditions)


def _may_work(pod: Object, now: str) -> bool:
    until = pod["metadata"].get("deletionTimestamp")
    if until is not None and str(until) < now:
        return False
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def _unplaced(pod: Object) -> Iterator[Trouble]:
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            cause, pod_name = _quoted(condition), _name(pod)
            if gated(pod):
                held = f"pod {pod_name} is held back by a queue that the cluster put it into: {cause}"
                yield Trouble("WaitingForQuota", held)
            else:
                message = f"pod {pod_name} finds no node: {cause} {advice(cause)}"
                yield Trouble("Unschedulable", message.strip())


def advice(message: str) -> str:
    """Return what to do about a scheduler's message; empty where there is nothing to add.

    >>> advice("0/1 nodes are available: 1 Insufficient memory.")
    'Ask for less memory, or add a node.'
    """
    return next((fix for words, fix in _ADVICE if words in message), "")


def _waiting(pod: Object) -> Iterator[Trouble]:
    for status in _containers(pod):
        waiting = status.get("state", {}).get("waiting") or {}
        reason, image = waiting.get("reason", ""), status.get("image", "")
        if reason in _PULL:
            cause = f"({reason}: {_quoted(waiting)})"
            advice = "Is its name right, does it exist, and is a pull secret needed?"
            message = f"the image {image} of pod {_name(pod)} cannot be pulled {cause}. {advice}"
            yield Trouble("ImagePullFailed", message)
        elif reason in _CONFIG:
            yield _unfit(pod, waiting)
        elif reason == "CrashLoopBackOff":
            yield Trouble("Crashing", f"pod {_name(pod)} keeps ending: {_ending(status)}")


def _not_set_up(events: Sequence[Object], pod: Object) -> Iterator[Trouble]:
    """Look for missing volumes, which keep a pod from starting without a word in its status."""
    if not _is_being_set_up(pod):
        return
    for event in reversed(events):
        about, message = event.get("involvedObject", {}), str(event.get("message", ""))
        if any(words in message for words in _PASSING) and _soon_after(pod, event):
            continue
        if about.get("name") == _name(pod) and event.get("reason") in _SETTING_UP:
            yield _unfit(pod, event)


def _soon_after(pod: Object, event: Object) -> bool:
    """Return whether an event is of a pod's beginning; so is one without a time."""
    made_at = pod["metadata"].get("creationTimestamp")
    happened_at = event.get("lastTimestamp") or event.get("eventTime")
    if not (made_at and happened_at):
        return True
    return seconds_of(str(happened_at)) - seconds_of(str(made_at)) <= PASSING_SECONDS


def _unfit(pod: Object, source: Object) -> Trouble:
    advice = "Create what it names, in the run's namespace."
    return Trouble("Unschedulable", f"pod {_name(pod)} cannot be set up: {_quoted(source)}. {advice}")


def _died(pod: Object) -> Iterator[Trouble]:
    status = pod.get("status", {})
    if status.get("reason") == "Evicted":
        yield Trouble("Unschedulable", f"pod {_name(pod)} was evicted: {_quoted(status)}")
    for container in _containers(pod):
        ended = container.get("state", {}).get("terminated") or {}
        if ended and ended.get("exitCode"):
            yield Trouble("Crashing", f"pod {_name(pod)} died: {_ending(container)}")


def _ending(container: Object) -> str:
    """Return how a container ended last, and what to do."""
    state = container.get("state", {})
    ended = state.get("terminated") or container.get("lastState", {}).get("terminated") or {}
    reason, code = ended.get("reason", ""), ended.get("exitCode", "?")
    if reason == "OOMKilled" or code == 137:
        how = f"killed with exit code {code} ({reason or 'killed'})"
        return f"{how}, mostly for memory: raise its memory limit."
    how, last_words = f"exit code {code} ({reason or 'ended'})", _quoted(ended)
    return f"{how}{': ' + last_words if last_words else ''}. See its log: kubectl combee logs."


def _not_made(events: Sequence[Object]) -> Iterator[Trouble]:
    for event in reversed(events):
        if event.get("reason") != "FailedCreate":
            continue
        cause = _quoted(event)
        if "exceeded quota" in cause:
            message = f"a quota of the namespace is used up: {cause}. It goes on when there is room."
            yield Trouble("WaitingForQuota", message)
        elif "failed quota" in cause and "must specify" in cause:
            what = cause[cause.index("failed quota") :]
            message = f"a quota wants amounts that the pods do not state. {_STATE}: {what}"
            yield Trouble("Unschedulable", message)
        elif "violates PodSecurity" in cause:
            yield Trouble("Unschedulable", f"the namespace's pod security forbids the pods: {cause}")
        else:
            yield Trouble("Unschedulable", f"its pods cannot be made: {cause}")


def _containers(pod: Object) -> Iterator[Object]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses", ())
    yield from status.get("containerStatuses", ())


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])
