"""The types of objects, and how the operator was configured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object, or a part of one, as JSON has it."""

Resources = Mapping[str, Mapping[str, str]]
"""``{"requests": {"cpu": ...}, "limits": {...}}``."""


def _worker_resources() -> Resources:
    return {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "2", "memory": "2Gi"}}


def _engine_resources() -> Resources:
    return {"requests": {"cpu": "1", "memory": "4Gi"}}


def _prefetch_resources() -> Resources:
    return {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"cpu": "2", "memory": "4Gi"}}


def _gateway_resources() -> Resources:
    return {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "2", "memory": "512Mi"}}


@dataclass(frozen=True, slots=True)
class Settings:
    """How the operator was configured: the chart's values, as far as objects follow them."""

    worker_image: str
    vllm_image: str = ""
    """the image of engines that name none; where it is empty, each must name its own."""
    engine_images: tuple[str, ...] = ()
    """prefixes of images that engines may name besides ``vllm_image``."""
    engine_arguments: tuple[str, ...] = ()
    """names of arguments that engines may be given besides the harmless ones; ``*``: all."""
    allowed_hosts: tuple[str, ...] = ()
    """hosts that pods may ask though they are inside the cluster or the node."""
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    """pull secrets for the images of the chart; a template adds its own."""
    gateway_image: str = ""
    """the operator's own image."""
    gateway_replicas: int = 2
    gateway_connections_per_client: int = 2000
    gateway_resources: Resources = field(default_factory=_gateway_resources)
    log_level: str = "INFO"
    worker_account: str = "combee-worker"
    publish_account: str = "combee-publish"
    worker_resources: Resources = field(default_factory=_worker_resources)
    engine_resources: Resources = field(default_factory=_engine_resources)
    """an engine's resources besides its GPUs, which ``gpusPerReplica`` gives."""
    prefetch_resources: Resources = field(default_factory=_prefetch_resources)
    step_deadline_seconds: int = 6 * 3600
    """the time after which a step's Job is given up, retries included."""
    prefetch_deadline_seconds: int = 6 * 3600
    worker_scratch: str = "2Gi"
    """the most that a step pod may write to /tmp."""
    engine_shared_memory: str = "8Gi"
    """the size of an engine's /dev/shm, which counts as memory of the pod."""
    make_accounts: bool = False
    """whether the operator makes accounts where they are needed; otherwise the chart has made them."""
    secret_policy: bool = False
    """whether the admission policy that guards Secrets is installed."""
