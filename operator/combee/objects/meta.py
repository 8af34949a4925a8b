"""The metadata of what a run makes: names, labels, the one owner."""

from __future__ import annotations

from collections.abc import Mapping

from combee import names
from combee.objects.types import Object
from combee.records import Owner


def labels_of(component: str) -> dict[str, str]:
    """Return the labels of what belongs to no run."""
    return {
        names.LABEL_NAME: "combee",
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_COMPONENT: component,
    }


def labels(owner: Owner, component: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the labels that every child has, with ``more`` of our own."""
    return {**names.run_labels(owner.name, owner.uid, component), **(more or {})}


def metadata(owner: Owner, name: str, component: str, more: Mapping[str, str] | None = None) -> Object:
    """Return the metadata of a child, which is deleted with its run, also while the operator is down."""
    return {
        "name": name,
        "namespace": owner.namespace,
        "labels": labels(owner, component, more),
        "ownerReferences": [owner_reference(owner)],
    }


def owned(child: Object, owner: Owner) -> bool:
    """Return whether ``child`` was made for this very run, not for an earlier one of its name."""
    return any(ref.get("uid") == owner.uid for ref in child["metadata"].get("ownerReferences", ()))


def owner_reference(owner: Owner, *, controller: bool = True) -> Object:
    """Return the run as the controller of its children, or as one of several owners. It does not block the
    run's deletion: that needs a right on finalizers, and nobody waits for it."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_KIND,
        "name": owner.name,
        "uid": owner.uid,
        "controller": controller,
        "blockOwnerDeletion": False,
    }


def deployment_reference(name: str, uid: str) -> Object:
    """Return a Deployment as the controller of what goes with it."""
    maker = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": uid}
    return {**maker, "controller": True, "blockOwnerDeletion": False}
