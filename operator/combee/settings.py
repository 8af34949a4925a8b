"""The only reader of the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from combee.errors import UserError

_Settings = TypeVar("_Settings")
_Quantities = Mapping[str, Mapping[str, str]]


def environment_value(variable: str, *, wanted_for: str) -> str:
    """Return the value of ``variable``. UserError naming it (never a value) when it is unset or empty."""
    value = os.environ.get(variable, "")
    if not value:
        raise UserError(
            f"the environment variable {variable} is not set",
            where=wanted_for,
            fix=f"export {variable}=... and run again",
        )
    return value


def is_set(variable: str) -> bool:
    """Say whether ``variable`` has a value."""
    return bool(os.environ.get(variable))


def program_path() -> str:
    """Return where programs are looked for."""
    return os.environ.get("PATH", "") or os.defpath


def own_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this process, for one that it starts; ``added`` win."""
    return {**os.environ, **added}


def kubeconfig() -> str:
    """Paths of kubeconfig files, as the environment lists them; else the user's own."""
    return os.environ.get("KUBECONFIG", "") or str(Path("~/.kube/config").expanduser())


def read_settings(kind: type[_Settings], program: str) -> _Settings:
    """Settings, each field from its variable. UserError names the variable that is missing or wrong."""
    values = {}
    for stated in fields(kind):  # type: ignore[arg-type]  # every kind below is a dataclass
        name, parse, default = stated.metadata["variable"]
        if default is None:
            environment_value(name, wanted_for=program)
        values[stated.name] = parse(name, os.environ.get(name, "") or default)
    return kind(**values)


def _text(name: str, value: str) -> str:
    return value


def _path(name: str, value: str) -> Path:
    return Path(value)


def _level(name: str, value: str) -> str:
    return value.upper()


def _words(name: str, value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(",") if word.strip())


def _yes(name: str, value: str) -> bool:
    if value.lower() not in ("", "true", "false"):
        raise UserError("neither true nor false", where=name, fix="Set it to true or false")
    return value.lower() == "true"


def _discipline(name: str, value: str) -> str:
    if value not in ("Strict", "Advisory"):
        raise UserError("neither Strict nor Advisory", where=name, fix="Set it to Strict or Advisory")
    return value


