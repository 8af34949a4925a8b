"""The short-lived pod that prints what a run left, with the rights of whoever asks, never the operator's.

It sees the run, its plans and its store, read-only. It sees no data, no model's key and no token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from combee import names
from combee.api.run import PromptLearningRun
from combee.names import STORE_FOLDER
from combee.objects.addresses import NO_SERVICES, engine_urls
from combee.objects.jobs import CONTAINER, GRACE_SECONDS, step_env
from combee.objects.meta import labels, owner_reference
from combee.objects.overrides import customised, pod_labels_and_annotations, resources_of, user_env
from combee.objects.plans import CLOCKS_KEY, PLAN_KEY, RUN_KEY
from combee.objects.pods import container, pod_spec, reach_env, scratch
from combee.objects.types import Object, Settings
from combee.objects.volumes import RUN_FOLDER, Mounts
from combee.plan.types import Step
from combee.records import Owner

COMPONENT = "report"
CALLS, STORE = "calls", "store"
"""The step parameters that ask for the recorded calls, and for what a replay reads of the store."""
PLANS_FOLDER = "/etc/combee/plans"
DEADLINE_SECONDS = 600
"""A pod whose maker went away ends by itself, and is deleted with the run."""
_ENDS = {"activeDeadlineSeconds": DEADLINE_SECONDS}
ACCOUNT = "default"
ROLES = ("task", "proposer", "evaluator", "proxy", "referee", "embedder")


def report_pod(
    run: PromptLearningRun,
    owner: Owner,
    *,
    state: dict[str, Any],
    plans: Sequence[tuple[int, str]],
    suffix: str,
    settings: Settings,
    services: Mapping[str, str] = NO_SERVICES,
    also: str = "",
) -> Object:
    """Return the pod. ``state``: the operator's memory; ``plans``: (iteration, ConfigMap) of each there is;
    ``suffix``: keeps two pods apart; ``services``: as of ``engine_urls``; ``also``: what more it prints,
    CALLS or STORE."""
    template = run.spec.workers.template
    step = _step(run, owner, len(plans), {"state": state, **({also: True} if also else {})})
    made = _mounts(run, owner, plans, settings)
    worker = container(
        CONTAINER,
        image=settings.worker_image,
        command=["combee-worker", "report"],
        env=[
            *user_env(template),
            *step_env(run, step, engine_urls(run.spec, owner, ROLES, services, settings)),
            *reach_env(settings, services.values()),
        ],
        mounts=made.mounts,
        resources=resources_of(template, settings.worker_resources),
        settings=settings,
    )
    spec = pod_spec(
        worker,
        volumes=made.volumes,
        account=ACCOUNT,
        restart="Never",
        grace_seconds=GRACE_SECONDS,
        settings=settings,
    )
    shown = pod_labels_and_annotations(labels(owner, COMPONENT), template, "spec.workers.template")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **shown,
            "name": f"{owner.name[:30].rstrip('-.')}-{owner.uid[:8]}-{COMPONENT}-{suffix}",
            "namespace": owner.namespace,
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": customised({**spec, **_ENDS}, template, keep_account=True),
    }


def _step(run: PromptLearningRun, owner: Owner, iterations: int, params: dict[str, Any]) -> Step:
    return Step(f"{owner.name}-{COMPONENT}", COMPONENT, iterations, run.spec.seed, params=params)


def _mounts(
    run: PromptLearningRun, owner: Owner, plans: Sequence[tuple[int, str]], settings: Settings
) -> Mounts:
    made = Mounts()
    volume, mount = scratch(settings.worker_scratch)
    made.add(volume, mount["mountPath"], read_only=False)
    made.config_map(names.run_config_name(owner.name, owner.uid), RUN_KEY, "run", RUN_FOLDER)
    sources: list[dict[str, Any]] = []
    for iteration, name in plans:
        file = f"i{iteration:03d}.json"
        plan, clocks = {"key": PLAN_KEY, "path": file}, {"key": CLOCKS_KEY, "path": f"clocks/{file}"}
        sources.append({"configMap": {"name": name, "items": [plan]}})
        # An earlier version's ConfigMap has no such key.
        sources.append({"configMap": {"name": name, "items": [clocks], "optional": True}})
    made.add({"name": "plans", "projected": {"sources": sources}}, PLANS_FOLDER)
    store = run.spec.store
    if store.pvc is not None:
        made.claim(store.pvc.claim_name, "store", STORE_FOLDER)
    if store.secret_ref is not None:
        made.secret(store.secret_ref.name, "store")
    return made
