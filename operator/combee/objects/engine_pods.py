"""The pods of an engine: the server, and the one that fetches its weights beforehand."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence

from combee import names
from combee.api.engines import Engine
from combee.errors import BugError
from combee.objects.addresses import PORT, Answers
from combee.objects.overrides import customised, resources_of, user_env
from combee.objects.pods import SCRATCH, container, plain, pod_spec, scratch
from combee.objects.probes import probes
from combee.objects.types import Object, Settings

CACHE = "/models"
"""Where modelCache is mounted; a model whose name begins with it is a folder of the claim."""
START_DATE = "2025-08-05"
"""The date that gpt-oss reads in its system message unless the template names another: the day those models
came out. vLLM by itself takes today's, and every prompt would change at midnight."""
GRACE_SECONDS = 5
"""A server holds nothing worth waiting for (callers ask again), and its GPUs are wanted."""
COPY = """\
set -eu
if [ -d "$2" ]; then echo "$2 is there"; exit; fi
if [ ! -d "$1" ]; then echo "the source has no folder $1" | "$0" tee /dev/termination-log; exit 1; fi
"$0" rm -rf "$2.part-$3"
"$0" cp -RL "$1" "$2.part-$3"
"$0" mv -T "$2.part-$3" "$2" || { "$0" rm -rf "$2.part-$3"; [ -d "$2" ]; }
echo "copied $1 to $2"
"""
"""$0 is the shell, which is every program that this needs; $1 a folder, $2 its copy, $3 the copier's name.
The copy has its name only when it is whole, and of two copiers the first one wins."""
_BIN, _SOURCE = "/combee/bin", "/source"
_BIN_SIZE = "8Mi"
_SHELL = "/opt/combee/libexec/busybox"
"""The static shell in the worker's image."""
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
        command=["vllm", "serve", weights_folder(engine) or engine.server.model],
        args=_arguments(engine),
        env=[
            *([plain(names.START_DATE, START_DATE)] if engine.start_date is None else []),
            *user_env(engine.template),
            *_env(engine, offline=fetches(engine), gpus=bool(engine.server.gpus_per_replica)),
        ],
        mounts=mounts,
        resources=resources_of(engine.template, settings.engine_resources, engine.server.gpus_per_replica),
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
    vllm = engine.server
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
    return _fetching(fetch, engine, volumes, settings)


def copy_pod(engine: Engine, name: str, settings: Settings) -> Object:
    """Return the spec of the pod that copies the weights from ``modelCache.source`` to the claim. ``name``:
    what no other pod that may be at work has.

    An image's folder is copied by a container of that image, with a shell of ours: it needs no program of
    its own, and clusters need no image volumes. BugError where the engine has no source.
    """
    source, to = engine.server.weights_source, weights_folder(engine)
    if source is None or to is None:
        raise BugError("an engine without a source has nothing to copy", where=engine.name)
    volumes, mounts = _volumes(engine, read_only=False)
    before: list[Object] = []
    image, shell = settings.worker_image, _SHELL
    if source.image is not None:
        image, shell = source.image.reference, f"{_BIN}/busybox"
        before = [_shell_giver(settings)]
        origin = f"/{source.image.path}"
        volumes.append({"name": "bin", "emptyDir": {"sizeLimit": _BIN_SIZE}})
        mounts.append({"name": "bin", "mountPath": _BIN, "readOnly": True})
    elif source.pvc is not None:
        origin = f"{_SOURCE}/{source.pvc.path}"
        mounts.append(_claim_of_source(engine, source.pvc.claim_name, volumes))
    copy = container(
        "fetch",
        image=image,
        command=[shell, "sh", "-c", COPY, shell],
        args=[origin, to, name],
        env=[],
        mounts=mounts,
        resources=resources_of(None, settings.prefetch_resources),
        settings=settings,
    )
    return _fetching(copy, engine, volumes, settings, before)


