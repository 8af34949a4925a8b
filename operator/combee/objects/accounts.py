"""The accounts of step pods in a namespace: the worker's, which may do nothing, and publish's."""

from __future__ import annotations

from combee import names
from combee.objects.rollout_layout import PORT
from combee.objects.types import Object, Settings

PUBLISH_ROLE = "combee-publish"
"""The chart's ClusterRole that may create and read ConfigMaps."""


def account_objects(namespace: str, settings: Settings) -> tuple[Object, ...]:
    """Return both accounts and the binding that lets publish pods make ConfigMaps; none if the chart has.

    They belong to no run: the next run of the namespace uses them, too.
    """
    if not settings.make_accounts:
        return ()
    return (
        _account(namespace, settings.worker_account),
        _account(namespace, settings.publish_account),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": _metadata(namespace, settings.publish_account),
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": PUBLISH_ROLE,
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": settings.publish_account, "namespace": namespace}
            ],
        },
    )


def _account(namespace: str, name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(namespace, name),
        "automountServiceAccountToken": False,
    }


def _metadata(namespace: str, name: str) -> Object:
    labels = {names.LABEL_NAME: "combee", names.LABEL_MANAGED_BY: names.MANAGED_BY}
    return {"name": name, "namespace": namespace, "labels": labels}


ROLLOUTS, DESKS = "combee-rollouts", "combee-desks"
_ROLLOUT = {names.LABEL_NAME: "combee", names.LABEL_COMPONENT: names.ROLLOUT}
_DESK = {names.LABEL_NAME: "combee", names.LABEL_DESK: "true"}


def isolation(namespace: str) -> tuple[Object, Object]:
    """Return both policies of a namespace. They belong to no run and stay when one ends: they cost nothing,
    they are the same for every run, and deleting them would race with the pods of the next one. An uninstall
    deletes them."""
    port = [{"port": PORT, "protocol": "TCP"}]
    return (
        # Not even names are resolved: a rollout finds its desk by its IP address.
        _policy(
            namespace,
            ROLLOUTS,
            {
                "podSelector": {"matchLabels": dict(_ROLLOUT)},
                "policyTypes": ["Ingress", "Egress"],
                "egress": [{"to": [{"podSelector": {"matchLabels": dict(_DESK)}}], "ports": port}],
            },
        ),
        _policy(
            namespace,
            DESKS,
            {
                "podSelector": {"matchLabels": dict(_DESK)},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": dict(_ROLLOUT)}}], "ports": port}],
            },
        ),
    )


def _policy(namespace: str, name: str, spec: Object) -> Object:
    labels = {names.LABEL_NAME: "combee", names.LABEL_MANAGED_BY: names.MANAGED_BY}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }
