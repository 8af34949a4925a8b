"""What all resources share: the strict base model, scalar types, names, references, URIs.

Rules of every model here: unknown fields are refused, scalars are not converted (``"5"`` is not 5,
1 is not true; a whole number is a fine fraction), values are immutable, YAML's camelCase is the
only spelling read, and each field has a description, from which documentation and CRDs are made.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

API_VERSION = "combee.dev/v1alpha1"
REMOTE_SCHEMES = ("s3", "gs", "az", "https")
"""schemes of data that a cluster may read."""
WRITABLE_SCHEMES = ("s3", "gs", "az")
"""schemes of stores that a cluster may write."""
LARGEST_INT = 2**53 - 1
"""largest whole number that JSON carries exactly everywhere."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}\Z")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)\Z", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x20\x7f\\]")


def refuse(what: str, fix: str) -> PydanticCustomError:
    """An error for a validator to raise: what is wrong with the value, and what would be right.

    Texts are passed as context because pydantic formats braces in templates.
    """
    return PydanticCustomError("rule", "{what}", {"what": what, "fix": fix})


def yaml_name(attribute: str) -> str:
    """An attribute as YAML spells it: ``leaf_size`` -> ``leafSize``."""
    return to_camel(attribute)


def one_line(text: str, max_bytes: int) -> str:
    """``text`` on one line, without control characters, cut to ``max_bytes`` of UTF-8."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    data = flat.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data.decode("utf-8")
    return data[: max_bytes - 4].decode("utf-8", "ignore") + " ..."


class Model(BaseModel):
    """Base of every resource part. ``exactly_one`` names fields of which one must be given.

    Frozen. Read with ``model_validate`` (camelCase keys), written with ``dump``.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        allow_inf_nan=False,
        validate_default=False,
        defer_build=True,
    )
    exactly_one: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if not self.exactly_one:
            return self
        given = [yaml_name(name) for name in self.exactly_one if getattr(self, name) is not None]
        if len(given) == 1:
            return self
        names = ", ".join(yaml_name(name) for name in self.exactly_one)
        what = f"{' and '.join(given)} are given together" if given else f"none of {names} is given"
        raise refuse(what, f"Give exactly one of {names}.")

    def dump(self) -> dict[str, Any]:
        """Plain JSON-ready data with YAML's names, defaults filled in, absent fields left out.

        Read back with ``model_validate``: what is only documented so far may be a default.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _label(value: str) -> str:
    if not _LABEL.match(value):
        raise refuse(
            "not a valid name",
            "Use 1 to 63 of a-z, 0-9 and '-', starting and ending with a letter or digit.",
        )
    return value


def _subdomain(value: str) -> str:
    if len(value) > 253 or not _SUBDOMAIN.match(value):
        raise refuse(
            "not a valid object name",
            "Use 1 to 253 of a-z, 0-9, '-' and '.', starting and ending with a letter or digit.",
        )
    return value


def _key(value: str) -> str:
    if not _KEY.match(value) or value in {".", ".."}:
        raise refuse("not a valid key", "Use 1 to 253 of letters, digits, '-', '_' and '.'.")
    return value


def _inner_path(value: str) -> str:
    parts = value.split("/")
    if value.startswith("/") or "" in parts or ".." in parts or "\x00" in value:
        raise refuse(
            "not a path inside the volume", "Use a relative path without '..', such as formula/train.jsonl."
        )
    return value


def uri_scheme(uri: str) -> str:
    """The lower-case scheme of a data URI; ``""`` for a plain path.

    >>> uri_scheme("s3://bucket/key"), uri_scheme("data/train.jsonl")
    ('s3', '')
    """
    match = _SCHEME.match(uri)
    return match.group(1).lower() if match else ""


def _check_uri(value: str, schemes: tuple[str, ...]) -> str:
    allowed = ", ".join(f"{s}://" for s in schemes)
    right = f"Use {allowed}, or on a laptop file: or a path relative to the manifest."
    if "::" in value:
        raise refuse("'::' chains filesystems, which is not allowed", right)
    if not value or _CONTROL.search(value):
        raise refuse("empty, or holds blanks, backslashes or control characters", right)
    scheme = uri_scheme(value)
    if scheme not in (*schemes, "file", ""):
        raise refuse(f"scheme {scheme}: is not allowed", right)
    rest = value[len(scheme) + 1 :] if scheme else value
    authority = rest[2:].split("/", 1)[0] if rest.startswith("//") else ""
    if "@" in authority:
        raise refuse("credentials inside a URI", "Put them in a Secret and name it with secretRef.")
    if scheme in schemes and not authority:
        raise refuse(f"no bucket or host after {scheme}:", f"Write {scheme}://bucket/key.")
    if scheme == "file" and rest.startswith("//") and authority not in ("", "localhost"):
        raise refuse("a file: URI with a host", "Write file:///absolute/path, with three slashes.")
    if not rest.strip("/"):
        raise refuse("no path", right)
    return value


def _data_uri(value: str) -> str:
    return _check_uri(value, REMOTE_SCHEMES)


def _store_uri(value: str) -> str:
    return _check_uri(value, WRITABLE_SCHEMES)


def _endpoint_url(value: str) -> str:
    right = "Write the API's base address, such as https://llm.example.com/v1."
    match = re.match(r"https?://([^/?#]+)(/[^?#]*)?\Z", value)
    if _CONTROL.search(value) or match is None:
        raise refuse("not an http or https address without query or fragment", right)
    host = match.group(1)
    if "@" in host:
        raise refuse(
            "credentials inside an address", "Put the key in a Secret and name it with apiKeySecretRef."
        )
    if not re.match(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?\Z", host):
        raise refuse("not a valid host", right)
    return value


def _words(value: str) -> str:
    if not value.strip():
        raise refuse("empty", "Write a few words, or leave the field out.")
    return value


Int = Annotated[int, Strict()]
Float = Annotated[float, Strict()]
Bool = Annotated[bool, Strict()]
Str = Annotated[str, Strict()]
Label = Annotated[str, Strict(), AfterValidator(_label)]
"""a DNS label: runs, engines, Playbooks."""
ObjectName = Annotated[str, Strict(), AfterValidator(_subdomain)]
"""the name of a ConfigMap, Secret, claim or queue."""
Key = Annotated[str, Strict(), AfterValidator(_key)]
"""a key inside a ConfigMap or Secret."""
InnerPath = Annotated[str, Strict(), AfterValidator(_inner_path)]
DataUri = Annotated[str, Strict(), AfterValidator(_data_uri)]
StoreUri = Annotated[str, Strict(), AfterValidator(_store_uri)]
EndpointUrl = Annotated[str, Strict(), AfterValidator(_endpoint_url)]
Words = Annotated[str, Strict(), AfterValidator(_words)]
"""text for people, not blank."""


class NameRef(Model):
    """A reference to an object of the same namespace."""

    name: ObjectName = Field(description="Name of the object, in the run's namespace.")


class SecretKeyRef(Model):
    """One value of a Secret."""

    name: ObjectName = Field(description="Name of the Secret.")
    key: Key = Field(description="Key inside the Secret.")


class ConfigMapKeyRef(Model):
    """One value of a ConfigMap."""

    name: ObjectName = Field(description="Name of the ConfigMap.")
    key: Key = Field(description="Key inside the ConfigMap.")


class ClaimPath(Model):
    """A file on a PersistentVolumeClaim."""

    claim_name: ObjectName = Field(description="Name of the PersistentVolumeClaim.")
    path: InnerPath = Field(description="Path of the file inside the volume.")


class ClaimRef(Model):
    """A whole PersistentVolumeClaim."""

    claim_name: ObjectName = Field(description="Name of the PersistentVolumeClaim.")


class ObjectMeta(Model):
    """Kubernetes' metadata. What the API server sets is accepted and not read."""

    name: Label = Field(description="Name of the run; part of the name of everything it makes.")
    namespace: Label | None = Field(default=None, description="Namespace; on a laptop without meaning.")
    labels: dict[Str, Str] = Field(default_factory=dict, description="Labels.")
    annotations: dict[Str, Str] = Field(default_factory=dict, description="Annotations.")
    generate_name: Any = Field(default=None, description="Set by the API server; not read.")
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
