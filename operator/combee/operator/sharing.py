"""Engines that several runs use: a run that needs one now is an owner of its Deployment, and others are not.

Nothing else says who uses it. The cluster itself takes the references of deleted runs away, and deletes what
has no owner left, also while the operator is down; a run that leaves as the last one deletes it. Each write
holds only for the object as it was read, so that of two runs that come or go at once one looks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from combee import names
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError
from combee.objects.meta import owned, owner_reference
from combee.observe.runs import goes_with
from combee.records import Owner


class ChangedError(ClusterError):
    """An object is not as it was read, or an earlier one of its name is being deleted: try again soon."""

    code = "Changed"


@dataclass(frozen=True, slots=True)
class SharedEngine:
    """The Deployment and Service of one, as this run would make them. ``service``: for a Deployment's uid."""

    deployment: Object
    service: Callable[[str], Object]

    @property
    def name(self) -> str:
        """The name of both."""
        return str(self.deployment["metadata"]["name"])


async def join(
    kube: Kube, engine: SharedEngine, owner: Owner, weights_are_there: Callable[[], Awaitable[bool]]
) -> tuple[str, ...]:
    """Make the run an owner of the engine, which is made where there is none and the weights are there.
    Return the kinds of what was made.

    Raises ChangedError when it is to be tried again, ClusterError for an object of the name that is something
    else.
    """
    made = []
    deployment = await kube.get("Deployment", owner.namespace, engine.name)
    if deployment is None:
        if not await weights_are_there():
            return ()
        deployment = await kube.create(engine.deployment)
        made.append("Deployment")
    if deployment is None or "deletionTimestamp" in deployment["metadata"]:
        raise _changed("Deployment", engine.name)
    wanted = engine.deployment["metadata"]["labels"][names.LABEL_SHARED]
    if deployment["metadata"].get("labels", {}).get(names.LABEL_SHARED) != wanted:
        raise _another("Deployment", owner.namespace, engine.name)
    if not owned(deployment, owner):
        owners = [*_owners(deployment), owner_reference(owner, controller=False)]
        await _write(kube, deployment, owners)
    body = engine.service(deployment["metadata"]["uid"])
    if await kube.create(body) is not None:
        made.append("Service")
    elif not goes_with(service := await kube.get("Service", owner.namespace, engine.name), deployment):
        if service is None or _goes(service):
            raise _changed("Service", engine.name)
        raise _another("Service", owner.namespace, engine.name)
    return tuple(made)


async def leave(kube: Kube, name: str, owner: Owner) -> None:
    """Take the run off the owners of an engine, and delete the engine where no other is left. Raises
    ChangedError when it is to be tried again."""
    deployment = await kube.get("Deployment", owner.namespace, name)
    if deployment is None or not owned(deployment, owner):
        return
    meta = deployment["metadata"]
    others = [one for one in _owners(deployment) if one.get("uid") != owner.uid]
    if others:
        await _write(kube, deployment, others)
    elif not await kube.delete(
        "Deployment", owner.namespace, name, uid=meta["uid"], version=meta["resourceVersion"]
    ):
        raise _changed("Deployment", name)


async def _write(kube: Kube, deployment: Object, owners: list[Object]) -> None:
    meta = deployment["metadata"]
    patch = {"metadata": {"resourceVersion": meta["resourceVersion"], "ownerReferences": owners}}
    try:
        written = await kube.patch("Deployment", meta["namespace"], meta["name"], patch)
    except ClusterError as error:
        if error.status == 409:
            raise _changed("Deployment", meta["name"]) from None
        raise
    if written is None:
        raise _changed("Deployment", meta["name"])


def _owners(one: Object) -> list[Object]:
    return list(one["metadata"].get("ownerReferences", ()))


def _goes(service: Object) -> bool:
    """Return whether a Service will be gone in a moment: that of an earlier Deployment goes with it."""
    meta = service["metadata"]
    earlier = any(
        (one.get("kind"), one.get("name")) == ("Deployment", meta["name"]) for one in _owners(service)
    )
    return "deletionTimestamp" in meta or earlier


def _another(kind: str, namespace: str, name: str) -> ClusterError:
    return ClusterError(
        f"a {kind} of this name is there that is of no shared engine of this kind",
        where=f"{kind} {namespace}/{name}",
        fix="Delete or rename it",
        status=409,
    )


def _changed(kind: str, name: str) -> ChangedError:
    return ChangedError("another run came or left meanwhile", where=f"{kind} {name}", status=409)
