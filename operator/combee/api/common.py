"""What all resources share: the strict base model, scalar types, names, references, URIs.

Rules of every model here: unknown fields are refused, scalars are not converted (``"5"`` is not 5,
1 is not true; a whole number is a fine fraction), values are immutable, YAML's camelCase is the
only spelling read, and each field has a description, from which documentation and CRDs are made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Protocol, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    Strict,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

API_VERSION = "combee.dev/v1alpha1"
REMOTE_SCHEMES = ("s3", "gs", "az", "https")
"""schemes of data that a cluster may read."""
WRITABLE_SCHEMES = ("s3", "gs", "az")
"""schemes of stores that a cluster may write."""
LARGEST_INT = 2**53 - 1
"""largest whole number that JSON carries exactly everywhere."""

LABEL_KEY = r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
LABEL_VALUE = "([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?"
"""what Kubernetes takes as names, keys and quantities; the CRDs' rules are made of the same texts."""
OUR_PREFIX = "combee.dev/"
"""of labels and annotations that are the operator's to set."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)\Z", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x20\x7f\\]")


def refuse(what: str, fix: str) -> PydanticCustomError:
    """Return an error for a validator to raise: what is wrong with the value, and what would be right.

    Texts are passed as context because pydantic formats braces in templates.
    """
    return PydanticCustomError("rule", "{what}", {"what": what, "fix": fix})


def yaml_name(attribute: str) -> str:
    """Return an attribute as YAML spells it: ``leaf_size`` -> ``leafSize``."""
    return to_camel(attribute)


def one_line(text: str, max_bytes: int) -> str:
    """Return ``text`` on one line, without control characters, cut to ``max_bytes`` of UTF-8."""
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
        """Return plain JSON-ready data with YAML's names, defaults filled in, absent fields left out.

        ``model_validate`` reads it back: what is only documented so far may be a default.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule: where it stands, the expression that must be true, and what is said when it is not."""

    at: type[Model] | str
    """a model, or the name of a type of text."""
    cel: str
    message: str
    """what the person who applies reads."""
    mirrors: str
    field: str = ""
    """the field at fault, below ``at``."""


def _inner_path(value: str) -> str:
    parts = value.split("/")
    if "" in parts or ".." in parts or "\x00" in value:
        raise refuse(
            "not a path inside the volume", "Use a relative path without '..', such as formula/train.jsonl."
        )
    return value


def uri_scheme(uri: str) -> str:
    """Return the lower-case scheme of a data URI; ``""`` for a plain path.

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


_data_uri = partial(_check_uri, schemes=REMOTE_SCHEMES)
_store_uri = partial(_check_uri, schemes=WRITABLE_SCHEMES)


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
    if not re.search(r"\S", value, re.ASCII):
        raise refuse("empty", "Write a few words, or leave the field out.")
    return value


def _whole_as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def check_labels(value: dict[str, str]) -> dict[str, str]:
    """Return labels. Raises an error for a key or a value that Kubernetes would not take."""
    check_label_keys(value)
    for key, text in value.items():
        if not re.fullmatch(LABEL_VALUE, text):
            raise refuse(f"{key[:60]!r} has a value that labels cannot have", _LABEL_FIX)
    return value


def check_label_keys(value: dict[str, str]) -> dict[str, str]:
    """Do the same of keys alone."""
    for key in value:
        if len(key) > 317 or not re.fullmatch(LABEL_KEY, key):
            raise refuse(f"{key[:60]!r} is not a valid key", _LABEL_FIX)
    return value


@dataclass(frozen=True, slots=True)
class Scalar:
    """A mark that names a type of text in the JSON schema, where the CRDs' rules are found by that name."""

    name: str

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the type's schema with its name."""
        return {**handler(core), SCALAR_KEY: self.name}


@dataclass(frozen=True, slots=True)
class Form(Scalar):
    """A type of text whose values match a pattern, here and by a rule of the CRDs."""

    pattern: str
    what: str
    fix: str

    def check(self, value: str) -> str:
        """Return ``value``. Raises an error when it does not match."""
        if not re.fullmatch(self.pattern, value):
            raise refuse(self.what, self.fix)
        return value

    @property
    def message(self) -> str:
        """What is wrong and what to do, for the CRDs' rule."""
        return f"{self.what}: {self.fix[0].lower()}{self.fix[1:-1]}".replace('"', "")

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a text that is checked."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))


SCALAR_KEY = "x-combee-scalar"
NOT_FILLED_IN: dict[str, JsonValue] = {"x-combee-default": False}
"""for a field whose default the API server must not write into manifests."""
MAP_BY_NAME: dict[str, JsonValue] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
"""for a list whose items are told apart by name."""
MAP_BY_TYPE: dict[str, JsonValue] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
_LABEL_FIX = (
    "Use at most 63 of letters, digits, '-', '_' and '.', starting and ending with a letter or digit."
)

LABEL = Form(
    "Label",
    "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
    "not a valid name",
    "Use 1 to 63 of a-z, 0-9 and '-', starting and ending with a letter or digit.",
)
OBJECT_NAME = Form(
    "ObjectName",
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    "not a valid object name",
    "Use 1 to 253 of a-z, 0-9, '-' and '.', starting and ending with a letter or digit.",
)
KEY = Form(
    "Key",
    r"([-_a-zA-Z0-9]|\.[-_a-zA-Z0-9])[-._a-zA-Z0-9]*",
    "not a valid key",
    "Use 1 to 253 of letters, digits, '-', '_' and '.', not starting with '..'.",
)
QUANTITY = Form(
    "Quantity",
    r"([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|[kMGTPE]|[KMGTPE]i|[eE][0-9]{1,2})?",
    "not a quantity",
    "Write one as Kubernetes has them, such as 500m, 2 or 4Gi.",
)

Int = Annotated[int, Strict()]
Float = Annotated[float, Strict()]
Bool = Annotated[bool, Strict()]
Str = Annotated[str, Strict()]
Line = Annotated[str, Strict(), Field(max_length=2000)]
"""an argument, or another text that is passed on."""
Label = Annotated[str, Strict(), Field(max_length=63), LABEL]
"""a DNS label: runs, engines, Playbooks."""
ObjectName = Annotated[str, Strict(), Field(max_length=253), OBJECT_NAME]
"""the name of a ConfigMap, Secret, claim or queue."""
Key = Annotated[str, Strict(), Field(max_length=253), KEY]
"""a key inside a ConfigMap or Secret."""
InnerPath = Annotated[str, Strict(), Field(max_length=1000), AfterValidator(_inner_path), Scalar("InnerPath")]
DataUri = Annotated[str, Strict(), Field(max_length=2000), AfterValidator(_data_uri), Scalar("DataUri")]
StoreUri = Annotated[str, Strict(), Field(max_length=2000), AfterValidator(_store_uri), Scalar("StoreUri")]
EndpointUrl = Annotated[
    str, Strict(), Field(max_length=2000), AfterValidator(_endpoint_url), Scalar("EndpointUrl")
]
Words = Annotated[str, Strict(), AfterValidator(_words), Scalar("Words")]
"""text for people, not blank."""
Quantity = Annotated[
    str,
    Strict(),
    Field(max_length=32),
    BeforeValidator(_whole_as_text),
    QUANTITY,
]
"""an amount of a resource; a whole number is fine."""
Labels = Annotated[
    dict[Str, Annotated[str, Strict(), Field(max_length=63)]],
    Field(max_length=64),
    AfterValidator(check_labels),
    Scalar("Labels"),
]
"""labels of pods or nodes."""
Annotations = Annotated[
    dict[Str, Annotated[str, Strict(), Field(max_length=4096)]],
    Field(max_length=64),
    AfterValidator(check_label_keys),
    Scalar("Annotations"),
]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


NamedT = TypeVar("NamedT", bound=_Named)


def distinct(items: tuple[NamedT, ...], what: str) -> tuple[NamedT, ...]:
    """Return ``items``. Refuses two of one name; ``what`` is what they are called, in the plural."""
    names = [item.name for item in items]
    for name in names:
        if names.count(name) > 1:
            raise refuse(f"two {what} are named {name}", f"Give each of the {what} a name of its own.")
    return items


DIGEST = Form(
    "Digest",
    "[0-9a-f]{64}",
    "not a digest",
    "Write its 64 digits, as kubectl get pbv -o wide shows them.",
)
Digest = Annotated[str, Strict(), Field(max_length=64), DIGEST]
"""SHA-256 of an artifact or a text, in hexadecimal."""


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
