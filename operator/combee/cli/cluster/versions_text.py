"""Versions of a Playbook as lines for people. Pure: objects' statuses in, text out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from combee.api.playbook import VersionSpec
from combee.api.playbook_status import PlainCondition, PlaybookStatus, Verdict, VersionPhase, VersionStatus
from combee.methods.diff import Diff
from combee.report.text import visible

SHORT = 12
"""Digits of a digest that people see."""
COLUMNS = ("VERSION", "PHASE", "DECISION", "SCORE", "GAIN", "CANARY", "RUN", "MADE")
_RANK = {VersionPhase.ACTIVE: 0, VersionPhase.PREVIOUS: 1, VersionPhase.CANDIDATE: 2}


@dataclass(frozen=True, slots=True)
class VersionShown:
    """One version."""

    spec: VersionSpec
    status: VersionStatus
    created: str

    @property
    def short(self) -> str:
        """What people call it."""
        return self.spec.digest[:SHORT]


def history(name: str, status: PlaybookStatus, versions: Sequence[VersionShown]) -> str:
    """The versions as a table, newest first, and what happened to them."""
    if not versions:
        return f"{name} has no versions yet; runs with playbookRef: {{name: {name}}} make them"
    rows = [
        COLUMNS,
        *(_row(one) for one in sorted(versions, key=lambda v: (v.created, v.short), reverse=True)),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = [
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    if status.history:
        lines += ["", "What happened, newest last:"]
        for event in status.history:
            by = f" by {event.by.lower()}" if event.by else ""
            lines.append(
                f"  {event.time}  {event.digest[:SHORT]}  {event.event}{by}: {visible(event.message)}"
            )
    return "\n".join(lines)


def _row(one: VersionShown) -> tuple[str, ...]:
    comparison, gate = one.status.comparison, one.spec.scores.gate
    score = gain = "-"
    if comparison is not None:
        score = f"{comparison.score:.3f}"
        gain = f"{comparison.score - comparison.other:+.3f} [{comparison.low:.3f}, {comparison.high:.3f}]"
    elif gate is not None:
        score = f"{gate.best:.3f}"
        gain = f"{gate.best - gate.baseline:+.3f} [{gate.low:.3f}, {gate.high:.3f}]"
    canary = one.status.canary
    run = one.spec.run_ref.name if one.spec.run_ref is not None else "(by hand)"
    said = canary.outcome if canary is not None and canary.outcome else "-"
    return (
        one.short,
        one.status.phase.value,
        one.spec.decision,
        score,
        gain,
        said,
        visible(run),
        one.created,
    )


def why(one: VersionShown, width: int) -> str:
    """Where a version stands, and everything that was found about it."""
    lines = [f"{one.short}  {one.status.phase.value}"]
    lines += _wrapped("", one.status.message or "the operator has not looked at it yet", width)
    spec = one.spec
    if spec.decision != "Auto":
        lines += _wrapped("decision", f"{spec.decision}, by a person", width)
    for label, verdict in (
        ("content", one.status.content),
        ("held-out", one.status.held_out),
        ("canary", one.status.canary),
        ("since", one.status.watch),
    ):
        lines += _verdict(label, verdict, width)
    lines += _origin(spec, width)
    lines += _wrapped("digest", spec.digest, width)
    for condition in one.status.conditions:
        lines += _condition(condition, width)
    return "\n".join(lines)


def _verdict(label: str, verdict: Verdict | None, width: int) -> list[str]:
    if verdict is None or verdict.outcome is None:
        return []
    return _wrapped(label, f"{verdict.outcome}: {verdict.message}", width)


def _origin(spec: VersionSpec, width: int) -> list[str]:
    origin, said = spec.origin, []
    if spec.run_ref is not None:
        at = f", iteration {origin.iteration + 1}" if origin.iteration is not None else ""
        said.append(f"run {spec.run_ref.name}{at}")
    if origin.method:
        said.append(origin.method)
    said += [f"{role}: {model}" for role, model in sorted(origin.models.items())]
    if origin.seed is not None:
        said.append(f"seed {origin.seed}")
    lines = _wrapped("from", ", ".join(said), width) if said else []
    cost = [
        f"{number:,.0f} {unit}"
        for number, unit in (
            (origin.rollouts, "rollouts"),
            (origin.tokens, "tokens"),
            (origin.gpu_seconds, "GPU seconds"),
        )
        if number
    ]
    lines += _wrapped("cost", ", ".join(cost), width) if cost else []
    for sentence in origin.stakes.sentences():
        lines += _wrapped("known", sentence, width)
    if spec.parent_digest:
        lines += _wrapped("parent", spec.parent_digest[:SHORT], width)
    for split, digest in sorted(origin.data_digests.items()):
        lines += _wrapped(split, f"data {digest[:SHORT]}", width)
    return lines


def _condition(condition: PlainCondition, width: int) -> list[str]:
    if not condition.message:
        return []
    return _wrapped(condition.type, f"{condition.status} ({condition.reason}): {condition.message}", width)


def _wrapped(label: str, text: str, width: int) -> list[str]:
    indent = 2 + LABEL
    body = textwrap.wrap(visible(text), max(30, width - indent)) or [""]
    return [f"  {label.ljust(LABEL) if k == 0 else ' ' * LABEL}{line}" for k, line in enumerate(body)]


LABEL = 15


def difference(found: Diff, before: str, after: str) -> Iterator[str]:
    """What changed, bullet by bullet: ``-`` went, ``+`` came, ``~`` was re-worded."""
    yield f"from {before} to {after}: {len(found.added)} came, {len(found.removed)} went, {len(found.changed)} changed, {found.same} stayed"
    sections = {told.section for told in (*found.added, *found.removed)}
    for section in sorted(sections | {change.section for change in found.changed}):
        yield ""
        yield f"## {visible(section)}"
        for told in found.removed:
            if told.section == section:
                yield f"- {_bullet(told.id, told.text)}"
        for change in found.changed:
            if change.section == section:
                yield f"~ {_bullet(change.id, change.before)}"
                yield f"  {' ' * (len(change.id) + 2)} now: {visible(change.after)}"
        for told in found.added:
            if told.section == section:
                yield f"+ {_bullet(told.id, told.text)}"


def _bullet(bullet_id: str, text: str) -> str:
    return f"[{visible(bullet_id)}] {visible(text)}" if bullet_id else visible(text)
