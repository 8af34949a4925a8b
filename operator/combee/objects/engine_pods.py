"""The pods of an engine: the server, and the one that fetches its weights beforehand."""

from __future__ import annotations

from collections.abc import Sequence

from combee import names
from combee.api.parts import Engine
from combee.objects.addresses import PORT
from combee.objects.overrides import customised, resources_of, user_env
from combee.objects.pods import SCRATCH, container, plain, pod_spec, scratch
from combee.objects.probes import Answers, probes
from combee.objects.types import Object, Settings

CACHE = "/models"
"""Where modelCache is mounted; a model whose name begins with it is a folder of the claim."""
START_DATE = "2025-08-05"
"""The date that gpt-oss reads in its system message unless the template names another: the day those models
came out. vLLM by itself takes today's, and every prompt would change at midnight."""
GRACE_SECONDS = 5
"""A server holds nothing worth waiting for (callers ask again), and its GPUs are wanted."""
_SPLITS = (
    "--tensor-parallel-size",
    "-tp",
    "--pipeline-parallel-size",
    "-pp",
    "--data-parallel-size",
    "-dp",
)


def server_pod(engine: Engine, image: str, settings: Settings, answers: Answers = "chat") -> Object:
    """Return the spec of a server's pod. ``answers``: what the server is for."""
    volumes, mounts = _volumes(engine, read_only=True)
    volumes.append({"name": "shm", "emptyDir": _memory(settings.engine_shared_memory)})
    mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - memory of the pod's own
    vllm = container(
        "vllm",
        image=image,
        command=["vllm", "serve", engine.vllm.model],
        args=_arguments(engine),
        env=[
            *([plain(names.START_DATE, START_DATE)] if engine.start_date is None else []),
            *user_env(engine.template),
            *_env(engine, offline=fetches(engine), gpus=bool(engine.vllm.gpus_per_replica)),
        ],
        mounts=mounts,
        resources=resources_of(engine.template, settings.engine_resources, engine.vllm.gpus_per_replica),
        settings=settings,
    )
    vllm["ports"] = [{"name": "http", "containerPort": PORT, "protocol": "TCP"}]
    vllm.update(probes(answers))
    spec = pod_spec(
        vllm,
        volumes=volumes,
        account=settings.worker_account,
        grace_seconds=GRACE_SECONDS,
        settings=settings,
    )
    return customised(spec, engine.template)


def prefetch_pod(engine: Engine, image: str, settings: Settings) -> Object:
    """Return the spec of the pod that downloads the weights, with the server's own image so that both
    agree about the cache's layout. It holds no GPU."""
    volumes, mounts = _volumes(engine, read_only=False)
    vllm = engine.vllm
    fetch = container(
        "fetch",
        image=image,
        command=["hf", "download", vllm.model],
        # The excluded files are copies of the weights in another format, which vLLM does not read.
        args=[*_revision(engine), "--exclude=original/*"],
        env=[*user_env(engine.template), *_env(engine, offline=False, gpus=False)],
        mounts=mounts,
        resources=resources_of(None, settings.prefetch_resources),
        settings=settings,
    )
    spec = pod_spec(
        fetch,
        volumes=volumes,
        account=settings.worker_account,
        restart="Never",
        grace_seconds=GRACE_SECONDS,
        settings=settings,
    )
    return customised(spec, engine.template)


def fetches(engine: Engine) -> bool:
    """Return whether weights are fetched beforehand: there is a cache, and the model is a name on the hub
    and neither a folder nor an address."""
    model = engine.vllm.model
    return engine.vllm.model_cache is not None and not model.startswith(("/", ".")) and "://" not in model


def _arguments(engine: Engine) -> list[str]:
    """Return the user's arguments, then ours: of two alike, vLLM takes the last."""
    # Without the last a server reports no cached tokens.
    ours = [f"--port={PORT}", "--host=0.0.0.0", *_revision(engine), "--enable-prompt-tokens-details"]
    given = {arg.split("=", 1)[0].replace("_", "-") for arg in engine.vllm.args}
    # vLLM takes a flag's beginning for the flag where no other one begins so.
    split = any(one.startswith(flag) for flag in given if len(flag) > 2 for one in _SPLITS)
    if engine.vllm.gpus_per_replica > 1 and not split:
        ours.append(f"--tensor-parallel-size={engine.vllm.gpus_per_replica}")
    return [*engine.vllm.args, *ours]


def _revision(engine: Engine) -> Sequence[str]:
    return [f"--revision={engine.vllm.revision}"] if engine.vllm.revision is not None else []


def _env(engine: Engine, *, offline: bool, gpus: bool) -> list[Object]:
    """Return variables that give writable places to everything that caches, and a user name (torch asks for
    one at import, and the user id has none in the image)."""
    cached = engine.vllm.model_cache is not None
    env = [
        plain("HOME", SCRATCH),
        plain("USER", "combee"),
        plain("XDG_CACHE_HOME", f"{SCRATCH}/cache"),
        plain("XDG_CONFIG_HOME", f"{SCRATCH}/config"),
        plain("HF_HOME", CACHE if cached else f"{SCRATCH}/huggingface"),
        plain("HF_MODULES_CACHE", f"{SCRATCH}/modules"),
        plain("HF_HUB_DISABLE_TELEMETRY", "1"),
        plain("VLLM_NO_USAGE_STATS", "1"),
    ]
    if offline:
        env.append(plain("HF_HUB_OFFLINE", "1"))
    if not gpus:
        # Images for GPUs ask their runtime for all devices of the node unless they are told not to.
        env.append(plain("NVIDIA_VISIBLE_DEVICES", "void"))
    return env


def _volumes(engine: Engine, *, read_only: bool) -> tuple[list[Object], list[Object]]:
    volume, mount = scratch()
    volumes, mounts = [volume], [mount]
    if engine.vllm.model_cache is not None:
        claim = {"claimName": engine.vllm.model_cache.claim_name}
        volumes.append({"name": "models", "persistentVolumeClaim": claim})
        # Fetched weights are only read; a folder or an address may be anything, and is only read, too.
        mounts.append({"name": "models", "mountPath": CACHE, **({"readOnly": True} if read_only else {})})
    return volumes, mounts


def _memory(size: str) -> Object:
    return {"medium": "Memory", "sizeLimit": size}
