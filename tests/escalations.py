"""What the strategist's brief has refused, asked of the quickstart, and the message that each gets."""

from __future__ import annotations

import copy
from typing import Any

_OR = ", or set spec.discipline: Advisory to be warned instead"
_CURVE = {
    "method": "ACE",
    "curve": [{"examples": 1, "seconds": 1, "score": 0.5}],
    "source": "the paper",
    "hardware": "8x H200",
}
_ELSEWHERE = {"url": "https://models.example.com/v1", "model": "m"}
_SKIPPED = (
    "discipline Strict: not stated: spec.serialBaseline (what does learning one example at a time reach? "
    f"measure: true, a curve, or waived: why not). Say it there{_OR}"
)
_PAPER = (
    "discipline Strict: not sound: spec.serialBaseline.hardware (8x H200, and this run is on 1 x CPU: "
    f"nothing is compared across hardware; measure the baseline here). Change it{_OR}"
)
_TRAIN = (
    "discipline Strict: not sound: spec.task.data.heldOut (the rows of train: a gain on rows that were "
    f"learned from does not last; give others). Change it{_OR}"
)
_TWO_WORDS = (
    "discipline Strict: not sound: spec.models.proposer.endpoint.hardware (8x H200, and "
    "models.task.endpoint.hardware says 8x H100 of the same address: one of them is wrong). "
    f"Change it{_OR}"
)
ESCALATIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "skip the diagnosis": ({"serialBaseline": None}, "MissingInput", _SKIPPED),
    "the paper's numbers": ({"serialBaseline": _CURVE}, "Unsound", _PAPER),
    "promote on train": (
        {"task.data.train": {"configMap": {"name": "quickstart-rows", "key": "heldout.jsonl"}}},
        "Unsound",
        _TRAIN,
    ),
    "two words for one address": (
        {
            "models.task": {"endpoint": {**_ELSEWHERE, "hardware": "8x H100"}},
            "models.proposer": {"endpoint": {**_ELSEWHERE, "hardware": "8x H200"}},
        },
        "Unsound",
        _TWO_WORDS,
    ),
}
"""what somebody asks for -> the changed fields (None: left out), and PlanAccepted's reason and message."""


def escalated(objects: list[dict[str, Any]], name: str, values: dict[str, Any]) -> dict[str, Any]:
    """The quickstart's run under another name, with what somebody asks for."""
    run = copy.deepcopy(next(one for one in objects if one["kind"] == "PromptLearningRun"))
    run["metadata"]["name"] = name
    for path, value in values.items():
        *above, field = path.split(".")
        place = run["spec"]
        for part in above:
            place = place[part]
        if value is None:
            del place[field]
        else:
            place[field] = value
    return run
