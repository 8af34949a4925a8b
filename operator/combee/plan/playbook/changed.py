"""Whether heldOut was changed after a result that nobody liked, and nobody says why. Pure.

Rows that are exchanged or added after such a result are chosen by it. A Playbook asks its candidates when
they come to their gate, and a run asks its Playbook before it learns, so that no budget is spent for a
candidate that would wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from combee.api.playbook_status import Look, VersionStatus
from combee.plan.playbook.heldout import SHORT
from combee.plan.playbook.memory import PlaybookMemory, VersionMemory


@dataclass(frozen=True, slots=True)
class VersionLook:
    """A version's look at a heldOut, and whether it passed or was made active by somebody."""

    look: Look
    passed: bool


@dataclass(frozen=True, slots=True)
class Looks:
    """What a Playbook knows of the heldOuts that were looked at for it."""

    playbook: str
    counts: tuple[tuple[str, int], ...] = ()
    """digest of a heldOut -> the number of looks at it, the one looked at last at the end."""
    of_versions: tuple[VersionLook, ...] = ()
    digest: str = ""
    """``spec.heldOut.digest``."""
    reason: str | None = None
    """``spec.heldOut.reason``."""


def looks_of(playbook: Mapping[str, Any], versions: Iterable[Mapping[str, Any]]) -> Looks:
    """Read a Playbook and its versions as the API server has them. Raises BugError for a state of a later
    release."""
    wanted = (playbook.get("spec") or {}).get("heldOut") or {}
    status = playbook.get("status") or {}
    seen = (VersionStatus.model_validate(one.get("status") or {}) for one in versions)
    return Looks(
        playbook["metadata"]["name"],
        PlaybookMemory.from_json(status.get("state") or {}).looks,
        tuple(
            VersionLook(one.look, is_passed(one, VersionMemory.from_json(one.state)))
            for one in seen
            if one.look is not None
        ),
        str(wanted.get("digest") or ""),
        wanted.get("reason"),
    )


def is_passed(status: VersionStatus, memory: VersionMemory) -> bool:
    """Return whether a version passed heldOut, or was made active without."""
    held_out = status.held_out
    return bool(memory.promoted) or (held_out is not None and held_out.outcome == "Passed")


def lost_before(looks: Looks, held_out: str) -> str:
    """Return the digest of the heldOut looked at last, where nothing passed that look and no version was
    compared on ``held_out`` yet; else an empty text."""
    others = [one for one in looks.counts if one[0] != held_out]
    if not others or held_out in {one.look.held_out_digest for one in looks.of_versions}:
        return ""
    digest, number = others[-1]
    last = Look(held_out_digest=digest, number=number)
    return "" if any(one.look == last and one.passed for one in looks.of_versions) else digest


def unexplained(looks: Looks, held_out: str) -> str:
    """Return why a run on ``held_out`` has to wait, and what to write; empty where it need not. ``held_out``:
    empty while the run's rows were not read: then those that the Playbook names."""
    held_out = held_out or looks.digest
    lost = lost_before(looks, held_out) if held_out and looks.reason is None else ""
    if not lost:
        return ""
    return (
        f"the last look at heldOut {lost[:SHORT]} passed nothing, and this run's is {held_out[:SHORT]}: rows "
        "that are changed after a bad result are a leak; say in spec.heldOut.reason of Playbook "
        f"{looks.playbook} why they were changed, beside digest: {held_out}"
    )
