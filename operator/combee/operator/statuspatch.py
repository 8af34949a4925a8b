"""A new status as one merge patch over the one that is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from combee.clients.kubernetes.kube import Object


def status_patch(raw: Object, new: Mapping[str, Any]) -> Object | None:
    """The patch that makes ``new`` the status of ``raw``; None when it is that already. It carries the
    resourceVersion: it succeeds what was read, or fails with 409. Empty texts are left out."""
    old: dict[str, Any] = raw.get("status") or {}
    wanted = {name: value for name, value in new.items() if value != ""}
    if wanted == old:
        return None
    gone = {field: None for field in old if field not in wanted}
    replaced = {name: _over(old.get(name), value) for name, value in wanted.items()}
    return {
        "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
        "status": {**gone, **replaced},
    }


def _over(old: Any, new: Any) -> Any:
    """``new`` as a merge patch over ``old``: what is not in it any more is removed."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {
        **{key: None for key in old if key not in new},
        **{k: _over(old.get(k), v) for k, v in new.items()},
    }
