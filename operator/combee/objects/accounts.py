"""The accounts of step pods in a namespace: the worker's, which may do nothing, and publish's."""

from __future__ import annotations

from combee import names
from combee.objects.types import Object, Settings

PUBLISH_ROLE = "combee-publish"
"""the ClusterRole of the chart: create and read ConfigMaps."""


def account_objects(namespace: str, settings: Settings) -> tuple[Object, ...]:
    """Both accounts, and the binding that lets publish pods make ConfigMaps. They belong to no run:
    the next one of the namespace uses them, too."""
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
