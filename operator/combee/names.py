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

STEP_KINDS = ("profile", "map", "reduce", "finish", "evaluate", "publish")

MANAGED_BY = "combee-operator"
LABEL_NAME = "app.kubernetes.io/name"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_RUN = f"{API_GROUP}/run"
LABEL_RUN_UID = f"{API_GROUP}/run-uid"
LABEL_STEP = f"{API_GROUP}/step"
LABEL_ITERATION = f"{API_GROUP}/iteration"
LABEL_ATTEMPT = f"{API_GROUP}/attempt"
LABEL_ENGINE = f"{API_GROUP}/engine"
LABEL_PLAYBOOK = f"{API_GROUP}/playbook"


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


def attempt_name(step: str, attempt: int) -> str:
    """The Job of a step's attempt: ``formula-3fa9c1d2-i003-map-a0`` at attempt 2 is ``...-map-a2``."""
    head, found, tail = step.rpartition("-a")
    if not found or not tail.isdigit():
        raise BugError(f"{step!r} is not the name of a step")
    return f"{head}-a{attempt}"


def run_config_name(run: str, uid: str) -> str:
    """The ConfigMap that shows a run's pods what the run is: ``formula-3fa9c1d2-run``."""
    return f"{_short(run)}-{uid[:8]}-run"


def engine_name(run: str, uid: str, index: int, engine: str) -> str:
    """An engine's Deployment and Service: ``formula-3fa9c1d2-e0-main``; the index keeps cut names apart.

    A Service's name begins with a letter, which a run's need not: ``7b`` -> ``r7b-3fa9c1d2-e0-main``.
    """
    return f"{_lettered(run)}-{uid[:8]}-e{index}-{engine[:16]}".rstrip("-.")


def prefetch_name(run: str, uid: str, index: int) -> str:
    """The Job that loads an engine's weights into its cache: ``formula-3fa9c1d2-e0-fetch``."""
    return f"{_lettered(run)}-{uid[:8]}-e{index}-fetch"


def published_name(playbook: str, digest: str) -> str:
    """The immutable ConfigMap of one version of a Playbook: ``formula-1b2c3d4e5f60``."""
    return f"{playbook[:50].rstrip('-.')}-{digest[:12]}"


def run_labels(run: str, uid: str, component: str) -> dict[str, str]:
    """The labels that every object made for a run carries."""
    return {
        LABEL_NAME: "combee",
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_COMPONENT: component,
        LABEL_RUN: run,
        LABEL_RUN_UID: uid,
    }


def _short(run: str) -> str:
    return run[:30].rstrip("-.")


def _lettered(run: str) -> str:
    return _short(run) if run[0].isalpha() else _short(f"r{run}")


def plan_name(run: str, uid: str, iteration: int) -> str:
    """The name of an iteration's frozen plan: ``formula-3fa9c1d2-i003-plan``."""
    return f"{_short(run)}-{uid[:8]}-i{iteration:03d}-plan"
