"""Every name and label the project gives out. Names are pure functions of what they name."""

from __future__ import annotations

from combee.errors import BugError

API_GROUP = "combee.dev"
API_VERSION = "combee.dev/v1alpha1"
RUN_KIND = "PromptLearningRun"
PLAYBOOK_KIND = "Playbook"
PLAYBOOK_VERSION_KIND = "PlaybookVersion"

MAX_NAME = 63
"""A Kubernetes label value, and so a pod's name, has at most this many characters."""

STEP_KINDS = ("profile", "map", "reduce", "finish", "evaluate")


def step_name(
    run: str, uid: str, iteration: int, kind: str, attempt: int = 0, *, max_index: int = 99999
) -> str:
    """``("formula", "3fa9c1d2e", 3, "map")`` -> ``formula-3fa9c1d2-i003-map-a0``.

    At most 63 characters together with the index ``-<max_index>`` that an Indexed Job appends: the
    run's name is cut (to 30 characters at most) and the rest never is.
    """
    if kind not in STEP_KINDS:
        raise BugError(f"unknown step kind {kind!r}", fix=f"one of {', '.join(STEP_KINDS)}")
    tail = f"-{uid[:8]}-i{iteration:03d}-{kind}-a{attempt}"
    room = MAX_NAME - len(tail) - len(f"-{max_index}")
    return run[: min(30, room)].rstrip("-.") + tail


def plan_name(run: str, uid: str, iteration: int) -> str:
    """The name of an iteration's frozen plan: ``formula-3fa9c1d2-i003-plan``."""
    return f"{run[:30].rstrip('-.')}-{uid[:8]}-i{iteration:03d}-plan"
