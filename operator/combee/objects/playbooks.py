"""The objects that a Playbook asks for: the delivered ConfigMap, versions, runs. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from combee import names
from combee.api.run import RunSpec
from combee.objects.meta import owner_reference
from combee.objects.types import Object
from combee.objects.versions import version_labels
from combee.plan.playbook.trail import FiledLine
from combee.records import Owner


def delivered_config_map(
    owner: Owner, name: str, digest: str, data: Mapping[str, str], *, owned: bool = False
) -> Object:
    """Return what services mount. It has no owner (unless the Playbook asks for its deletion), so that
    deleting and re-applying the Playbook never deletes it. Scores on gate stay with the version."""
    meta: Object = {
        "name": name,
        "namespace": owner.namespace,
        "labels": version_labels(owner.name) | {names.LABEL_COMPONENT: "delivery"},
        "annotations": {names.DIGEST_ANNOTATION: digest, names.DATA_ANNOTATION: data_digest(shown(data))},
    }
    if owned:
        meta["ownerReferences"] = [playbook_reference(owner)]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": shown(data)}


def published_config_map(owner: Owner, name: str, digest: str, data: Mapping[str, str]) -> Object:
    """Return a version's content as a run published it, to be put back."""
    meta = {
        "name": name,
        "namespace": owner.namespace,
        "labels": version_labels(owner.name),
        "annotations": {names.DIGEST_ANNOTATION: digest},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, "data": dict(data)}


def history_config_map(owner: Owner, line: FiledLine) -> Object:
    """Return the ConfigMap of one line of the history. It cannot be changed, and has no owner: deleting and
    re-applying the Playbook, or deleting a version, never deletes it."""
    meta = {
        "name": names.history_name(owner.name, line.number),
        "namespace": owner.namespace,
        "labels": names.history_labels(owner.name),
    }
    data = {names.LINE_KEY: line.text}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, "data": data}


def data_digest(data: Mapping[str, str], binary: Mapping[str, str] | None = None) -> str:
    """Return the sha256 hex of a ConfigMap's data. ``binary``: its binaryData, which nothing of ours has."""
    content = [sorted(data.items()), sorted((binary or {}).items())]
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def shown(data: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a version's content that is delivered; an empty playbook where there is none."""
    kept = {key: data[key] for key in names.SHOWN_KEYS if key in data}
    return {names.PROMPT_KEY: "", **kept}


def learning_run(owner: Owner, name: str, spec: RunSpec) -> Object:
    """Return a run made from ``learn.template``; it is deleted with its Playbook, its versions are not."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_KIND,
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": {
                names.LABEL_NAME: "combee",
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
                names.LABEL_PLAYBOOK: names.playbook_label(owner.name),
            },
            "ownerReferences": [playbook_reference(owner)],
        },
        "spec": spec.model_dump(mode="json", by_alias=True, exclude_unset=True),
    }


def playbook_reference(owner: Owner) -> Object:
    """Return the Playbook as the controller of what it makes."""
    return owner_reference(owner) | {"kind": names.PLAYBOOK_KIND}
