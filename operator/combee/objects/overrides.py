"""A template's allow-listed overrides, laid over a pod that is already right.

They are written into the pod field by field: what is not named here cannot come through.
"""

from __future__ import annotations

from collections.abc import Mapping

from combee.api.parts import PodTemplate
from combee.api.parts import Resources as Given
from combee.api.texts import in_thousandths
from combee.objects.allowed import check_template
from combee.objects.pods import plain
from combee.objects.types import Object, Resources


def pod_labels_and_annotations(ours: Mapping[str, str], template: PodTemplate | None, where: str) -> Object:
    """Return a pod's metadata: the template's, and over them ours.

    Raises ManifestError with the path of the field for what ``allowed`` does not know; ``where`` is
    the template's path.
    """
    if template is None:
        return {"labels": dict(ours)}
    check_template(template, where)
    made: Object = {"labels": {**template.metadata.labels, **ours}}
    if template.metadata.annotations:
        made["annotations"] = dict(template.metadata.annotations)
    return made


def user_env(template: PodTemplate | None) -> list[Object]:
    """Return the template's variables; ours come after them."""
    return [plain(v.name, v.value) for v in template.spec.env] if template is not None else []


def resources_of(template: PodTemplate | None, base: Resources, gpus: int = 0) -> Object:
    """Return requests and limits: what the template says of a resource replaces all that we say of it. Where
    it says no limit ours stays, as high as the request at least: a quota may want one of every container."""
    given = template.spec.resources if template is not None and template.spec.resources else Given()
    named = given.requests.keys() | given.limits.keys()
    ours = base.get("limits", {})
    raised = {
        name: max(ours[name], request, key=in_thousandths)
        for name, request in given.requests.items()
        if name in ours and name not in given.limits
    }
    made: Object = {}
    for part, amounts in (("requests", given.requests), ("limits", {**raised, **given.limits})):
        kept = {name: amount for name, amount in base.get(part, {}).items() if name not in named}
        if together := {**kept, **amounts}:
            made[part] = together
    if gpus:
        made.setdefault("limits", {})["nvidia.com/gpu"] = str(gpus)
    return made


def customised(pod: Object, template: PodTemplate | None, *, keep_account: bool = False) -> Object:
    """Return the pod with the template's placement. ``keep_account``: whether its own account stays."""
    if template is None:
        return pod
    wish = template.spec.dump()
    made = dict(pod)
    for field in ("nodeSelector", "topologySpreadConstraints"):
        if wish[field]:
            made[field] = wish[field]
    # What the template says of a taint replaces what we say of it.
    named = {toleration.get("key") for toleration in wish["tolerations"]}
    ours = [toleration for toleration in made["tolerations"] if toleration["key"] not in named]
    made["tolerations"] = [*wish["tolerations"], *ours]
    for field in ("affinity", "priorityClassName", "runtimeClassName", "schedulerName"):
        if field in wish:
            made[field] = wish[field]
    if "serviceAccountName" in wish and not keep_account:
        made["serviceAccountName"] = wish["serviceAccountName"]
    if wish["imagePullSecrets"]:
        known = made.get("imagePullSecrets", [])
        made["imagePullSecrets"] = [*known, *(s for s in wish["imagePullSecrets"] if s not in known)]
    return made