def _whole(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise UserError("not a whole number", where=name, fix="Set it to a number such as 8080")
    return int(value)


def _resources(name: str, value: str) -> Any:
    """Requests and limits."""
    try:
        return json.loads(value or "{}")
    except ValueError:
        raise UserError("not JSON", where=name, fix='Write {"requests": {...}, "limits": {...}}') from None


def _api_server(name: str, host: str) -> str:
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host else ""


def _of_desk(key: str) -> Callable[[str, str], str]:
    """Return a reader of one key of a JSON object."""

    def read(name: str, value: str) -> str:
        try:
            return str(json.loads(value)[key])
        except (ValueError, KeyError, TypeError):
            raise UserError("it cannot be read", where=name, fix="The operator sets it") from None

    return read


def _variable(name: str, parse: Callable[[str, str], Any] = _text, *, default: str | None = "") -> Any:
    """Return a field that is read from the variable ``name``; without a default, it must be set."""
    return field(metadata={"variable": (name, parse, default)})


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What every pod of a namespace is told."""

    root: Path = _variable("COMBEE_ROOT", _path, default="/")
    """what every absolute path of the pod is below; ``/`` but in tests."""
    log_level: str = _variable("COMBEE_LOG_LEVEL", _level, default="INFO")

    def path(self, absolute: str) -> Path:
        """Return a path of the pod's layout.

        >>> PodSettings(Path("/"), "INFO").path("/etc/combee/run/run.json")
        PosixPath('/etc/combee/run/run.json')
        """
        return self.root / absolute.lstrip("/")


@dataclass(frozen=True, slots=True)
class ReachSettings:
    """What a pod is told of the hosts that it may ask."""

    namespace: str = _variable("COMBEE_REACH_FROM")
    """the pod's own; empty where nobody limits it, as on a laptop."""
    allowed_hosts: tuple[str, ...] = _variable("COMBEE_ALLOWED_HOSTS", _words)
    """hosts that are asked wherever they lead."""
    api_server: str = _variable("KUBERNETES_SERVICE_HOST")
    """its address, as the kubelet tells it."""


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Where the environment sends S3 clients that no Secret sends elsewhere, as AWS's clients read it."""

    of_s3: str = _variable("AWS_ENDPOINT_URL_S3")
    of_all: str = _variable("AWS_ENDPOINT_URL")
    """that of all services; the one above comes first."""


@dataclass(frozen=True, slots=True)
class WorkerSettings(PodSettings):
    """What a step's pod is told: the layout of its files, and who it is."""

    step: str = _variable("COMBEE_STEP", default=None)
    """the Step as JSON."""
    shard: int = _variable("JOB_COMPLETION_INDEX", _whole, default="0")
    store: str = _variable("COMBEE_STORE", default=None)
    """``/store`` for a claim, or an address."""
    engines: str = _variable("COMBEE_ENGINES", default="{}")
    """JSON: engine name -> base URL."""
    api_server: str = _variable("KUBERNETES_SERVICE_HOST", _api_server)
    """``host:port`` of the API server; empty outside a cluster."""
    address: str = _variable("COMBEE_ADDRESS")
    """the pod's own, where its step gives rollouts to other pods."""


@dataclass(frozen=True, slots=True)
class JudgeSettings(PodSettings):
    """What the pod that judges a canary is told."""

    task: str = _variable("COMBEE_JUDGE", default=None)
    """the JudgeTask as JSON."""
    api_server: str = _variable("KUBERNETES_SERVICE_HOST", _api_server)
    job_uid: str = _variable("COMBEE_JOB_UID", default="")
    """that of the Job whose pod it is; what it judges counts as that Job's."""


@dataclass(frozen=True, slots=True)
class SweepSettings(PodSettings):
    """What the pod that sweeps a store is told."""

    task: str = _variable("COMBEE_SWEEP", default=None)
    """the store, and what is to go, as JSON."""


@dataclass(frozen=True, slots=True)
class DataWatchSettings(PodSettings):
    """What the pod that looks at a Playbook's data is told."""

    task: str = _variable("COMBEE_WATCH", default=None)
    """the places, as JSON."""


@dataclass(frozen=True, slots=True)
class AttendSettings(PodSettings):
    """What the container beside a user's own is told."""

    desk: str = _variable("COMBEE_DESK", _of_desk("desk"), default=None)
    """where rollouts are claimed."""
    token: str = _variable("COMBEE_DESK", _of_desk("token"), default=None)
    claimed_by: str = _variable("COMBEE_CLAIMED_BY")
    """the file that says whose a pod out of a warm pool is; empty for a Job's pod, which is nobody else's."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What a gateway's pod is told."""

    namespace: str = _variable("POD_NAMESPACE", default=None)
    """whose Playbooks it serves."""
    host: str = _variable("COMBEE_GATEWAY_HOST", default="0.0.0.0")  # noqa: S104 - a pod's own address
    port: int = _variable("COMBEE_GATEWAY_PORT", _whole, default="8080")
    metrics_port: int = _variable("COMBEE_METRICS_PORT", _whole, default="8081")
    secrets: Path = _variable("COMBEE_GATEWAY_SECRETS", _path, default="/etc/combee/gateway")
    """where Secrets are mounted."""
    traffic: Path = _variable("COMBEE_GATEWAY_TRAFFIC", _path, default="/traffic")
    """where stores that are claims are mounted, and what waits to be stored."""
    memory: int = _variable("COMBEE_GATEWAY_MEMORY", _whole, default=str(512 * 1024 * 1024))
    """bytes that its container may take."""
    connections_per_client: int = _variable("COMBEE_GATEWAY_CONNECTIONS_PER_CLIENT", _whole, default="2000")
    """at once, from one address."""
    log_level: str = _variable("COMBEE_LOG_LEVEL", _level, default="INFO")


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """How the operator was configured: the chart's values, as its Deployment passes them on."""

    namespaces: tuple[str, ...] = _variable("COMBEE_NAMESPACES", _words)
    """those it watches; empty: all."""
    pod_name: str = _variable("POD_NAME", default=os.uname().nodename)
    pod_namespace: str = _variable("POD_NAMESPACE", default=None)
    worker_image: str = _variable("COMBEE_WORKER_IMAGE", default=None)
    gateway_image: str = _variable("COMBEE_GATEWAY_IMAGE")
    gateway_replicas: int = _variable("COMBEE_GATEWAY_REPLICAS", _whole, default="2")
    gateway_connections_per_client: int = _variable(
        "COMBEE_GATEWAY_CONNECTIONS_PER_CLIENT", _whole, default="2000"
    )
    gateway_resources: _Quantities = _variable("COMBEE_GATEWAY_RESOURCES", _resources)
    vllm_image: str = _variable("COMBEE_VLLM_IMAGE")
    engine_images: tuple[str, ...] = _variable("COMBEE_ENGINE_IMAGES", _words)
    """prefixes of images that engines may name."""
    engine_arguments: tuple[str, ...] = _variable("COMBEE_ENGINE_ARGUMENTS", _words)
    """names of arguments of vLLM that engines may be given besides the harmless ones."""
    allowed_hosts: tuple[str, ...] = _variable("COMBEE_ALLOWED_HOSTS", _words)
    """hosts that pods may ask though they are inside the cluster or the node."""
    image_pull_policy: str = _variable("COMBEE_IMAGE_PULL_POLICY", default="IfNotPresent")
    image_pull_secrets: tuple[str, ...] = _variable("COMBEE_IMAGE_PULL_SECRETS", _words)
    """names of Secrets, in the namespace of each run, with which its pods' images are pulled."""
    worker_account: str = _variable("COMBEE_WORKER_ACCOUNT", default="combee-worker")
    publish_account: str = _variable("COMBEE_PUBLISH_ACCOUNT", default="combee-publish")
    worker_resources: _Quantities = _variable("COMBEE_WORKER_RESOURCES", _resources)
    """requests and limits; empty: the operator's own."""
    worker_scratch: str = _variable("COMBEE_WORKER_SCRATCH")
    """a quantity, as ``engine_shared_memory``; empty: the operator's own."""
    engine_resources: _Quantities = _variable("COMBEE_ENGINE_RESOURCES", _resources)
    engine_shared_memory: str = _variable("COMBEE_ENGINE_SHARED_MEMORY")
    prefetch_resources: _Quantities = _variable("COMBEE_PREFETCH_RESOURCES", _resources)
    allow_custom_tasks: bool = _variable("COMBEE_ALLOW_CUSTOM_TASKS", _yes)
    allow_waived_canary: bool = _variable("COMBEE_ALLOW_WAIVED_CANARY", _yes, default="true")
    discipline: Literal["Strict", "Advisory"] = _variable("COMBEE_DISCIPLINE", _discipline, default="Strict")
    """whether a run that names none and does not state its inputs is refused, or warned."""
    read_nodes: bool = _variable("COMBEE_READ_NODES", _yes)
    """whether it may list nodes, to know which GPUs engines get."""
    agent_sandbox: bool = _variable("COMBEE_AGENT_SANDBOX", _yes)
    """whether it may make rollouts by warm pools of agent-sandbox, where that is installed."""
    secret_policy: bool = _variable("COMBEE_SECRET_POLICY", _yes)
    """whether the admission policy that guards Secrets is installed."""
    make_accounts: bool = _variable("COMBEE_MAKE_ACCOUNTS", _yes)
    """whether the accounts of step pods are made where a namespace's first run is."""
    resync_seconds: int = _variable("COMBEE_RESYNC_SECONDS", _whole, default="60")
    metrics_port: int = _variable("COMBEE_METRICS_PORT", _whole, default="8080")
    log_level: str = _variable("COMBEE_LOG_LEVEL", _level, default="INFO")


@dataclass(frozen=True, slots=True)
class CleanupSettings:
    """What the pod that ends an uninstall is told, as the operator was."""

    namespaces: tuple[str, ...] = _variable("COMBEE_NAMESPACES", _words)
    """those that the operator watched; empty: all."""
    pod_name: str = _variable("POD_NAME", default=None)
    pod_namespace: str = _variable("POD_NAMESPACE", default=None)
    made_accounts: bool = _variable("COMBEE_MAKE_ACCOUNTS", _yes)
    """whether the accounts of step pods were the operator's to make."""
    log_level: str = _variable("COMBEE_LOG_LEVEL", _level, default="INFO")
