"""The held-out gate of a candidate against today's active version, from what their runs measured.

A run compares what it learned with what it started from. Where that is today's active version, its word
holds. Where it is not (``StaleBase``), the scores of the candidate and the active version on the same
examples are compared; both brought them along in their ConfigMaps. On another heldOut, or scored in another
way, nothing can be compared. No model is asked.

Each candidate is one look at its heldOut, and is judged as the look of its number (``looks``). Whatever
thresholds the Playbook has, a version passes only where its own run showed a gain, as ``Learned`` has it: the
interval of what that run measured on gate lies above 0, at 95 % and at what its look asks for. Where the run
began with the active version that is the same comparison, and at 95 % alone luck would pass it in the end
whenever ``minGain`` is below 0. Any other waits for a person.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from combee.algo.gates import (
    CONFIDENCE,
    Compared,
    at_confidence,
    compare,
    corrected_gain,
    examples_missing,
    held_out_verdict,
)
from combee.algo.spending import look_confidence
from combee.algo.verdict import Judgement, spoken
from combee.api.playbook_status import Comparison, Thresholds
from combee.plan.playbook.types import VersionSeen

SHORT = 12
"""The number of digits of a digest in a sentence."""


def held_out_of(version: VersionSeen) -> str:
    """Return the digest of the heldOut that a version was scored on; empty where nobody said."""
    return version.gate.held_out if version.gate else version.spec.origin.data_digests.get("heldOut", "")


def measured_on(
    version: VersionSeen,
    active: VersionSeen | None,
    *,
    confidence: float,
    pinned: str,
    before: Comparison | None = None,
) -> Comparison | Judgement:
    """Return how ``version`` compares with ``active`` (None: no version is active), or why it cannot be told.

    ``pinned``: the digest of the heldOut that versions are compared on; empty while there is none.
    ``before``: an earlier comparison, which is used again where it still counts.
    """
    held_out = held_out_of(version)
    scored = version.gate is not None or version.spec.scores.gate is not None
    if pinned and scored and held_out != pinned:
        return _moved(pinned, held_out)
    comparison = _again(before, active, held_out, confidence)
    return comparison or _measured(version, active, confidence, stale=is_stale(version, active))


def is_stale(version: VersionSeen, active: VersionSeen | None) -> bool:
    """Return whether a version was learned from another version than the active one."""
    return active is not None and (version.spec.parent_digest or "") != active.digest


def version_verdict(
    version: VersionSeen, comparison: Comparison, *, thresholds: Thresholds, look: int
) -> Judgement:
    """Return what heldOut says of ``version``, the ``look``-th candidate that is compared on it."""
    compared, min_gain, confidence = (
        Compared(**_figures(comparison)),
        thresholds.min_gain,
        thresholds.confidence,
    )
    judgement = held_out_verdict(
        compared,
        min_score=thresholds.min_score,
        min_gain=min_gain,
        confidence=confidence,
        look=look,
        against="active" if comparison.against else "the start",
    )
    if judgement.outcome == "Passed":
        judgement = _shown(judgement, version, max(CONFIDENCE, look_confidence(confidence, look)))
    if judgement.outcome != "Passed":
        return judgement
    corrected = corrected_gain(compared, min_gain=min_gain, confidence=confidence, look=look)
    message = f"{judgement.message}; corrected for passing {corrected:+.3f}"
    return replace(judgement, message=message, shrunk_gain=corrected)


def _shown(judgement: Judgement, version: VersionSeen, confidence: float) -> Judgement:
    """Return ``judgement``, or that the version's own run did not show a gain where only that is amiss."""
    own = _own(version)
    if isinstance(own, Judgement):
        return own
    own = at_confidence(own, confidence)
    if own.low > 0:
        return judgement
    needed = examples_missing(own, 0.0, confidence)
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
            without = "it" if version.gate is None else "the active one"
            cause = f"{without} has no scores on gate, example by example, to compare the two"
            return _not_measured(version, active, cause)
        if version.gate.held_out != active.gate.held_out:
            return _moved(active.gate.held_out, version.gate.held_out)
        if version.gate.scored_by != active.gate.scored_by:
            ways = f"it was scored by {version.gate.scored_by}, and the active one by {active.gate.scored_by}"
            return _not_measured(version, active, ways)
        if version.spec.origin.rubric != active.spec.origin.rubric:
            return _not_measured(version, active, "the two were scored by the criteria of different rubrics")
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


def _not_measured(version: VersionSeen, active: VersionSeen, cause: str) -> Judgement:
    parent = (version.spec.parent_digest or "")[:SHORT] or "an empty playbook"
    bases = f"it was learned from {parent}, and {active.digest[:SHORT]} is active now"
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