def _fetching(
    fetch: Object, engine: Engine, volumes: list[Object], settings: Settings, before: Sequence[Object] = ()
) -> Object:
    """Return the spec of a pod that puts weights into the claim, once; ``before``: its init containers."""
    spec = pod_spec(
        fetch,
        volumes=volumes,
        account=settings.worker_account,
        restart="Never",
        grace_seconds=GRACE_SECONDS,
        settings=settings,
    )
    if before:
        spec["initContainers"] = list(before)
    return customised(spec, engine.template)


def weights_folder(engine: Engine) -> str | None:
    """Return the folder that the weights are copied to; None without a source. Its name follows from what is
    copied, so that another source, or another revision, is another folder."""
    source = engine.server.weights_source
    if source is None:
        return None
    what = json.dumps([source.dump(), engine.server.revision], sort_keys=True)
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", engine.server.model)[:60].strip("-.")
    return f"{CACHE}/{readable}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def fetches(engine: Engine) -> bool:
    """Return whether weights are put into the claim beforehand: there is a cache, and the model is a name
    and neither a folder nor an address."""
    return engine.server.model_cache is not None and engine.server.is_named


def _arguments(engine: Engine) -> list[str]:
    """Return the user's arguments, then ours: of two alike, vLLM takes the last."""
    # Without the last a server reports no cached tokens.
    ours = [f"--port={PORT}", "--host=0.0.0.0", *_identity(engine), "--enable-prompt-tokens-details"]
    given = {arg.split("=", 1)[0].replace("_", "-") for arg in engine.server.args}
    # vLLM takes a flag's beginning for the flag where no other one begins so.
    split = any(one.startswith(flag) for flag in given if len(flag) > 2 for one in _SPLITS)
    if engine.server.gpus_per_replica > 1 and not split:
        ours.append(f"--tensor-parallel-size={engine.server.gpus_per_replica}")
    return [*engine.server.args, *ours]


def _identity(engine: Engine) -> Sequence[str]:
    """Return the arguments that say which weights these are: a folder is served under the model's name."""
    if engine.server.weights_source is not None:
        return [f"--served-model-name={engine.server.model}"]
    return _revision(engine)


def _revision(engine: Engine) -> Sequence[str]:
    return [f"--revision={engine.server.revision}"] if engine.server.revision is not None else []


def _env(engine: Engine, *, offline: bool, gpus: bool) -> list[Object]:
    """Return variables that give writable places to everything that caches, and a user name (torch asks for
    one at import, and the user id has none in the image)."""
    cached = engine.server.model_cache is not None
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
    if engine.server.model_cache is not None:
        claim = {"claimName": engine.server.model_cache.claim_name}
        volumes.append({"name": "models", "persistentVolumeClaim": claim})
        # Fetched weights are only read; a folder or an address may be anything, and is only read, too.
        mounts.append({"name": "models", "mountPath": CACHE, **({"readOnly": True} if read_only else {})})
    return volumes, mounts


def _claim_of_source(engine: Engine, claim: str, volumes: list[Object]) -> Object:
    """Return the mount of the claim that weights are copied from. It may be the one they are copied to, and a
    claim is declared once."""
    mount: Object = {"name": "source", "mountPath": _SOURCE, "readOnly": True}
    cache = engine.server.model_cache
    if cache is not None and cache.claim_name == claim:
        return {**mount, "name": "models"}
    volumes.append({"name": "source", "persistentVolumeClaim": {"claimName": claim}})
    return mount


def _shell_giver(settings: Settings) -> Object:
    """Return the container that leaves a static shell for one whose image may have none."""
    return container(
        "shell",
        image=settings.worker_image,
        command=[_SHELL, "cp", _SHELL, f"{_BIN}/busybox"],
        env=[],
        mounts=[{"name": "bin", "mountPath": _BIN}],
        resources={"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}},
        settings=settings,
    )


def _memory(size: str) -> Object:
    return {"medium": "Memory", "sizeLimit": size}
