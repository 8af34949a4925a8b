"""The restricted Pod Security Standard of Kubernetes 1.34, read from its definition, for a pod template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}
PROFILES = ("RuntimeDefault", "Localhost")
SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")


def violations(template: dict[str, Any]) -> list[str]:
    """What of the restricted level a pod template breaks; empty when it holds."""
    spec = template["spec"]
    found = [f"{f} is set" for f in ("hostNetwork", "hostPID", "hostIPC") if spec.get(f)]
    found += _annotations(template.get("metadata", {}).get("annotations", {}))
    found += [f"volume {v['name']}: {sorted(v)}" for v in spec.get("volumes", []) if not _volume(v)]
    security = spec.get("securityContext", {})
    found += [f"sysctl {s['name']}" for s in security.get("sysctls", []) if s["name"] not in SAFE_SYSCTLS]
    found += list(_both(security, "pod"))
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind, []):
            found += list(_container(container, security))
    return found


def _annotations(annotations: dict[str, str]) -> Iterator[str]:
    for key, value in annotations.items():
        if key.startswith("container.apparmor.security.beta.kubernetes.io/") and value == "unconfined":
            yield f"annotation {key}"
        if key.startswith(("seccomp.security.alpha.kubernetes.io/", "container.seccomp.security.alpha")):
            yield f"annotation {key}"


def _volume(volume: dict[str, Any]) -> bool:
    kinds = set(volume) - {"name"}
    return len(kinds) == 1 and kinds <= VOLUMES


def _both(security: dict[str, Any], where: str) -> Iterator[str]:
    if security.get("runAsUser") == 0:
        yield f"{where}: runs as root"
    if security.get("runAsNonRoot") is False:
        yield f"{where}: runAsNonRoot is false"
    if security.get("seccompProfile", {"type": "RuntimeDefault"})["type"] not in PROFILES:
        yield f"{where}: seccomp is unconfined"
    if security.get("appArmorProfile", {"type": "RuntimeDefault"})["type"] not in PROFILES:
        yield f"{where}: AppArmor is unconfined"
    selinux = security.get("seLinuxOptions", {})
    if selinux.get("type", "") not in SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield f"{where}: SELinux options"
    if security.get("windowsOptions", {}).get("hostProcess"):
        yield f"{where}: host process"


def _container(container: dict[str, Any], pod: dict[str, Any]) -> Iterator[str]:
    name, security = container["name"], container.get("securityContext", {})
    yield from _both(security, name)
    if security.get("privileged"):
        yield f"{name}: privileged"
    if security.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: may escalate"
    capabilities = security.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield f"{name}: keeps capabilities"
    if set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield f"{name}: adds capabilities"
    if security.get("procMount", "Default") != "Default":
        yield f"{name}: procMount"
    if not security.get("runAsNonRoot", pod.get("runAsNonRoot")):
        yield f"{name}: may run as root"
    if not (security.get("seccompProfile") or pod.get("seccompProfile")):
        yield f"{name}: no seccomp profile"
    if any(port.get("hostPort") for port in container.get("ports", [])):
        yield f"{name}: host port"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        for action in ("httpGet", "tcpSocket"):
            if container.get(probe, {}).get(action, {}).get("host"):
                yield f"{name}: {probe} of another host"
