"""The gateway of a namespace: one Deployment and one Service for all its Playbooks that want one.

It belongs to those Playbooks together: Kubernetes deletes it with the last of them, also while the
operator is down. A missing Secret does not keep the gateway from starting.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from combee import names
from combee.objects.meta import labels_of
from combee.objects.pods import container, plain, pod_spec, reach_env, scratch
from combee.objects.types import Object, Settings
from combee.plan.gateway import Served
from combee.records import Owner

COMPONENT = CONTAINER = "gateway"
PORT, PROBES = 8080, 8081
SECRETS_FOLDER = "/etc/combee/gateway"
TRAFFIC_FOLDER = "/traffic"
ROLE = "combee-gateway"
"""The chart's ClusterRole that may watch Playbooks and their versions, and read ConfigMaps."""
DRAIN_SECONDS = 5
"""A pod that is to stop goes on serving for this long, until nobody is sent to it any more."""
GRACE_SECONDS = 75
MADE_OF = f"{names.API_GROUP}/made-of"
"""The annotation with the digest of what was wished for; a Deployment with another digest is patched."""
_READ = 0o440


def gateway_deployment(playbooks: Sequence[Served], settings: Settings) -> Object:
    """Return the Deployment for these Playbooks of one namespace, of which there is at least one."""
    served = sorted(playbooks, key=lambda one: one.owner.name)
    made: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": names.GATEWAY,
            "namespace": served[0].owner.namespace,
            "labels": labels_of(COMPONENT),
            "ownerReferences": [_owner(names.API_VERSION, names.PLAYBOOK_KIND, one.owner) for one in served],
        },
        "spec": {
            "replicas": settings.gateway_replicas,
            "revisionHistoryLimit": 2,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "selector": {"matchLabels": labels_of(COMPONENT)},
            "template": {"metadata": {"labels": labels_of(COMPONENT)}, "spec": _pod(served, settings)},
        },
    }
    made["metadata"]["annotations"] = {MADE_OF: _digest(made)}
    return made


def gateway_service(deployment: Owner) -> Object:
    """Return the Service in front of the given Deployment; it is deleted with it."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.GATEWAY,
            "namespace": deployment.namespace,
            "labels": labels_of(COMPONENT),
            "ownerReferences": [_owner("apps/v1", "Deployment", deployment)],
        },
        "spec": {
            "selector": labels_of(COMPONENT),
            "ports": [
                {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"},
                {"name": "metrics", "port": PROBES, "targetPort": "metrics", "protocol": "TCP"},
            ],
        },
    }


def gateway_account(namespace: str) -> tuple[Object, ...]:
    """Return the gateway's account and its binding. They have no owner, since the next gateway uses them."""
    meta: Object = {
        "name": names.GATEWAY,
        "namespace": namespace,
        "labels": {names.LABEL_NAME: "combee", names.LABEL_MANAGED_BY: names.MANAGED_BY},
    }
    return (
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": meta,
            "automountServiceAccountToken": False,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
            "subjects": [{"kind": "ServiceAccount", "name": names.GATEWAY, "namespace": namespace}],
        },
    )


def gateway_change(wanted: Object, current: Object) -> Object | None:
    """Return the merge patch that makes the Deployment ``current`` as it is wanted; None where it is so.

    Replicas stay as a person or an autoscaler has set them.
    """
    before = (current["metadata"].get("annotations") or {}).get(MADE_OF)
    if before == wanted["metadata"]["annotations"][MADE_OF]:
        return None
    meta = {name: wanted["metadata"][name] for name in ("labels", "annotations", "ownerReferences")}
    return {"metadata": meta, "spec": {"template": wanted["spec"]["template"]}}


def _owner(api: str, kind: str, owner: Owner) -> Object:
    """Return a reference to one of several owners, none of which is the controller."""
    return {
        "apiVersion": api,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": False,
        "blockOwnerDeletion": False,
    }


