"""What is left of a Playbook's spec that cannot be read: the pin, and where a version is delivered."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from combee.api.playbook import PlaybookSpec

_KEPT = (("version", "pinnedDigest"), ("delivery", "configMap"), ("delivery", "deletionPolicy"))


def salvaged(raw: Any) -> PlaybookSpec:
    """A spec with those of ``raw``'s fields that serving and delivery need and that can be read one by one.

    It has no canary, no thresholds and learns nothing: it is for ``About.unreadable`` alone.

    >>> raw = {"canary": {"mode": "Shadow"}, "delivery": {"configMap": {"name": "mounted"}}}
    >>> salvaged(raw).delivery.config_map.name
    'mounted'
    """
    readable: dict[str, dict[str, Any]] = {}
    for part, name in _KEPT:
        fields = raw.get(part) if isinstance(raw, dict) else None
        if not isinstance(fields, dict) or name not in fields:
            continue
        larger = {**readable, part: {**readable.get(part, {}), name: fields[name]}}
        try:
            PlaybookSpec.model_validate(larger)
        except ValidationError:
            continue
        readable = larger
    return PlaybookSpec.model_validate(readable)
