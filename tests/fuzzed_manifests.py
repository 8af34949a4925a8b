"""Manifests that are nearly good: made from the schemas, and by mutation of good and bad ones."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import admission_cases
from combee.api.load import KINDS
from combee.generate.crd import KINDS as DEFINED
from combee.generate.crd import definition

EXAMPLES = Path(__file__).parents[1] / "examples"
TEXTS = ("", " ", "a", "A-b", "x" * 300, "\u202e", "\x00", "a\nb", "s3://b/k", "file:///x", "::", "${x}",
         "1Gi", "-1", "null", "0x10", "1e999", "{{", "0 3 * * 1", "99 99 99 99 99", "2026-02-30T99:00:00Z",
         "http://[::1", "https://u:p@h/", "..", "combee.dev/x", "kubernetes.io/x", "LD_PRELOAD", "é" * 90,
         "(a+)+$")  # fmt: skip
NUMBERS = (0, -1, 1, 2**31, 2**63, 10**400, -(10**30), 0.5, 1e308, -0.0, 1e-320, math.inf, math.nan)
JUNK: tuple[Any, ...] = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"": ""},
    {"a": {"b": [1]}},
    *TEXTS,
    *NUMBERS,
)


def junk(r: random.Random) -> Any:
    return copy.deepcopy(r.choice(JUNK))


@cache
def schema(kind: str) -> dict[str, Any]:
    (made,) = [definition(one) for one in DEFINED if one.name == kind]
    whole = dict(made["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    return {"type": "object", "properties": {"spec": whole["properties"]["spec"]}}


@cache
def examples() -> list[dict[str, Any]]:
    parts = [one for path in sorted(EXAMPLES.glob("*.yaml")) for one in yaml.safe_load_all(path.read_text())]
    return [one for one in parts if isinstance(one, dict) and one.get("kind") in KINDS]


@cache
def bases() -> list[dict[str, Any]]:
    return [*admission_cases.good(), *(case.manifest for case in admission_cases.bad()), *examples()]


def made_of(node: dict[str, Any], r: random.Random, depth: int = 0) -> Any:
    """A value that a schema takes, or nearly."""
    if r.random() < 0.02 or depth > 12:
        return junk(r)
    if "enum" in node:
        return r.choice(node["enum"])
    match node.get("type"):
        case "object" if "properties" in node:
            needed = node.get("required", ())
            share = r.choice((0.05, 0.3))
            chosen = [name for name in node["properties"] if name in needed or r.random() < share]
            return {name: made_of(node["properties"][name], r, depth + 1) for name in chosen}
        case "object":
            return {r.choice(TEXTS): junk(r) for _ in range(r.randrange(3))}
        case "array":
            return [made_of(node["items"], r, depth + 1) for _ in range(r.choice((0, 1, 1, 2, 3)))]
        case "integer" | "number":
            low, high = node.get("minimum", 0), node.get("maximum", 1000)
            return r.choice((low, high, low - 1, high + 1, (low + high) // 2))
        case "boolean":
            return r.random() < 0.5
    return r.choice(("a", "main", "s3://b/k", "https://h/v1", r.choice(TEXTS)))


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*at, key)
        yield from places(one, (*at, key))


def node_at(kind: str, place: tuple[Any, ...]) -> dict[str, Any] | None:
    """The schema of a place, if there is one."""
    node: Any = schema(kind) if kind in KINDS else {}
    for key in place:
        inner = node.get("items") if isinstance(key, int) else node.get("properties", {}).get(key)
        node = inner or node.get("additionalProperties")
        if not isinstance(node, dict):
            return None
    return node


def mutated(manifest: Any, r: random.Random) -> Any:
    found = list(places(manifest))
    if not found:
        return junk(r)
    place = r.choice(found)
    at, key = manifest, place[-1]
    for part in place[:-1]:
        at = at[part]
    node = node_at(str(manifest.get("kind")) if isinstance(manifest, dict) else "", place)
    way = r.randrange(6)
    if way == 0:
        del at[key]
    elif way == 1:
        at[key] = junk(r)
    elif way == 2 and isinstance(at[key], dict):
        at[key][r.choice(list((node or {}).get("properties", TEXTS)))] = junk(r)
    elif way == 3 and isinstance(at, list):
        at.append(copy.deepcopy(at[key]))
    elif way == 4 and isinstance(at[key], str):
        cut = r.randrange(len(at[key]) + 1)
        at[key] = at[key][:cut] + r.choice(TEXTS) + at[key][cut:]
    elif node is not None:
        at[key] = made_of(node, r)
    else:
        at[key] = copy.deepcopy(r.choice(bases()))
    return manifest


def manifest_of(r: random.Random) -> Any:
    manifest: Any = copy.deepcopy(r.choice(bases()))
    if r.random() < 0.25 and manifest.get("kind") in KINDS:
        manifest["spec"] = made_of(schema(manifest["kind"])["properties"]["spec"], r)
    for _ in range(r.choice((0, 1, 1, 2, 3))):
        manifest = mutated(manifest, r)
    return manifest


def nearly_good(r: random.Random) -> Any:
    """One that is good but for a change or two, and often good."""
    manifest: Any = copy.deepcopy(r.choice([*admission_cases.good(), *examples()]))
    for _ in range(r.choice((0, 1, 1, 1, 2))):
        manifest = mutated(manifest, r)
    return manifest
