"""What is left of a Playbook's spec that cannot be read: where its active version is delivered, and the
pin."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from combee.api.playbook import PlaybookSpec

_KEPT = (("version", "pinnedDigest"), ("delivery", "configMap"), ("delivery", "deletionPolicy"))


def salvaged(raw: Any) -> PlaybookSpec:
    """A spec with those of ``raw``'s fields that serving and delivery need and that can be read one by one.

    It has no canary, no thresholds and learns nothing: it is for ``About.unreadable`` alone.

    >>> salvaged({"canary": {"mode": "Shadow"}, "delivery": {"configMap": {"name": "mounted"}}}).delivery.config_map.name
    'mounted'
    """
    made: dict[str, dict[str, Any]] = {}
    for part, name in _KEPT:
        told = raw.get(part) if isinstance(raw, dict) else None
        if not isinstance(told, dict) or name not in told:
            continue
        more = {**made, part: {**made.get(part, {}), name: told[name]}}
        try:
            PlaybookSpec.model_validate(more)
        except ValidationError:
            continue
        made = more
    return PlaybookSpec.model_validate(made)
