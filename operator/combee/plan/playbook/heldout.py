"""The held-out gate of a candidate against today's active version, from what their runs measured.

A run compares what it learned with what it started from. Where that is today's active version, its word
holds. Where it is not (``StaleBase``), the scores of the candidate and the active version on the same
examples are compared; both brought them along in their ConfigMaps. On another heldOut nothing can be
compared. No model is asked.

Whatever thresholds the Playbook has, a version passes only where its own run showed a gain, as ``Learned``
has it: the 95 % interval of what that run measured on gate lies above 0. Any other waits for a person.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from combee.algo.gates import CONFIDENCE, Compared, compare, examples_missing, held_out_verdict
from combee.algo.verdict import Judgement, spoken
from combee.api.playbook_status import Comparison, Thresholds
from combee.plan.playbook.types import VersionSeen

SHORT = 12
"""The number of digits of a digest in a sentence."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The verdict, and what it rests on."""

    judgement: Judgement
    comparison: Comparison | None = None
    stale: bool = False
    """whether it was learned from another version than the active one."""


def held_out_of(version: VersionSeen) -> str:
    """Return the digest of the heldOut that a version was scored on; empty where nobody said."""
    return version.gate.held_out if version.gate else version.spec.origin.data_digests.get("heldOut", "")


def version_verdict(
    version: VersionSeen,
    active: VersionSeen | None,
    *,
    thresholds: Thresholds,
    pinned: str,
    before: Comparison | None = None,
) -> HeldOut:
    """Return what heldOut says of ``version`` against ``active`` (None: no version is active).

    ``pinned``: the digest of the heldOut that versions are compared on; empty while there is none.
    ``before``: an earlier comparison, which is used again where it still counts.
    """
    measured = held_out_of(version)
    scored = version.gate is not None or version.spec.scores.gate is not None
    if pinned and scored and measured != pinned:
        return HeldOut(_moved(pinned, measured))
    stale = active is not None and (version.spec.parent_digest or "") != active.digest
    comparison = _again(before, active, measured, thresholds.confidence)
    if comparison is None:
        measurement = _measured(version, active, thresholds.confidence, stale=stale)
        if isinstance(measurement, Judgement):
            return HeldOut(measurement, stale=stale)
        comparison = measurement
    judgement = held_out_verdict(
        Compared(**_figures(comparison)),
        min_score=thresholds.min_score,
        min_gain=thresholds.min_gain,
        confidence=thresholds.confidence,
        against="active" if active is not None else "the start",
    )
    return HeldOut(_shown(judgement, version), comparison, stale)


def _shown(judgement: Judgement, version: VersionSeen) -> Judgement:
    """Return ``judgement``, or that the version's own run did not show a gain where only that is amiss."""
    if judgement.outcome != "Passed":
        return judgement
    own = _own(version)
    if isinstance(own, Judgement):
        return own
    if own.low > 0:
        return judgement
    needed = examples_missing(own, 0.0, CONFIDENCE)
    numbers = spoken(own.gain, own.low, own.high, own.rows, "its start")
    more = "" if needed is None else f": about {needed:,} more examples would show it"
    message = (
        f"{judgement.message}; its own run's gain, {numbers}, can be chance{more}; or promote it by name"
    )
    return replace(judgement, outcome="Inconclusive", reason="TooFewExamples", message=message, needed=needed)


def _own(version: VersionSeen) -> Compared | Judgement:
    """Return what the version's own run measured on gate, by its record or else example by example; or why
    nothing says it: the scores of a version that was compared once may be gone since."""
    if version.spec.scores.gate is None and version.gate is not None:
        return compare(version.gate.best, version.gate.baseline, confidence=CONFIDENCE)
    recorded = _recorded(version, "")
    return Compared(**_figures(recorded)) if isinstance(recorded, Comparison) else recorded


def _again(
    before: Comparison | None, active: VersionSeen | None, measured: str, confidence: float
) -> Comparison | None:
    if before is None or before.against != (active.digest if active else ""):
        return None
    return before if (before.held_out_digest, before.confidence) == (measured, confidence) else None


def _measured(
    version: VersionSeen, active: VersionSeen | None, confidence: float, *, stale: bool
) -> Comparison | Judgement:
    """Return the comparison, or why there is none."""
    against = active.digest if active else ""
    if stale and active is not None:
        if version.gate is None or active.gate is None:
            return _not_measured(version, active)
        if version.gate.held_out != active.gate.held_out:
            return _moved(active.gate.held_out, version.gate.held_out)
        scores = active.gate.best
    elif version.gate is not None:
        scores = version.gate.baseline
    else:
        return _recorded(version, against)
    assert version.gate is not None
    compared = compare(version.gate.best, scores, confidence=confidence)
    return Comparison(against=against, held_out_digest=version.gate.held_out, **_figures(compared))


def _recorded(version: VersionSeen, against: str) -> Comparison | Judgement:
    """Return the comparison that the version's record alone gives, or why there is none."""
    gate = version.spec.scores.gate
    if gate is None:
        message = "it has no scores on heldOut; let a run make it, or promote it by name"
        return Judgement("Error", "NotMeasured", message)
    return Comparison(
        against=against,
        held_out_digest=held_out_of(version),
        score=gate.best,
        other=gate.baseline,
        low=gate.low,
        high=gate.high,
        rows=gate.rows,
        discordant=gate.discordant,
    )


def _figures(comparison: Comparison | Compared) -> dict[str, Any]:
    return {field.name: getattr(comparison, field.name) for field in fields(Compared)}


def _not_measured(version: VersionSeen, active: VersionSeen) -> Judgement:
    parent = (version.spec.parent_digest or "")[:SHORT] or "an empty playbook"
    without = "it" if version.gate is None else "the active one"
    bases = f"it was learned from {parent}, and {active.digest[:SHORT]} is active now"
    cause = f"{without} has no scores on gate, example by example, to compare the two"
    message = f"{bases}; {cause}: learn from the active version, or promote it by name"
    return Judgement("Error", "StaleBase", message)


def _moved(pinned: str, measured: str) -> Judgement:
    if measured:
        cause = (
            f"it was scored on {measured[:SHORT]}: give the rows back, or set spec.heldOut.digest to "
            f"{measured} and learn from the active version"
        )
    else:
        cause = "nobody said which one it was scored on: let a run make it, or promote it by name"
    message = f"versions are compared on heldOut {pinned[:SHORT]}, and {cause}"
    return Judgement("Error", "HeldOutMoved", message)
