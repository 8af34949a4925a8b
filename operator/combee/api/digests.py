"""What says that two manifests are the same."""

from __future__ import annotations

import hashlib
import json

from combee.api.run import PromptLearningRun


def manifest_digest(run: PromptLearningRun) -> str:
    """Return the sha256 hex of the run's name and spec in canonical JSON, defaults filled in.

    Comments, key order and spelling a default out do not change it; any other field does, except
    ``suspend``, which says when a run works and not what it is.
    """
    spec = run.spec.dump()
    spec.pop("suspend")
    canonical = {"apiVersion": run.api_version, "kind": run.kind, "name": run.name, "spec": spec}
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
