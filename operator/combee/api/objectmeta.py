"""Kubernetes' metadata of the custom resources."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, Strict

from combee.api.common import OBJECT_NAME, Form, Label, Model, Str, check_label_keys, check_labels

NamePrefix = Annotated[
    str,
    Strict(),
    Field(max_length=253),
    Form("NamePrefix", f"{OBJECT_NAME.pattern}-*(.-)?", "not the beginning of a name", OBJECT_NAME.fix),
]
"""The API server does not look at what stands before a last dash."""


def _annotations(value: dict[str, str]) -> dict[str, str]:
    """Kubernetes looks at the keys of annotations in small letters."""
    check_label_keys({key.lower(): "" for key in value})
    return value


class ObjectMeta(Model):
    """Kubernetes' metadata. What the API server sets is accepted and not read."""

    name: Label = Field(description="Name of the run; part of the name of everything it makes.")
    namespace: Label | None = Field(default=None, description="Namespace; on a laptop without meaning.")
    labels: Annotated[dict[Str, Str], AfterValidator(check_labels)] = Field(
        default_factory=dict, description="Labels."
    )
    annotations: Annotated[dict[Str, Str], AfterValidator(_annotations)] = Field(
        default_factory=dict, description="Annotations."
    )
    generate_name: NamePrefix | None = Field(default=None, description="Not used: the name is given.")
    uid: Any = Field(default=None, description="Set by the API server; not read.")
    resource_version: Any = Field(default=None, description="Set by the API server; not read.")
    generation: Any = Field(default=None, description="Set by the API server; not read.")
    creation_timestamp: Any = Field(default=None, description="Set by the API server; not read.")
    deletion_timestamp: Any = Field(default=None, description="Set by the API server; not read.")
    deletion_grace_period_seconds: Any = Field(default=None, description="Set by the API server; not read.")
    finalizers: Any = Field(default=None, description="Set by the API server; not read.")
    owner_references: Any = Field(default=None, description="Set by the API server; not read.")
    managed_fields: Any = Field(default=None, description="Set by the API server; not read.")
    self_link: Any = Field(default=None, description="Set by the API server; not read.")
