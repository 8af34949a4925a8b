"""Pods of rollouts out of a warm pool of agent-sandbox: a SandboxTemplate, a SandboxWarmPool, SandboxClaims.

The pods are those of the Job of rollouts. One that waits in the pool has its images and its place, and the
container of the user's image runs and waits. A SandboxClaim takes it out of the pool, which makes the next
one meanwhile: an annotation of the claim comes to the container beside the user's as a file, and that
container then claims a rollout, as in a Job's pod. The claim is over when its pod is."""

from __future__ import annotations

from combee import names
from combee.api.run import PromptLearningRun
from combee.api.tasks import CustomContainer
from combee.errors import BugError
from combee.objects.meta import metadata
from combee.objects.pods import plain
from combee.objects.rollout_layout import CLAIM, CLAIMED_BY
from combee.objects.rollouts import rollout_template
from combee.objects.types import Object, Settings
from combee.records import Owner
from combee.times import rfc3339


def pool_size(task: CustomContainer) -> int:
    """Return how many pods wait in the pool, besides those at work: one for each two of these."""
    return -(-task.concurrency // 2)


def warm_pool(
    run: PromptLearningRun, owner: Owner, address: str, settings: Settings
) -> tuple[Object, Object]:
    """Return the template of the pods, and the pool of those that wait. ``address``: as of
    ``rollout_job``."""
    task = run.spec.task.container
    if task is None:
        raise BugError("a run without a container has no rollouts of its own", where=owner.name)
    name = names.rollouts_name(owner.name, owner.uid)
    template: Object = {
        "podTemplate": _claimable(rollout_template(run, owner, task, address, settings, {})),
        # What its pods may reach is the policy of all pods of rollouts, by their labels.
        "networkPolicyManagement": "Unmanaged",
        "service": False,
    }
    pool = {"replicas": pool_size(task), "sandboxTemplateRef": {"name": name}}
    return (
        _object("SandboxTemplate", metadata(owner, name, names.ROLLOUT), template),
        _object("SandboxWarmPool", metadata(owner, name, names.ROLLOUT), pool),
    )


def sandbox_claim(owner: Owner, attempt: int, now: float, settings: Settings) -> Object:
    """Return the claim of one pod for one rollout. It ends by itself when a Job of rollouts would."""
    own = {names.LABEL_ATTEMPT: str(attempt)}
    meta = metadata(owner, names.sandbox_claim_name(owner.name, owner.uid, attempt), names.ROLLOUT, own)
    end = rfc3339(now + settings.step_deadline_seconds)
    spec = {
        "warmPoolRef": {"name": names.rollouts_name(owner.name, owner.uid)},
        "lifecycle": {"shutdownTime": end, "shutdownPolicy": "Delete"},
        "additionalPodMetadata": {"annotations": {names.CLAIMED_BY: meta["name"]}},
    }
    return _object("SandboxClaim", meta, spec)


def _object(kind: str, meta: Object, spec: Object) -> Object:
    return {"apiVersion": names.SANDBOXES, "kind": kind, "metadata": meta, "spec": spec}


def _claimable(template: Object) -> Object:
    """Return the pods' template with the file that says whose a pod is, for the container beside the
    user's."""
    spec = template["spec"]
    (beside,) = spec["initContainers"]
    mount = {"name": "claim", "mountPath": CLAIM, "readOnly": True}
    reads = {
        **beside,
        "env": [*beside["env"], plain("COMBEE_CLAIMED_BY", CLAIMED_BY)],
        "volumeMounts": [*beside["volumeMounts"], mount],
    }
    annotation = {"fieldPath": f"metadata.annotations['{names.CLAIMED_BY}']"}
    whose = {"path": CLAIMED_BY.removeprefix(f"{CLAIM}/"), "fieldRef": annotation}
    volume = {"name": "claim", "downwardAPI": {"items": [whose]}}
    return {
        **template,
        "spec": {**spec, "initContainers": [reads], "volumes": [*spec["volumes"], volume]},
    }
