"""The only reader of the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from combee.errors import UserError


def environment_value(variable: str, *, wanted_for: str) -> str:
    """The value of ``variable``. UserError naming it (never a value) when it is unset or empty."""
    value = os.environ.get(variable, "")
    if not value:
        raise UserError(
            f"the environment variable {variable} is not set",
            where=wanted_for,
            fix=f"export {variable}=... and run again",
        )
    return value


def is_set(variable: str) -> bool:
    """Whether ``variable`` has a value."""
    return bool(os.environ.get(variable))


def program_path() -> str:
    """Where programs are looked for."""
    return os.environ.get("PATH", "") or os.defpath


def own_environment(added: Mapping[str, str]) -> dict[str, str]:
    """The variables of this process, for one that it starts; ``added`` win."""
    return {**os.environ, **added}


def kubeconfig() -> str:
    """Paths of kubeconfig files, as the environment lists them; else the user's own."""
    return os.environ.get("KUBECONFIG", "") or str(Path("~/.kube/config").expanduser())


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a step's pod is told: the layout of its files, and who it is."""

    root: Path
    """what every absolute path of the pod is below; ``/`` but in tests."""
    step: str
    """the Step as JSON."""
    shard: int
    store: str
    """``/store`` for a claim, or an address."""
    engines: str
    """JSON: engine name -> base URL."""
    api_server: str
    """``host:port`` of the API server; empty outside a cluster."""
    log_level: str
    address: str = ""
    """the pod's own, where its step gives rollouts to other pods."""

    def path(self, absolute: str) -> Path:
        """A path of the pod's layout.

        >>> WorkerSettings(Path("/"), "", 0, "", "", "", "INFO").path("/etc/combee/run/run.json")
        PosixPath('/etc/combee/run/run.json')
        """
        return self.root / absolute.lstrip("/")


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """What the pod that judges a canary is told."""

    root: Path
    """what every absolute path of the pod is below; ``/`` but in tests."""
    task: str
    """the JudgeTask as JSON."""
    api_server: str
    log_level: str

    def path(self, absolute: str) -> Path:
        """A path of the pod's layout."""
        return self.root / absolute.lstrip("/")


@dataclass(frozen=True)
class SweepSettings:
    """What the pod that sweeps a store is told."""

    root: Path
    """as of JudgeSettings."""
    task: str
    """the store, and what is to go, as JSON."""
    log_level: str

    def path(self, absolute: str) -> Path:
        """A path of the pod's layout."""
        return self.root / absolute.lstrip("/")


@dataclass(frozen=True, slots=True)
class DataWatchSettings:
    """What the pod that looks at a Playbook's data is told."""

    root: Path
    """as of JudgeSettings."""
    task: str
    """the places, as JSON."""
    log_level: str

    def path(self, absolute: str) -> Path:
        """A path of the pod's layout."""
        return self.root / absolute.lstrip("/")


def data_watch_settings() -> DataWatchSettings:
    """The settings of a pod that looks at data. UserError naming the variable that is missing."""
    return DataWatchSettings(
        root=Path(os.environ.get("COMBEE_ROOT", "/")),
        task=environment_value("COMBEE_WATCH", wanted_for="combee-worker watch-data"),
        log_level=os.environ.get("COMBEE_LOG_LEVEL", "INFO").upper(),
    )


def sweep_settings() -> SweepSettings:
    """The settings of a pod that sweeps. UserError naming the variable that is missing."""
    return SweepSettings(
        root=Path(os.environ.get("COMBEE_ROOT", "/")),
        task=environment_value("COMBEE_SWEEP", wanted_for="combee-worker sweep"),
        log_level=os.environ.get("COMBEE_LOG_LEVEL", "INFO").upper(),
    )


def judge_settings() -> JudgeSettings:
    """The settings of a pod that judges. UserError naming the variable that is missing."""
    return JudgeSettings(
        root=Path(os.environ.get("COMBEE_ROOT", "/")),
        task=environment_value("COMBEE_JUDGE", wanted_for="combee-worker judge"),
        api_server=_api_server(),
        log_level=os.environ.get("COMBEE_LOG_LEVEL", "INFO").upper(),
    )


