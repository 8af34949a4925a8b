"""The Job of a step. It is made once and never repaired: a new attempt is a new Job.

It is indexed, with retries for each index, because a step's shards fail separately. It has no
``podFailurePolicy`` (it forces ``podReplacementPolicy: Failed``, under which a lost node holds a Job
for ever) and no ``successPolicy``; the time to live is patched in once the result is in the status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from combee import names
from combee.api.run import PromptLearningRun
from combee.objects.addresses import NO_SERVICES, engine_urls
from combee.objects.meta import labels, metadata
from combee.objects.overrides import customised, pod_labels_and_annotations, resources_of, user_env
from combee.objects.pods import SCRATCH, container, plain, pod_spec, reach_env
from combee.objects.types import Object, Settings
from combee.objects.volumes import step_mounts, store_address
from combee.plan.types import Step
from combee.records import Owner
from combee.steps import KINDS, kind_of

CONTAINER = "worker"
"""The container whose termination message is the step's summary."""
RETRIES = 6
GRACE_SECONDS = 5
"""A worker stops at once: what it had finished is in the store."""


def step_job(
    run: PromptLearningRun,
    owner: Owner,
    step: Step,
    attempt: int,
    settings: Settings,
    services: Mapping[str, str] = NO_SERVICES,
) -> Object:
    """Return the Job that does ``step``; its name tells the attempt, the step's own name never changes.
    ``services``: as of ``engine_urls``.

    Raises ManifestError for a template that asks for more than templates may.
    """
    own = {
        names.LABEL_STEP: step.kind,
        names.LABEL_ITERATION: str(step.iteration),
        names.LABEL_ATTEMPT: str(attempt),
    }
    meta = metadata(owner, names.attempt_name(step.name, attempt), step.kind, own)
    if has_desk(run, step.kind):
        own[names.LABEL_DESK] = "true"
    spec: Object = {
        "completionMode": "Indexed",
        "completions": step.shards,
        "parallelism": step.shards,
        "backoffLimitPerIndex": RETRIES,
        "maxFailedIndexes": step.shards,
        "podReplacementPolicy": "TerminatingOrFailed",
        "activeDeadlineSeconds": settings.step_deadline_seconds,
        "template": _pod_template(run, owner, step, settings, own, services),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def worker_image(run: PromptLearningRun, settings: Settings) -> str:
    """Return the image of the steps that read data: the one with the run's own class, or the release's. The
    pod that publishes holds a token and runs nobody's code but ours."""
    custom = run.spec.task.custom
    return custom.image if custom is not None and custom.image is not None else settings.worker_image


def has_desk(run: PromptLearningRun, kind: str) -> bool:
    """Return whether the pods of this kind of step give rollouts to pods of the user's image."""
    return run.spec.task.container is not None and kind_of(kind).rolls_out


def _pod_template(
    run: PromptLearningRun,
    owner: Owner,
    step: Step,
    settings: Settings,
    own: dict[str, str],
    services: Mapping[str, str],
) -> Object:
    kind = KINDS[step.kind]
    template = run.spec.workers.template
    mounted = step_mounts(run, owner, step, settings)
    worker = container(
        CONTAINER,
        image=settings.worker_image if kind.own_account else worker_image(run, settings),
        command=["combee-worker", kind.command],
        env=[*user_env(template), *_env(run, owner, step, services, settings)],
        mounts=mounted.mounts,
        resources=resources_of(template, settings.worker_resources),
        settings=settings,
    )
    spec = pod_spec(
        worker,
        volumes=mounted.volumes,
        account=settings.publish_account if kind.own_account else settings.worker_account,
        token=kind.own_account,
        restart="Never",
        grace_seconds=GRACE_SECONDS,
        settings=settings,
    )
    return {
        "metadata": pod_labels_and_annotations(
            labels(owner, step.kind, own), template, "spec.workers.template"
        ),
        # The account that may publish is the chart's and no template's choice.
        "spec": customised(spec, template, keep_account=kind.own_account),
    }


def _env(
    run: PromptLearningRun, owner: Owner, step: Step, services: Mapping[str, str], settings: Settings
) -> list[Object]:
    urls = engine_urls(run.spec, owner, KINDS[step.kind].roles, services, settings)
    made = [*step_env(run, step, urls), *reach_env(settings, services.values())]
    if has_desk(run, step.kind):
        made.append({"name": "COMBEE_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    return made


def step_env(run: PromptLearningRun, step: Step, engines: Mapping[str, str]) -> list[Object]:
    """Return the variables of every pod that does a step. ``engines``: name -> URL of those it may ask."""
    return [
        plain("COMBEE_STEP", _json(asdict(step))),
        plain("COMBEE_STORE", store_address(run.spec)),
        plain("COMBEE_ENGINES", _json(engines)),
        plain("HOME", SCRATCH),
    ]


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
