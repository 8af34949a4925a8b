"""Pods that each do one rollout of a task in a container: a Job of the user's image, and the desks' Service.

A pod is the user's container, which waits, and beside it one of ours (a native sidecar) that claims a rollout
at a desk, in the pod of whichever step is at work, and hands in what was left. The user's container holds no
token, no key of a model and no capability; it sees three folders, and a key to the model that ends with the
rollout.
Pods are all alike: they and the desks settle which rollout is whose, so a Job is never counted, only
followed by the next one."""

from __future__ import annotations

import json

from combee import names
from combee.api.run import PromptLearningRun
from combee.api.tasks import CustomContainer
from combee.api.texts import in_thousandths
from combee.errors import BugError
from combee.names import rollout_token
from combee.objects.meta import labels, metadata
from combee.objects.overrides import customised, pod_labels_and_annotations
from combee.objects.pods import SCRATCH as TMP
from combee.objects.pods import container, literal, plain, pod_spec, scratch
from combee.objects.rollout_layout import (
    BIN,
    END,
    GOING,
    LAUNCHER,
    OUT,
    PORT,
    PROBES_PORT,
    READY,
    SCRATCH,
    SHELL,
    TASK,
)
from combee.objects.types import Object, Settings
from combee.records import Owner

ATTENDANT, USER = "combee", "task"
"""The containers of a pod."""
PODS = 256
"""The fewest pods of one Job: the next Job is made when these are used up."""
GRACE_SECONDS = 30
"""Time for the container beside the user's to hand in what was left; the user's ends at once."""
BIN_SIZE, END_SIZE = "8Mi", "8Mi"
_READY_SECONDS = 1


def pods_of(task: CustomContainer) -> int:
    """Return the number of pods of one Job of rollouts."""
    return max(PODS, 4 * task.concurrency)


def rollout_service(owner: Owner) -> Object:
    """Return the Service that gives a run's desks one address, whichever step's pods they are in."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(owner, names.rollouts_name(owner.name, owner.uid), names.ROLLOUT),
        "spec": {
            "type": "ClusterIP",
            "selector": {names.LABEL_RUN_UID: owner.uid, names.LABEL_DESK: "true"},
            "ports": [{"name": "desk", "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
        },
    }


def rollout_job(
    run: PromptLearningRun, owner: Owner, attempt: int, address: str, settings: Settings
) -> Object:
    """Return the Job of the pods. ``address``: the Service's IP address, so that no pod resolves names."""
    task = run.spec.task.container
    if task is None:
        raise BugError("a run without a container has no rollouts of its own", where=owner.name)
    own = {names.LABEL_ATTEMPT: str(attempt)}
    meta = metadata(owner, names.rollout_job_name(owner.name, owner.uid, attempt), names.ROLLOUT, own)
    spec: Object = {
        "completionMode": "Indexed",
        "completions": pods_of(task),
        "parallelism": task.concurrency,
        # A pod that dies is another rollout's loss: the desk counts it, and gives it to another pod.
        "backoffLimitPerIndex": 0,
        "maxFailedIndexes": pods_of(task),
        "podReplacementPolicy": "TerminatingOrFailed",
        "activeDeadlineSeconds": settings.step_deadline_seconds,
        "template": rollout_template(run, owner, task, address, settings, own),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def rollout_template(
    run: PromptLearningRun,
    owner: Owner,
    task: CustomContainer,
    address: str,
    settings: Settings,
    own: dict[str, str],
) -> Object:
    """Return the template of the pods. ``own``: labels of theirs alone."""
    template = run.spec.workers.template
    spec = pod_spec(
        _user(task, settings),
        volumes=_volumes(task),
        account=settings.worker_account,
        restart="Never",
        grace_seconds=GRACE_SECONDS,
        settings=settings,
    )
    spec["initContainers"] = [_attendant(owner, address, settings)]
    return {
        "metadata": pod_labels_and_annotations(
            labels(owner, names.ROLLOUT, own), template, "spec.workers.template"
        ),
        "spec": customised(spec, template, keep_account=True),
    }


def _attendant(owner: Owner, address: str, settings: Settings) -> Object:
    shown = f"[{address}]" if ":" in address else address
    desk = {"desk": f"http://{shown}:{PORT}", "token": rollout_token(owner.uid)}
    made = container(
        ATTENDANT,
        image=settings.worker_image,
        command=["combee-worker", "attend"],
        env=[plain("COMBEE_DESK", json.dumps(desk, sort_keys=True)), plain("HOME", TMP)],
        mounts=[
            _mount("task", TASK),
            _mount("out", OUT, read_only=True),
            _mount("tmp", SCRATCH, read_only=True),
            _mount("bin", BIN),
            _mount("end", END, read_only=True),
        ],
        resources={"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
        settings=settings,
    )
    # The user's container is started by what this one brings. The image of an earlier release, which a run
    # keeps that began with it, brings it only once a rollout is claimed, however long that takes.
    probe = {**_probe(READY), "periodSeconds": _READY_SECONDS, "failureThreshold": 1_000_000}
    return {**made, "restartPolicy": "Always", "startupProbe": probe}


def _user(task: CustomContainer, settings: Settings) -> Object:
    made = container(
        USER,
        image=task.image,
        command=[SHELL, "sh", LAUNCHER, END, *task.command],
        args=task.args,
        env=[
            plain("COMBEE_TASK", TASK),
            plain("COMBEE_OUT", OUT),
            plain("HOME", TMP),
            plain("TMPDIR", TMP),
            plain("LANG", "C.UTF-8"),
        ],
        mounts=[
            _mount("task", TASK, read_only=True),
            _mount("out", OUT),
            _mount("tmp", TMP),
            _mount("bin", BIN, read_only=True),
            _mount("end", END),
        ],
        resources={
            "requests": {"cpu": _requested_cpu(task.cpu), "memory": task.memory},
            "limits": {"cpu": task.cpu, "memory": task.memory},
        },
        settings=settings,
    )
    # It is ended when the container beside it says so, or does not answer any more.
    going = {**_probe(GOING), "periodSeconds": 1, "failureThreshold": 3, "terminationGracePeriodSeconds": 1}
    return {**made, "livenessProbe": going}


def _requested_cpu(cpu: str) -> str:
    """Return a tenth: an agent mostly waits for its model, and may use what is free up to its limit."""
    return f"{in_thousandths(cpu) // 10}m"


def _volumes(task: CustomContainer) -> list[Object]:
    """Return folders that end with the pod. The container beside the user's looks at their sizes often."""
    tmp, _ = scratch(task.scratch)
    return [
        {"name": "task", "emptyDir": {}},
        {"name": "out", "emptyDir": {"sizeLimit": literal(task.scratch)}},
        tmp,
        {"name": "bin", "emptyDir": {"sizeLimit": BIN_SIZE}},
        {"name": "end", "emptyDir": {"sizeLimit": END_SIZE}},
    ]


def _probe(path: str) -> Object:
    return {"httpGet": {"path": path, "port": PROBES_PORT}, "timeoutSeconds": 5}


def _mount(name: str, path: str, *, read_only: bool = False) -> Object:
    mount: Object = {"name": name, "mountPath": path}
    return {**mount, "readOnly": True} if read_only else mount
