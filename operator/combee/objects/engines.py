"""A run's vLLM servers: each engine's Deployment, headless Service, and Job that fetches the weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from combee import names
from combee.api.engines import Engine
from combee.api.run import PromptLearningRun
from combee.errors import ManifestError
from combee.objects.addresses import PORT, answers_of, engine_name, shared_digest
from combee.objects.allowed import refused_parts
from combee.objects.arguments import check_arguments
from combee.objects.engine_pods import copy_pod, fetches, prefetch_pod, server_pod
from combee.objects.meta import deployment_reference, labels, labels_of, metadata, owner_reference
from combee.objects.overrides import pod_labels_and_annotations
from combee.objects.probes import STARTUP_SECONDS
from combee.objects.types import Object, Settings
from combee.records import Owner

COMPONENT = "engine"
RETRIES = 6


def engine_objects(
    run: PromptLearningRun, owner: Owner, index: int, settings: Settings, *, replicas: int | None = None
) -> tuple[Object, Object]:
    """Return the Service and Deployment of an engine of the run's own, in the order to make them in.
    ``index``: its place in the spec; ``replicas``: as many as the manifest says where it is None.

    Where ``prefetch_job`` gives a Job, it must be complete first: the servers start offline.
    """
    return (
        engine_service(run, owner, index, settings),
        engine_deployment(run, owner, index, settings, replicas=replicas),
    )


def engine_deployment(
    run: PromptLearningRun, owner: Owner, index: int, settings: Settings, *, replicas: int | None = None
) -> Object:
    """Return the Deployment of an engine's servers.

    Changed pods are replaced one at a time and without an extra one (``maxSurge: 0``), since GPUs cannot
    be had twice. Raises ManifestError as ``engine_image`` and ``overrides`` do.
    """
    engine = run.spec.engines[index]
    pods = _labels(run, owner, engine, settings)
    spec: Object = {
        "replicas": engine.server.replicas if replicas is None else replicas,
        "revisionHistoryLimit": 1,
        # The Deployment's clock must not call an engine failed while its startup probe still gives it time.
        "progressDeadlineSeconds": STARTUP_SECONDS + 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "selector": {"matchLabels": _selector(pods)},
        "template": {
            "metadata": pod_labels_and_annotations(pods, engine.template, _path(index)),
            "spec": server_pod(
                engine, engine_image(engine, settings, index), settings, answers_of(run.spec, engine)
            ),
        },
    }
    meta = {
        "name": engine_name(run.spec, owner, index, settings),
        "namespace": owner.namespace,
        "labels": pods,
        "ownerReferences": [owner_reference(owner, controller=not engine.shared)],
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def engine_service(
    run: PromptLearningRun, owner: Owner, index: int, settings: Settings, deployment_uid: str = ""
) -> Object:
    """Return the headless Service of an engine: its name resolves to every server that is ready, and the
    client balances (kube-proxy would pin a kept-alive connection to one of them). ``deployment_uid``: of a
    shared engine's Deployment, with which its Service goes."""
    engine = run.spec.engines[index]
    all_labels, name = _labels(run, owner, engine, settings), engine_name(run.spec, owner, index, settings)
    spec: Object = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "publishNotReadyAddresses": False,
        "selector": _selector(all_labels),
        "ports": [{"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}],
    }
    maker = deployment_reference(name, deployment_uid) if engine.shared else owner_reference(owner)
    meta = {"name": name, "namespace": owner.namespace, "labels": all_labels, "ownerReferences": [maker]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}


def prefetch_job(run: PromptLearningRun, owner: Owner, index: int, settings: Settings) -> Object | None:
    """Return the Job that puts an engine's weights into its modelCache, from the cache's source or from the
    hub, to be complete before the engine starts; None for an engine without a cache, or whose model is a
    folder or an address. Raises ManifestError as ``engine_image`` does, for the source's image, too."""
    engine = run.spec.engines[index]
    if not fetches(engine):
        return None
    own = {names.LABEL_ENGINE: engine.name}
    pods = labels(owner, "prefetch", own)
    name = names.prefetch_name(owner.name, owner.uid, index)
    check_source(engine, settings, index)
    if engine.server.weights_source is not None:
        pod = copy_pod(engine, name, settings)
    else:
        pod = prefetch_pod(engine, engine_image(engine, settings, index), settings)
    spec: Object = {
        "backoffLimit": RETRIES,
        "activeDeadlineSeconds": settings.prefetch_deadline_seconds,
        "template": {
            "metadata": pod_labels_and_annotations(pods, engine.template, _path(index)),
            "spec": pod,
        },
    }
    meta = metadata(owner, name, "prefetch", own)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def engine_image(engine: Engine, settings: Settings, index: int = 0) -> str:
    """Return the image of an engine: its own where it names one, else the chart's.

    Raises ManifestError when there is none, or when it is neither the chart's nor under an allowed prefix.
    """
    where = f"spec.engines[{index}].vllm.image"
    wanted = engine.server.image or settings.vllm_image
    if not wanted:
        raise ManifestError(
            "the operator has no image for engines",
            where=where,
            fix=f"Name one, such as {names.VLLM_IMAGE}, or ask whoever installed the chart to set "
            "image.vllm.",
        )
    if wanted != settings.vllm_image:
        allowed = ", ".join(settings.engine_images) or "only the chart's"
        _check_image(wanted, where, f"Leave image out, or use one that is allowed ({allowed})", settings)
    return wanted


def check_source(engine: Engine, settings: Settings, index: int = 0) -> None:
    """Raise ManifestError for weights from an image that engines may not name either."""
    source = engine.server.weights_source
    if source is None or source.image is None:
        return
    where = f"spec.engines[{index}].vllm.modelCache.source.image.reference"
    allowed = ", ".join(settings.engine_images) or "none"
    _check_image(source.image.reference, where, f"Use one that is allowed ({allowed})", settings)


def _check_image(image: str, where: str, fix: str, settings: Settings) -> None:
    """Raise ManifestError for an image that is under no allowed prefix. A prefix ends where a part of the
    name ends: ``ghcr.io/acme`` allows ``ghcr.io/acme/vllm:1``, not ``ghcr.io/acme-mirror/vllm:1``."""
    if any(_under(image, prefix) for prefix in settings.engine_images):
        return
    raise ManifestError(
        f"image {image} is not allowed here",
        where=where,
        fix=f"{fix}; the chart's value engineImages lists them.",
    )


def check_model_cache(engine: Engine, access_modes: Collection[str], index: int = 0) -> None:
    """Refuse several servers on a claim that one node may use at a time.

    ``access_modes`` are those of the claim. Raises ManifestError.
    """
    shared = {"ReadWriteMany", "ReadOnlyMany"} & set(access_modes)
    if engine.server.model_cache is not None and engine.server.replicas > 1 and not shared:
        raise ManifestError(
            f"{engine.server.replicas} replicas on claim {engine.server.model_cache.claim_name}, "
            f"which is {' and '.join(sorted(access_modes)) or 'of no known mode'}",
            where=f"spec.engines[{index}].vllm.modelCache",
            fix="Use a ReadWriteMany claim, one replica, or no modelCache.",
        )


def _under(image: str, prefix: str) -> bool:
    if not prefix or not image.startswith(prefix):
        return False
    return prefix[-1] in "/:@" or image[len(prefix) : len(prefix) + 1] in ("", "/", ":", "@")


def _labels(run: PromptLearningRun, owner: Owner, engine: Engine, settings: Settings) -> dict[str, str]:
    """Return the labels of an engine's objects: those of its run, or of no run where several share it."""
    own = {names.LABEL_ENGINE: engine.name}
    if not engine.shared:
        return labels(owner, COMPONENT, own)
    return {**labels_of(COMPONENT), **own, names.LABEL_SHARED: shared_digest(run.spec, engine, settings)}


def _selector(all_labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels by which an engine's pods are found."""
    whose = (names.LABEL_SHARED, names.LABEL_RUN_UID, names.LABEL_COMPONENT, names.LABEL_ENGINE)
    return {label: all_labels[label] for label in whose if label in all_labels}


def _path(index: int) -> str:
    return f"spec.engines[{index}].template"


def check_run(run: PromptLearningRun, settings: Settings, *, started: bool = False) -> None:
    """Raise ManifestError for what a run's templates and engines ask for and may not, and for an engine's
    image or argument that is not allowed here. Making the objects would raise the same of templates and
    images, but too late.

    Of a run that has ``started`` arguments are not asked again: they cannot change any more, and an upgrade
    with another list must not leave its engines with nobody to take them down."""
    for error in refused_parts(run.spec):
        raise error
    for index, engine in enumerate(run.spec.engines):
        if engine.vllm is not None:
            engine_image(engine, settings, index)
            if not started:
                check_arguments(engine, settings, index)
            check_source(engine, settings, index)
