"""A new status as one merge patch over the current one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from combee.clients.kubernetes.kube import Object


def status_patch(raw: Object, new: Mapping[str, Any]) -> Object | None:
    """Return the patch that makes ``new`` the status of ``raw``; None when it is that already.

    The patch carries the resourceVersion, so it fails with 409 when the object was written since it was
    read. Empty texts are left out.
    """
    old: dict[str, Any] = raw.get("status") or {}
    fields = {name: value for name, value in new.items() if value != ""}
    if fields == old:
        return None
    removed = {field: None for field in old if field not in fields}
    replaced = {name: _over(old.get(name), value) for name, value in fields.items()}
    return {
        "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
        "status": {**removed, **replaced},
    }


def _over(old: Any, new: Any) -> Any:
    """Return ``new`` as a merge patch over ``old``, which removes the keys that ``new`` lacks."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {
        **{key: None for key in old if key not in new},
        **{k: _over(old.get(k), v) for k, v in new.items()},
    }
