"""The NetworkPolicies of tasks in containers: a rollout's pod reaches the desks, and nobody else reaches either."""

from __future__ import annotations

from combee import names
from combee.objects.rollout_layout import PORT
from combee.objects.types import Object

ROLLOUTS, DESKS = "combee-rollouts", "combee-desks"
_ROLLOUT = {names.LABEL_NAME: "combee", names.LABEL_COMPONENT: names.ROLLOUT}
_DESK = {names.LABEL_NAME: "combee", names.LABEL_DESK: "true"}


def isolation(namespace: str) -> tuple[Object, Object]:
    """Both policies of a namespace. They belong to no run and stay when one ends: they cost nothing, they are the
    same for every run, and taking them away would race with the pods of the next one. An uninstall deletes them."""
    port = [{"port": PORT, "protocol": "TCP"}]
    return (
        # Not even names are resolved: a rollout finds its desk by number.
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