def worker_settings() -> WorkerSettings:
    """The settings of a worker's pod. UserError naming the variable that is missing or wrong."""
    shard = os.environ.get("JOB_COMPLETION_INDEX", "0")
    if not (shard.isascii() and shard.isdigit()):
        raise UserError("not a whole number", where="JOB_COMPLETION_INDEX", fix="Indexed Jobs set it")
    return WorkerSettings(
        root=Path(os.environ.get("COMBEE_ROOT", "/")),
        step=environment_value("COMBEE_STEP", wanted_for="combee-worker"),
        shard=int(shard),
        store=environment_value("COMBEE_STORE", wanted_for="combee-worker"),
        engines=os.environ.get("COMBEE_ENGINES", "") or "{}",
        api_server=_api_server(),
        log_level=os.environ.get("COMBEE_LOG_LEVEL", "INFO").upper(),
        address=os.environ.get("COMBEE_ADDRESS", ""),
    )


@dataclass(frozen=True, slots=True)
class AttendSettings:
    """What the container beside a user's own is told."""

    root: Path
    """what every absolute path of the pod is below; ``/`` but in tests."""
    desk: str
    """where rollouts are claimed."""
    token: str
    port: int
    """on which it answers the kubelet."""
    shell: Path
    """a static busybox, which starts the user's program."""
    log_level: str

    def path(self, absolute: str) -> Path:
        """A path of the pod's layout."""
        return self.root / absolute.lstrip("/")


def attend_settings(port: int) -> AttendSettings:
    """The settings of the container beside a user's own. UserError naming the variable that is missing or wrong."""
    given = environment_value("COMBEE_DESK", wanted_for="combee-worker attend")
    try:
        told = json.loads(given)
        desk, token = str(told["desk"]), str(told["token"])
    except (ValueError, KeyError, TypeError):
        raise UserError("it cannot be read", where="COMBEE_DESK", fix="The operator sets it") from None
    return AttendSettings(
        root=Path(os.environ.get("COMBEE_ROOT", "/")),
        desk=desk,
        token=token,
        port=_whole("COMBEE_PROBES_PORT", port),
        shell=Path(os.environ.get("COMBEE_SHELL", "") or "/opt/combee/libexec/busybox"),
        log_level=os.environ.get("COMBEE_LOG_LEVEL", "INFO").upper(),
    )


def _api_server() -> str:
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host else ""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What a gateway's pod is told."""

    namespace: str
    """whose Playbooks it serves."""
    host: str
    port: int
    metrics_port: int
    secrets: Path
    """where Secrets are mounted."""
    traffic: Path
    """where stores that are claims are mounted, and what waits to be stored."""
    memory: int
    """bytes that its container may take."""
    log_level: str


def gateway_settings() -> GatewaySettings:
    """The settings of a gateway. UserError naming the variable that is missing or wrong."""
    return GatewaySettings(
        namespace=environment_value("POD_NAMESPACE", wanted_for="combee-gateway"),
        host=os.environ.get("COMBEE_GATEWAY_HOST", "") or "0.0.0.0",  # noqa: S104 - a pod's own address
        port=_whole("COMBEE_GATEWAY_PORT", 8080),
        metrics_port=_whole("COMBEE_METRICS_PORT", 8081),
        secrets=Path(os.environ.get("COMBEE_GATEWAY_SECRETS", "") or "/etc/combee/gateway"),
        traffic=Path(os.environ.get("COMBEE_GATEWAY_TRAFFIC", "") or "/traffic"),
        memory=_whole("COMBEE_GATEWAY_MEMORY", 512 * 1024 * 1024),
        log_level=os.environ.get("COMBEE_LOG_LEVEL", "INFO").upper(),
    )


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """How the operator was configured: the chart's values, as its Deployment passes them on."""

    namespaces: tuple[str, ...]
    """those it watches; empty: all."""
    pod_name: str
    pod_namespace: str
    worker_image: str
    gateway_image: str
    gateway_replicas: int
    gateway_resources: str
    """JSON, as ``worker_resources``."""
    vllm_image: str
    engine_images: tuple[str, ...]
    """prefixes of images that engines may name."""
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    """names of Secrets, in the namespace of each run, with which its pods' images are pulled."""
    worker_account: str
    publish_account: str
    worker_resources: str
    """JSON, requests and limits; empty: the operator's own."""
    worker_scratch: str
    """a quantity, as ``engine_shared_memory``; empty: the operator's own."""
    engine_resources: str
    engine_shared_memory: str
    prefetch_resources: str
    allow_custom_tasks: bool
    secret_policy: bool
    """whether the admission policy that guards Secrets is installed."""
    make_accounts: bool
    """whether the accounts of step pods are made where a namespace's first run is."""
    resync_seconds: float
    metrics_port: int
    log_level: str


