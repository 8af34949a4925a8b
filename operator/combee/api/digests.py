"""What says that two manifests are the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from combee.api.parts import DataSource, HeldOutSource
from combee.api.run import PromptLearningRun, RunSpec


def canonical(spec: RunSpec) -> dict[str, Any]:
    """Return a spec as digests have it. What nobody said stands as what earlier releases took for it, so that
    an upgrade makes no other run of it."""
    plain = spec.dump()
    plain["budget"].setdefault("primary", "rollouts")
    if (held_out := spec.task.data.held_out) is not None:
        plain["task"]["data"]["heldOut"] = canonical_source(held_out)
    return plain


def canonical_source(source: DataSource) -> dict[str, Any]:
    """Return a split as digests have it, likewise."""
    plain = source.dump()
    if isinstance(source, HeldOutSource):
        plain.setdefault("usedForTuning", False)
    return plain


def manifest_digest(run: PromptLearningRun) -> str:
    """Return the sha256 hex of the run's name and spec in canonical JSON, defaults filled in.

    Comments, key order and spelling a default out do not change it; any other field does, except
    ``suspend``, which says when a run works and not what it is.
    """
    spec = canonical(run.spec)
    spec.pop("suspend")
    whole = {"apiVersion": run.api_version, "kind": run.kind, "name": run.name, "spec": spec}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