def _pod(served: Sequence[Served], settings: Settings) -> Object:
    volume, mount = scratch("256Mi")
    volumes, mounts = [volume], [mount]
    claims: dict[str, str] = {}
    for one in served:
        _secrets(one, volumes, mounts)
        _store(one, volumes, mounts, claims)
    made = container(
        CONTAINER,
        image=settings.gateway_image,
        command=["combee-gateway"],
        env=_environment(settings),
        mounts=mounts,
        resources=dict(settings.gateway_resources),
        settings=settings,
    )
    made["ports"] = [
        {"name": "http", "containerPort": PORT, "protocol": "TCP"},
        {"name": "metrics", "containerPort": PROBES, "protocol": "TCP"},
    ]
    made |= {
        "startupProbe": _probe("/healthz", period=1, failures=120),
        "readinessProbe": _probe("/readyz", period=2, failures=3),
        "livenessProbe": _probe("/healthz", period=20, failures=3),
        "lifecycle": {"preStop": {"sleep": {"seconds": DRAIN_SECONDS}}},
    }
    spec = pod_spec(
        made,
        volumes=volumes,
        account=names.GATEWAY,
        grace_seconds=GRACE_SECONDS,
        settings=settings,
        token=True,
    )
    spec["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels_of(COMPONENT)},
        }
    ]
    return spec


def _environment(settings: Settings) -> list[Object]:
    # For a container without a limit, it is what the node has for pods.
    memory = {"containerName": CONTAINER, "resource": "limits.memory"}
    return [
        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        plain("COMBEE_GATEWAY_PORT", str(PORT)),
        plain("COMBEE_METRICS_PORT", str(PROBES)),
        plain("COMBEE_GATEWAY_SECRETS", SECRETS_FOLDER),
        plain("COMBEE_GATEWAY_TRAFFIC", TRAFFIC_FOLDER),
        {"name": "COMBEE_GATEWAY_MEMORY", "valueFrom": {"resourceFieldRef": memory}},
        plain("COMBEE_GATEWAY_CONNECTIONS_PER_CLIENT", str(settings.gateway_connections_per_client)),
        plain("COMBEE_LOG_LEVEL", settings.log_level),
        *reach_env(settings),
    ]


def _secrets(one: Served, volumes: list[Object], mounts: list[Object]) -> None:
    upstream, keys, store = one.gateway.upstream, one.gateway.keys, one.gateway.capture.store
    key = upstream.api_key_secret_ref if upstream is not None else None
    if key is not None:
        items = [{"key": key.key, "path": key.key}]
        _secret("upstream", one, {"secretName": key.name, "items": items}, volumes, mounts)
    if keys is not None and keys.secret_ref is not None:
        _secret("keys", one, {"secretName": keys.secret_ref.name}, volumes, mounts)
    if one.keeps_traffic and store.secret_ref is not None:
        _secret("store", one, {"secretName": store.secret_ref.name}, volumes, mounts)


def _secret(use: str, one: Served, source: Object, volumes: list[Object], mounts: list[Object]) -> None:
    name = f"{use}-{_short(one.owner.name)}"
    volumes.append({"name": name, "secret": {**source, "defaultMode": _READ, "optional": True}})
    mounts.append({"name": name, "mountPath": f"{SECRETS_FOLDER}/{use}/{one.owner.name}", "readOnly": True})


def _store(one: Served, volumes: list[Object], mounts: list[Object], claims: dict[str, str]) -> None:
    claim = one.gateway.capture.store.pvc
    if claim is None or not one.keeps_traffic:
        return
    if claim.claim_name not in claims:
        claims[claim.claim_name] = f"claim-{_short(claim.claim_name)}"
        source = {"claimName": claim.claim_name}
        volumes.append({"name": claims[claim.claim_name], "persistentVolumeClaim": source})
    mounts.append({"name": claims[claim.claim_name], "mountPath": f"{TRAFFIC_FOLDER}/{one.owner.name}"})


def _short(name: str) -> str:
    """Return what tells names apart inside a pod, in the eight characters that there is room for."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def _probe(path: str, *, period: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": "metrics", "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
        "successThreshold": 1,
    }


def _digest(made: Object) -> str:
    digested = {"template": made["spec"]["template"], "owners": made["metadata"]["ownerReferences"]}
    return hashlib.sha256(json.dumps(digested, sort_keys=True).encode()).hexdigest()
