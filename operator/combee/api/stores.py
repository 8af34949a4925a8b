"""Where a run keeps its results, and the queue that it waits in."""

from __future__ import annotations

from pydantic import Field, model_validator

from combee.api.common import ClaimRef, Model, NameRef, ObjectName, StoreUri
from combee.api.parts import secret_goes_with_uri


class Store(Model):
    """Where results are kept."""

    exactly_one = ("uri", "pvc")
    uri: StoreUri | None = Field(default=None, description="s3://, gs:// or az:// prefix.")
    pvc: ClaimRef | None = Field(default=None, description="A PersistentVolumeClaim.")
    secret_ref: NameRef | None = Field(default=None, description="Secret with the credentials for uri.")

    _secret_goes_with_uri = model_validator(mode="after")(secret_goes_with_uri)


class Queue(NameRef):
    """A LocalQueue of Kueue in the run's namespace, and the run's place in it."""

    priority_class: ObjectName | None = Field(
        default=None,
        description="WorkloadPriorityClass: who goes first, and who gives way where the queue lets runs be "
        "preempted. Absent: priority 0.",
    )


def default_store() -> Store:
    """Return the claim that the chart makes."""
    return Store(pvc=ClaimRef(claimName="combee-store"))
