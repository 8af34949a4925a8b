"""Whether the data of ``spec.learn.template`` changed, and when to look at them again. Pure.

A place is one split's source; its key changes with the source, so that another address is no changed content.
A mark says what a place holds. The first mark of a place is only remembered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from combee.api.digests import canonical_source
from combee.api.parts import DataSource
from combee.api.playbook import Learn
from combee.plan.playbook.memory import PlaybookMemory


def places(learn: Learn) -> dict[str, DataSource]:
    """Return key -> source of each split whose changes make a run; none unless the trigger is OnChange.

    A key is the split's name and eight digits of its source: ``train-1b2c3d4e``.
    """
    data = learn.template.task.data
    splits = {"train": data.train, "heldOut": data.held_out, "test": data.test}
    if learn.trigger != "OnChange":
        return {}
    given = {name: source for name, source in splits.items() if source}
    return {f"{name}-{_digest(canonical_source(one))[:8]}": one for name, one in given.items()}


def remembered(memory: PlaybookMemory, learn: Learn, marks: Mapping[str, str]) -> PlaybookMemory:
    """Return the memory with the marks that were seen; ``change`` is new when a known place holds something
    else. What was not seen this time stays as it was."""
    keys = places(learn)
    if not keys:
        return memory
    known = {key: mark for key, mark in memory.marks.items() if key in keys}
    seen = {key: mark for key, mark in marks.items() if key in keys}
    moved = any(known.get(key, mark) != mark for key, mark in seen.items())
    after = dict(sorted({**known, **seen}.items()))
    return replace(memory, marks=after, change=_digest(after)[:16] if moved else memory.change)


def wait_seconds(last: float | None, poll_seconds: int, now: float) -> float:
    """Return the seconds until the next look. ``last``: when the last one began; None without any."""
    return 0.0 if last is None else max(0.0, last + poll_seconds - now)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
