"""Turns objects of the API server into what the page shows. Pure: objects in, plain data out.

What another release wrote and this one cannot read is shown as unreadable, and hides nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from combee.api.playbook import VersionSpec
from combee.api.playbook_status import HistoryEntry, PlainCondition, PlaybookStatus, Verdict, VersionStatus
from combee.api.stakes import TUNED_ON
from combee.gateway.page.plot import Plot, plot_of
from combee.plan.playbook.curve import Curve, curves_in
from combee.plan.playbook.serving import Version
from combee.report.text import amount, score, signed

Object = dict[str, Any]
SHORT = 12
"""number of a digest's digits that people see."""
_RANK = {"Active": 0, "Candidate": 1, "Previous": 2}
_TONES = {"Active": "good", "Passed": "good", "Refused": "bad", "Failed": "bad", "Error": "bad"}
_KINDS = {
    "Promotion": ("Canary", "the candidate against the version that was active"),
    "Watch": ("Since it became active", "the active version against the one before it"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A Playbook and its versions as the API server has them."""

    playbook: Object
    versions: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its tone: good, bad or neither."""

    text: str

    @property
    def tone(self) -> str:
        """The class of the style sheet that colours the word."""
        return _TONES.get(self.text, "plain")


@dataclass(frozen=True, slots=True)
class Gate:
    """The verdict of one gate on a version."""

    name: str
    outcome: Word
    message: str
    gain: str
    samples: str
    needed: str
    against: str


@dataclass(frozen=True, slots=True)
class Figure:
    """The curve of one comparison."""

    title: str
    under: str
    plot: Plot


@dataclass(frozen=True, slots=True)
class VersionView:
    """One version."""

    digest: str
    phase: Word
    served: bool
    """whether this gateway serves the version now."""
    decision: str
    message: str
    score: str
    gain: str
    canary: Word
    run: str
    created: str
    standing: Version
    """as the serving rule reads it."""
    gates: tuple[Gate, ...]
    facts: tuple[tuple[str, str], ...]
    """label and text of the version's origin and cost."""
    conditions: tuple[PlainCondition, ...]
    figures: tuple[Figure, ...]

    @property
    def short(self) -> str:
        """The short digest that people see."""
        return self.digest[:SHORT]


@dataclass(frozen=True, slots=True)
class PlaybookView:
    """One Playbook."""

    name: str
    message: str
    served: str
    """digest of the version that this gateway serves now; empty when there is none."""
    gain: str
    warnings: tuple[str, ...]
    conditions: tuple[PlainCondition, ...]
    history: tuple[HistoryEntry, ...]
    """newest first."""
    versions: tuple[VersionView, ...]
    """the active one, the candidate and the previous one first, then the newest."""

    def version(self, digest: str) -> VersionView | None:
        """Return the only version whose digest begins with ``digest``; None when there is none or several."""
        versions = [version for version in self.versions if digest and version.digest.startswith(digest)]
        return versions[0] if len(versions) == 1 else None

    def of_phase(self, phase: str) -> VersionView | None:
        """Return the first version in a phase; None when there is none."""
        return next((version for version in self.versions if version.phase.text == phase), None)

    @property
    def compared(self) -> tuple[str, str]:
        """Digests to offer for comparison: the active version, with the candidate or the previous one."""
        if len(self.versions) < 2:
            return "", ""
        active, candidate = self.of_phase("Active"), self.of_phase("Candidate")
        before = self.of_phase("Previous")
        if active is None:
            return self.versions[1].digest, self.versions[0].digest
        if candidate is not None:
            return active.digest, candidate.digest
        other = before or next(version for version in self.versions if version is not active)
        return other.digest, active.digest


def playbook_view(name: str, seen: Seen, served: str) -> PlaybookView:
    """Return the view of a Playbook. ``served``: the digest that this gateway serves now."""
    try:
        status = PlaybookStatus.model_validate(seen.playbook.get("status") or {})
    except ValidationError:
        status = PlaybookStatus(message=_UNREADABLE)
    versions = [version_view(version, served) for version in seen.versions]
    versions.sort(key=lambda version: (version.created, version.digest), reverse=True)
    versions.sort(key=lambda version: _RANK.get(version.phase.text, 3))
    return PlaybookView(
        name=name,
        message=status.message or "the operator has not looked at it yet",
        served=served,
        gain=status.shown.gain,
        warnings=status.warnings,
        conditions=status.conditions,
        history=tuple(reversed(status.history)),
        versions=tuple(versions),
    )


_UNREADABLE = "another release wrote its status, and this one cannot read it"


def version_view(raw: Object, served: str) -> VersionView:
    """Return the view of a version. ``served``: the digest that this gateway serves now."""
    spec, status = _spec(raw), _status(raw)
    measured, gain = _measured(spec, status)
    canary = status.canary
    return VersionView(
        digest=spec.digest,
        phase=Word(str((raw.get("status") or {}).get("phase") or status.phase.value)),
        served=spec.digest == served,
        decision=spec.decision,
        message=status.message or "the operator has not looked at it yet",
        score=measured,
        gain=gain,
        canary=Word(canary.outcome if canary is not None and canary.outcome else "–"),
        run=spec.run_ref.name if spec.run_ref is not None else "by hand",
        created=str(raw["metadata"].get("creationTimestamp") or ""),
        standing=Version.of(raw),
        gates=_gates(status),
        facts=tuple(_facts(spec, status)),
        conditions=status.conditions,
        figures=tuple(_figures(status)),
    )


def _spec(raw: Object) -> VersionSpec:
    try:
        return VersionSpec.model_validate(raw["spec"])
    except ValidationError:
        required = ("playbookRef", "digest", "configMapName")
        return VersionSpec.model_validate({name: raw["spec"][name] for name in required})


def _status(raw: Object) -> VersionStatus:
    try:
        return VersionStatus.model_validate(raw.get("status") or {})
    except ValidationError:
        return VersionStatus(message=_UNREADABLE)


def _measured(spec: VersionSpec, status: VersionStatus) -> tuple[str, str]:
    """Return score, and gain with its interval, on heldOut: over today's active version, else as learned."""
    comparison, gate = status.comparison, spec.scores.gate
    if comparison is not None:
        gain = _gain(comparison.score - comparison.other, comparison.low, comparison.high)
        return score(comparison.score), gain
    if gate is not None:
        return score(gate.best), _gain(gate.best - gate.baseline, gate.low, gate.high)
    return "–", "–"


def _gain(gain: float | None, low: float | None, high: float | None) -> str:
    if gain is None:
        return "–"
    interval = f" [{signed(low)}, {signed(high)}]" if low is not None and high is not None else ""
    return signed(gain) + interval


def _gates(status: VersionStatus) -> tuple[Gate, ...]:
    verdicts: Sequence[tuple[str, Verdict | None]] = (
        ("Content", status.content),
        ("Held-out", status.held_out),
        ("Canary", status.canary),
        ("Since it became active", status.watch),
    )
    return tuple(
        Gate(
            name=name,
            outcome=Word(verdict.outcome or verdict.reason),
            message=verdict.message,
            gain=_gain(verdict.gain, verdict.low, verdict.high),
            samples=f"{verdict.samples:,}" if verdict.samples and name != "Content" else "–",
            needed=f"{verdict.needed:,}" if verdict.needed else "–",
            against=verdict.against[:SHORT] or "–",
        )
        for name, verdict in verdicts
        if verdict is not None and verdict.message
    )


def _facts(spec: VersionSpec, status: VersionStatus) -> list[tuple[str, str]]:
    origin, facts = spec.origin, [("Digest", spec.digest)]
    facts.append(("Decision", _DECISIONS[spec.decision]))
    if status.promoted_by:
        facts.append(("Became active", f"{status.promoted_time}, by {_BY.get(status.promoted_by, '')}"))
    if status.refused_by:
        facts.append(("Refused", f"by {_BY.get(status.refused_by, '')}"))
    if spec.run_ref is not None:
        at = f", iteration {origin.iteration + 1}" if origin.iteration is not None else ""
        facts.append(("Learned by", f"run {spec.run_ref.name}{at}"))
    if origin.method:
        facts.append(("Method", origin.method))
    facts += [(f"Model: {role}", model) for role, model in sorted(origin.models.items())]
    if origin.seed is not None:
        facts.append(("Seed", str(origin.seed)))
    units = ((origin.rollouts, "rollouts"), (origin.tokens, "tokens"), (origin.gpu_seconds, "GPU seconds"))
    cost = [f"{amount(number)} {unit}" for number, unit in units if number]
    facts += [("Cost", ", ".join(cost))] if cost else []
    facts += [("Held-out is kept by", origin.steward)] if origin.steward else []
    facts += [("Held-out", TUNED_ON)] if origin.used_for_tuning else []
    facts += [("A wrong answer costs", origin.failure_cost)] if origin.failure_cost else []
    facts += [("Scored by the rubric", " ".join(origin.rubric.criteria))] if origin.rubric else []
    facts.append(("Learned from", spec.parent_digest or "an empty playbook"))
    facts += [(f"Data: {split}", digest) for split, digest in sorted(origin.data_digests.items())]
    if spec.scores.test is not None:
        facts.append(("Score on test", score(spec.scores.test)))
    if status.restarts:
        facts.append(("Comparison begun anew", f"{status.restarts} times"))
    return facts


_DECISIONS = {
    "Auto": "Auto: the gates decide",
    "Approve": "Approve: a person passed its canary",
    "Promote": "Promote: a person made it active",
    "Refuse": "Refuse: a person refused it",
}
_BY = {
    "Gates": "its gates",
    "Decision": "a person's decision",
    "Pin": "spec.version.pinnedDigest",
    "Rollback": "rollback",
}


def _figures(status: VersionStatus) -> list[Figure]:
    """Return the curves of the version's comparisons, the finished one first."""
    figures = []
    unit = "window" if status.thresholds is not None and status.thresholds.mode == "Prometheus" else "pair"
    for curve in sorted(curves_in(status.state), key=lambda curve: (curve.since, curve.kind)):
        plot = plot_of(curve, unit)
        if plot is not None:
            title, pair = _KINDS.get(curve.kind, (curve.kind, ""))
            figures.append(Figure(title, f"{pair}, {curve.against[:SHORT]}{_earlier(curve, status)}", plot))
    return figures


def _earlier(curve: Curve, status: VersionStatus) -> str:
    now = status.test
    other = now is not None and now.kind == curve.kind and now.id != curve.comparison
    return "; of an earlier comparison, before it began anew" if other else ""
