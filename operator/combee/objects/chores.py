"""Jobs of one pod that belong to no run: a canary is judged, kept traffic swept, data looked at. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from combee.objects.jobs import CONTAINER, GRACE_SECONDS
from combee.objects.pods import SCRATCH, container, plain, pod_spec, reach_env, scratch
from combee.objects.types import Object, Settings
from combee.objects.volumes import Mounts


def chore_mounts(settings: Settings) -> Mounts:
    """Return the mounts that every such pod has: a scratch folder."""
    mounted = Mounts()
    volume, mount = scratch(settings.worker_scratch)
    mounted.add(volume, mount["mountPath"], read_only=False)
    return mounted


def chore_pod(
    word: str,
    task: tuple[str, str],
    mounted: Mounts,
    settings: Settings,
    *,
    account: str,
    token: bool = False,
    env: Sequence[Object] = (),
) -> Object:
    """Return the pod that runs ``combee-worker WORD``. ``task``: its task's variable, and the value; ``env``:
    more variables."""
    worker = container(
        CONTAINER,
        image=settings.worker_image,
        command=["combee-worker", word],
        env=[
            plain(*task),
            plain("COMBEE_LOG_LEVEL", settings.log_level),
            plain("HOME", SCRATCH),
            *reach_env(settings),
            *env,
        ],
        mounts=mounted.mounts,
        resources=dict(settings.worker_resources),
        settings=settings,
    )
    return pod_spec(
        worker,
        volumes=mounted.volumes,
        account=account,
        token=token,
        restart="Never",
        grace_seconds=GRACE_SECONDS,
        settings=settings,
    )


def chore_job(metadata: Object, pod: Object, **limits: object) -> Object:
    """Return the Job of that one pod, which is tried once. ``limits``: fields of its spec."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            **limits,
            "template": {"metadata": {"labels": metadata["labels"]}, "spec": pod},
        },
    }
