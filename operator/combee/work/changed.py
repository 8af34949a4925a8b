"""What a playbook changed: questions of gate that score higher with it than without it, and lower. Pure.

The page holds rows of data, so it stays in the run's folder of the store.
"""

from __future__ import annotations

from collections.abc import Sequence

from combee.records import Example, Trajectory
from combee.work.start import fenced

PAGE = "changed.md"
"""The page's name in the run's folder of the store."""
MOST = 3
"""Questions of each kind that are shown."""

_Pair = tuple[Example, Trajectory, Trajectory]


def page(examples: Sequence[Example], before: Sequence[Trajectory], after: Sequence[Trajectory]) -> str:
    """Return the page. ``before`` and ``after``: what was done on each example without the playbook and with
    it, in the order of ``examples``."""
    pairs = list(zip(examples, before, after, strict=True))
    higher = [pair for pair in pairs if pair[2].score > pair[1].score]
    lower = [pair for pair in pairs if pair[2].score < pair[1].score]
    counted = (
        f"Of {len(pairs)} questions of gate {len(higher)} score higher with the playbook than without it, "
        f"{len(lower)} lower. At most {MOST} of each are shown. Do not write rows or lessons after them: "
        "gate is what nothing was learned from."
    )
    parts = ["# What the playbook changed", counted]
    for title, changed in (("Higher", higher), ("Lower", lower)):
        parts += [f"## {title}"] if changed else []
        parts += [_shown(pair) for pair in changed[:MOST]]
    return "\n\n".join(parts) + "\n"


def _shown(pair: _Pair) -> str:
    example, before, after = pair
    texts = {"Question": before.input, "Target": example.target}
    for name, one in (("Without", before), ("With", after)):
        read = one.answer if not one.error else f"nothing ({one.error})"
        texts[f"{name} the playbook, score {one.score:.3f}"] = read
    body = "\n\n".join(f"{title}:\n\n{fenced(text)}" for title, text in texts.items())
    return f"### {example.id}\n\n{body}"
