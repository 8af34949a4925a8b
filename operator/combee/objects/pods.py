"""The pod that everything runs in: the restricted Pod Security Standard, no token, resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from combee.objects.types import Object, Settings

USER_ID = 10001
"""The user and group of every container, and the group that owns mounted volumes."""
LOST_NODE_SECONDS = 30
"""How long a pod stays bound to a node that does not answer: Kubernetes' own 300 s would hold up a step."""
SCRATCH = "/tmp"  # noqa: S108 - the mount point of an emptyDir of the pod's own


def container(
    name: str,
    *,
    image: str,
    command: Sequence[str],
    args: Sequence[str] = (),
    env: Sequence[Object],
    mounts: Sequence[Object],
    resources: Object,
    settings: Settings,
) -> Object:
    """Return a container that may write to its mounts and nowhere else, and holds no capability."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": [literal(word) for word in command],
        "args": [literal(word) for word in args],
        "env": list(env),
        "volumeMounts": list(mounts),
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


def pod_spec(
    main: Object,
    *,
    volumes: Sequence[Object],
    account: str,
    grace_seconds: int,
    settings: Settings,
    token: bool = False,
    restart: str = "Always",
) -> Object:
    """Return the spec of a pod with one container. ``token``: whether its account's token is mounted.

    Service links stay off: a Service called ``vllm`` would set VLLM_PORT to something that is no port.
    """
    spec: Object = {
        "serviceAccountName": account,
        "automountServiceAccountToken": token,
        "enableServiceLinks": False,
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": grace_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "tolerations": [_lost_node("not-ready"), _lost_node("unreachable")],
        "containers": [main],
        "volumes": list(volumes),
    }
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    return spec


def plain(name: str, value: str) -> Object:
    """Return an environment variable with exactly this value."""
    return {"name": name, "value": literal(value)}


def reach_env(settings: Settings, servers: Iterable[str] = ()) -> list[Object]:
    """Return the variables by which a pod's clients know what they may ask. ``servers``: addresses that other
    controllers told of servers, which may be Services of another namespace."""
    hosts = [urlsplit(url).hostname or "" for url in servers]
    allowed = [*settings.allowed_hosts, *(host for host in hosts if "svc" in host.split(".")[2:])]
    return [
        {"name": "COMBEE_REACH_FROM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        plain("COMBEE_ALLOWED_HOSTS", ",".join(dict.fromkeys(allowed))),
    ]


def literal(text: str) -> str:
    """Return ``text`` written so that the kubelet, which replaces ``$(NAME)``, leaves it as it is."""
    return text.replace("$", "$$")


def _lost_node(state: str) -> Object:
    return {
        "key": f"node.kubernetes.io/{state}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": LOST_NODE_SECONDS,
    }


def scratch(size: str | None = None) -> tuple[Object, Object]:
    """Return the volume and mount of /tmp, the only place to write to besides other mounts for that."""
    empty: Object = {"sizeLimit": size} if size else {}
    return {"name": "tmp", "emptyDir": empty}, {"name": "tmp", "mountPath": SCRATCH}
