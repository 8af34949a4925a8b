"""The only reader of the environment."""

from __future__ import annotations

import os
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

    def path(self, absolute: str) -> Path:
        """A path of the pod's layout.

        >>> WorkerSettings(Path("/"), "", 0, "", "", "", "INFO").path("/etc/combee/run/run.json")
        PosixPath('/etc/combee/run/run.json')
        """
        return self.root / absolute.lstrip("/")


def worker_settings() -> WorkerSettings:
    """The settings of a worker's pod. UserError naming the variable that is missing or wrong."""
    shard = os.environ.get("JOB_COMPLETION_INDEX", "0")
    if not (shard.isascii() and shard.isdigit()):
        raise UserError("not a whole number", where="JOB_COMPLETION_INDEX", fix="Indexed Jobs set it")
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return WorkerSettings(
        root=Path(os.environ.get("COMBEE_ROOT", "/")),
        step=environment_value("COMBEE_STEP", wanted_for="combee-worker"),
        shard=int(shard),
        store=environment_value("COMBEE_STORE", wanted_for="combee-worker"),
        engines=os.environ.get("COMBEE_ENGINES", "") or "{}",
        api_server=f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host else "",
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
        vllm_image=os.environ.get("COMBEE_VLLM_IMAGE", ""),
        engine_images=_words("COMBEE_ENGINE_IMAGES"),
        image_pull_policy=os.environ.get("COMBEE_IMAGE_PULL_POLICY", "") or "IfNotPresent",
        image_pull_secrets=_words("COMBEE_IMAGE_PULL_SECRETS"),
        worker_account=os.environ.get("COMBEE_WORKER_ACCOUNT", "") or "combee-worker",
        publish_account=os.environ.get("COMBEE_PUBLISH_ACCOUNT", "") or "combee-publish",
        worker_resources=os.environ.get("COMBEE_WORKER_RESOURCES", ""),
        allow_custom_tasks=_yes("COMBEE_ALLOW_CUSTOM_TASKS"),
        secret_policy=_yes("COMBEE_SECRET_POLICY"),
        make_accounts=_yes("COMBEE_MAKE_ACCOUNTS"),
        resync_seconds=float(_whole("COMBEE_RESYNC_SECONDS", 60)),
        metrics_port=_whole("COMBEE_METRICS_PORT", 8080),
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