def operator_settings() -> OperatorSettings:
    """The settings of the operator. UserError naming the variable that is missing or wrong."""
    return OperatorSettings(
        namespaces=_words("COMBEE_NAMESPACES"),
        pod_name=os.environ.get("POD_NAME", "") or os.uname().nodename,
        pod_namespace=environment_value("POD_NAMESPACE", wanted_for="combee-operator"),
        worker_image=environment_value("COMBEE_WORKER_IMAGE", wanted_for="combee-operator"),
        gateway_image=os.environ.get("COMBEE_GATEWAY_IMAGE", ""),
        gateway_replicas=_whole("COMBEE_GATEWAY_REPLICAS", 2),
        gateway_resources=os.environ.get("COMBEE_GATEWAY_RESOURCES", ""),
        vllm_image=os.environ.get("COMBEE_VLLM_IMAGE", ""),
        engine_images=_words("COMBEE_ENGINE_IMAGES"),
        image_pull_policy=os.environ.get("COMBEE_IMAGE_PULL_POLICY", "") or "IfNotPresent",
        image_pull_secrets=_words("COMBEE_IMAGE_PULL_SECRETS"),
        worker_account=os.environ.get("COMBEE_WORKER_ACCOUNT", "") or "combee-worker",
        publish_account=os.environ.get("COMBEE_PUBLISH_ACCOUNT", "") or "combee-publish",
        worker_resources=os.environ.get("COMBEE_WORKER_RESOURCES", ""),
        worker_scratch=os.environ.get("COMBEE_WORKER_SCRATCH", ""),
        engine_resources=os.environ.get("COMBEE_ENGINE_RESOURCES", ""),
        engine_shared_memory=os.environ.get("COMBEE_ENGINE_SHARED_MEMORY", ""),
        prefetch_resources=os.environ.get("COMBEE_PREFETCH_RESOURCES", ""),
        allow_custom_tasks=_yes("COMBEE_ALLOW_CUSTOM_TASKS"),
        secret_policy=_yes("COMBEE_SECRET_POLICY"),
        make_accounts=_yes("COMBEE_MAKE_ACCOUNTS"),
        resync_seconds=float(_whole("COMBEE_RESYNC_SECONDS", 60)),
        metrics_port=_whole("COMBEE_METRICS_PORT", 8080),
        log_level=os.environ.get("COMBEE_LOG_LEVEL", "INFO").upper(),
    )


@dataclass(frozen=True, slots=True)
class CleanupSettings:
    """What the pod that ends an uninstall is told, as the operator was."""

    namespaces: tuple[str, ...]
    """those that the operator watched; empty: all."""
    pod_name: str
    pod_namespace: str
    made_accounts: bool
    """whether the accounts of step pods were the operator's to make."""
    log_level: str


def cleanup_settings() -> CleanupSettings:
    """The settings of that pod. UserError naming the variable that is missing or wrong."""
    return CleanupSettings(
        namespaces=_words("COMBEE_NAMESPACES"),
        pod_name=environment_value("POD_NAME", wanted_for="combee-operator cleanup"),
        pod_namespace=environment_value("POD_NAMESPACE", wanted_for="combee-operator cleanup"),
        made_accounts=_yes("COMBEE_MAKE_ACCOUNTS"),
        log_level=os.environ.get("COMBEE_LOG_LEVEL", "INFO").upper(),
    )


def _words(variable: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in os.environ.get(variable, "").split(",") if word.strip())


def _yes(variable: str) -> bool:
    value = os.environ.get(variable, "").lower()
    if value not in ("", "true", "false"):
        raise UserError("neither true nor false", where=variable, fix="Set it to true or false")
    return value == "true"


def _whole(variable: str, default: int) -> int:
    value = os.environ.get(variable, "") or str(default)
    if not (value.isascii() and value.isdigit()):
        raise UserError("not a whole number", where=variable, fix=f"Set it to a number such as {default}")
    return int(value)
