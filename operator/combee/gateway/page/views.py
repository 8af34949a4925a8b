"""From what the API server holds to what the page shows. Pure: objects in, plain data out.

What another release wrote and this one cannot read is shown as that, and hides nothing else.
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
from combee.report.text import amount, score, signed

Object = dict[str, Any]
SHORT = 12
"""digits of a digest that people see."""
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
    """A word and how it is meant: good, bad or neither."""

    text: str

    @property
    def tone(self) -> str:
        """The class of the style sheet that colours it."""
        return _TONES.get(self.text, "plain")


@dataclass(frozen=True, slots=True)
class Gate:
    """What one gate says of a version."""

    name: str
    outcome: Word
    message: str
    gain: str
    samples: str
    needed: str
    against: str


@dataclass(frozen=True, slots=True)
class Figure:
    """The curve of one test."""

    title: str
    under: str
    plot: Plot


@dataclass(frozen=True, slots=True)
class VersionView:
    """One version."""

    digest: str
    phase: Word
    served: bool
    """whether this gateway puts it in front of requests now."""
    decision: str
    message: str
    score: str
    gain: str
    canary: Word
    run: str
    created: str
    config_map: str
    gates: tuple[Gate, ...]
    facts: tuple[tuple[str, str], ...]
    """where it comes from and what it cost: label, text."""
    conditions: tuple[PlainCondition, ...]
    figures: tuple[Figure, ...]

    @property
    def short(self) -> str:
        """What people call it."""
        return self.digest[:SHORT]


@dataclass(frozen=True, slots=True)
class PlaybookView:
    """One Playbook."""

    name: str
    message: str
    served: str
    """digest that this gateway puts in front of requests now; empty: none."""
    gain: str
    warnings: tuple[str, ...]
    conditions: tuple[PlainCondition, ...]
    history: tuple[HistoryEntry, ...]
    """newest first."""
    versions: tuple[VersionView, ...]
    """the active one, the candidate and the previous one first, then the newest."""

    def version(self, digest: str) -> VersionView | None:
        """The one version whose digest begins so."""
        found = [one for one in self.versions if digest and one.digest.startswith(digest)]
        return found[0] if len(found) == 1 else None

    def of_phase(self, phase: str) -> VersionView | None:
        """The first version that stands there."""
        return next((one for one in self.versions if one.phase.text == phase), None)

    @property
    def compared(self) -> tuple[str, str]:
        """Digests that one wants to compare first: what is active, and what may follow it or came before it."""
        if len(self.versions) < 2:
            return "", ""
        active, candidate = self.of_phase("Active"), self.of_phase("Candidate")
        before = self.of_phase("Previous")
        if active is None:
            return self.versions[1].digest, self.versions[0].digest
        if candidate is not None:
            return active.digest, candidate.digest
        other = before or next(one for one in self.versions if one is not active)
        return other.digest, active.digest


def playbook_view(name: str, seen: Seen, served: str) -> PlaybookView:
    """What is known of a Playbook. ``served``: the digest that this gateway uses now."""
    try:
        status = PlaybookStatus.model_validate(seen.playbook.get("status") or {})
    except ValidationError:
        status = PlaybookStatus(message=_UNREADABLE)
    versions = [version_view(one, served) for one in seen.versions]
    versions.sort(key=lambda one: (one.created, one.digest), reverse=True)
    versions.sort(key=lambda one: _RANK.get(one.phase.text, 3))
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
    """What is known of a version."""
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
        config_map=spec.config_map_name,
        gates=_gates(status),
        facts=tuple(_facts(spec, status)),
        conditions=status.conditions,
        figures=tuple(_figures(status)),
    )


def _spec(raw: Object) -> VersionSpec:
    try:
        return VersionSpec.model_validate(raw["spec"])
    except ValidationError:
        kept = ("playbookRef", "digest", "configMapName")
        return VersionSpec.model_validate({name: raw["spec"][name] for name in kept})


def _status(raw: Object) -> VersionStatus:
    try:
        return VersionStatus.model_validate(raw.get("status") or {})
    except ValidationError:
        return VersionStatus(message=_UNREADABLE)


def _measured(spec: VersionSpec, status: VersionStatus) -> tuple[str, str]:
    """Score, and gain with its interval, on heldOut: over today's active version, else as it was learned."""
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
    told: Sequence[tuple[str, Verdict | None]] = (
        ("Content", status.content),
        ("Held-out", status.held_out),
        ("Canary", status.canary),
        ("Since it became active", status.watch),
    )
    return tuple(
        Gate(
            name=name,
            outcome=Word(one.outcome),
            message=one.message,
            gain=_gain(one.gain, one.low, one.high),
            samples=f"{one.samples:,}" if one.samples and name != "Content" else "–",
            needed=f"{one.needed:,}" if one.needed else "–",
            against=one.against[:SHORT] or "–",
        )
        for name, one in told
        if one is not None and one.outcome is not None
    )


def _facts(spec: VersionSpec, status: VersionStatus) -> list[tuple[str, str]]:
    origin, told = spec.origin, [("Digest", spec.digest)]
    told.append(("Decision", _DECISIONS[spec.decision]))
    if status.promoted_by:
        told.append(("Became active", f"{status.promoted_time}, by {_BY.get(status.promoted_by, '')}"))
    if status.refused_by:
        told.append(("Refused", f"by {_BY.get(status.refused_by, '')}"))
    if spec.run_ref is not None:
        at = f", iteration {origin.iteration + 1}" if origin.iteration is not None else ""
        told.append(("Learned by", f"run {spec.run_ref.name}{at}"))
    if origin.method:
        told.append(("Method", origin.method))
    told += [(f"Model: {role}", model) for role, model in sorted(origin.models.items())]
    if origin.seed is not None:
        told.append(("Seed", str(origin.seed)))
    units = ((origin.rollouts, "rollouts"), (origin.tokens, "tokens"), (origin.gpu_seconds, "GPU seconds"))
    cost = [f"{amount(number)} {unit}" for number, unit in units if number]
    told += [("Cost", ", ".join(cost))] if cost else []
    told += [("Held-out is kept by", origin.steward)] if origin.steward else []
    told += [("Held-out", TUNED_ON)] if origin.used_for_tuning else []
    told += [("A wrong answer costs", origin.failure_cost)] if origin.failure_cost else []
    told.append(("Learned from", spec.parent_digest or "an empty playbook"))
    told += [(f"Data: {split}", digest) for split, digest in sorted(origin.data_digests.items())]
    if spec.scores.test is not None:
        told.append(("Score on test", score(spec.scores.test)))
    if status.restarts:
        told.append(("Tests begun anew", f"{status.restarts} times"))
    return told


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
    """Curves of the version's tests; the one that is over first."""
    found = []
    unit = "window" if status.thresholds is not None and status.thresholds.mode == "Prometheus" else "pair"
    for curve in sorted(curves_in(status.state), key=lambda one: (one.since, one.kind)):
        plot = plot_of(curve, unit)
        if plot is not None:
            title, what = _KINDS.get(curve.kind, (curve.kind, ""))
            found.append(Figure(title, f"{what}, {curve.against[:SHORT]}{_earlier(curve, status)}", plot))
    return found


def _earlier(curve: Curve, status: VersionStatus) -> str:
    test = status.test
    other = test is not None and test.kind == curve.kind and test.id != curve.test
    return "; of an earlier test, before it began anew" if other else ""
