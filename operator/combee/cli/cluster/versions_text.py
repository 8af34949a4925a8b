"""Versions of a Playbook as lines for people. Pure: objects' statuses in, text out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from combee.api.playbook import VersionSpec
from combee.api.playbook_status import ErrorBudget, PlaybookStatus, VersionStatus
from combee.methods.diff import Diff
from combee.plan.playbook.trail import FiledLine
from combee.report.text import columns, visible

SHORT = 12
"""The number of digits of a digest that people see."""
LABEL = 15
COLUMNS = ("VERSION", "PHASE", "DECISION", "LOOK", "SCORE", "GAIN", "CORRECTED", "CANARY", "RUN", "MADE")


@dataclass(frozen=True, slots=True)
class VersionShown:
    """A version, as it is shown."""

    spec: VersionSpec
    status: VersionStatus
    created: str

    @property
    def short(self) -> str:
        """The first digits of its digest, by which people call it."""
        return self.spec.digest[:SHORT]


def history(
    name: str, status: PlaybookStatus, versions: Sequence[VersionShown], lines: Sequence[FiledLine]
) -> str:
    """Return the versions as a table, newest first, and every line of the history, newest last."""
    if not versions and not lines:
        return f"{name} has no versions yet; runs with playbookRef: {{name: {name}}} make them"
    rows = [
        COLUMNS,
        *(_row(one) for one in sorted(versions, key=lambda v: (v.created, v.short), reverse=True)),
    ]
    text = columns(rows) if versions else [f"{name} has no versions any more"]
    if status.error_budget is not None:
        text += ["", *_budget(status.error_budget)]
    if lines:
        text += ["", "What was decided, newest last:", *_lines(lines)]
    return "\n".join(text)


def _lines(lines: Sequence[FiledLine]) -> Iterator[str]:
    """Yield the lines of the history; the policy that they were decided by where it changes."""
    policy = ""
    for one in lines:
        if (line := one.line) is None:
            yield f"  {one.number}  cannot be read"
            continue
        if line.policy and line.policy != policy:
            policy = line.policy
            yield f"  under {visible(policy)}:"
        by = f" by {line.by.lower()}" if line.by else ""
        who = f" ({visible(line.who)})" if line.who else ""
        what = f"{visible(line.event)}{by}{who}: {visible(line.message)}"
        yield f"  {one.number or '-'}  {visible(line.time)}  {line.digest[:SHORT] or '-'}  {what}"


def checked(lines: Sequence[FiledLine], wrong: Sequence[str], *, anchored: bool) -> str:
    """Return what checking the lines found.

    ``anchored``: whether the Playbook is there, so that its status says where they must end.
    """
    if wrong:
        return "\n".join(f"wrong: {text}" for text in wrong)
    if not lines:
        return "no line of the history is written yet"
    end = "" if anchored else "; the Playbook is gone, so lines may be missing at the end"
    number = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
    last = lines[-1].digest[:SHORT]
    return f"the history is whole: {number}, each with the digest of the one before; last {last}{end}"


def _budget(budget: ErrorBudget) -> Iterator[str]:
    whole = budget.spent + budget.left
    yield f"heldOut {budget.held_out_digest[:SHORT]}: {visible(budget.message)}"
    yield f"error budget: {100 * budget.left:.2g} of {100 * whole:.2g} % left for all that come"


def _row(one: VersionShown) -> tuple[str, ...]:
    comparison, gate = one.status.comparison, one.spec.scores.gate
    score = gain = "-"
    if comparison is not None:
        score = f"{comparison.score:.3f}"
        gain = f"{comparison.score - comparison.other:+.3f} [{comparison.low:.3f}, {comparison.high:.3f}]"
    elif gate is not None:
        score = f"{gate.best:.3f}"
        gain = f"{gate.best - gate.baseline:+.3f} [{gate.low:.3f}, {gate.high:.3f}]"
    canary, verdict, look = one.status.canary, one.status.held_out, one.status.look
    shrunk = verdict.shrunk_gain if verdict is not None else None
    run = one.spec.run_ref.name if one.spec.run_ref is not None else "(by hand)"
    outcome = canary.outcome if canary is not None and canary.outcome else "-"
    return (
        one.short,
        one.status.phase.value,
        one.spec.decision,
        "-" if look is None else str(look.number),
        score,
        gain,
        "-" if shrunk is None else f"{shrunk:+.3f}",
        outcome,
        visible(run),
        one.created,
    )


def why(one: VersionShown, width: int) -> str:
    """Return where a version stands, and everything that was found about it."""
    lines = [f"{one.short}  {one.status.phase.value}"]
    for label, text in _facts(one.spec, one.status):
        body = textwrap.wrap(visible(text), max(30, width - 2 - LABEL)) or [""]
        lines += [f"  {'' if number else label:<{LABEL}}{line}" for number, line in enumerate(body)]
    return "\n".join(lines)


def _facts(spec: VersionSpec, status: VersionStatus) -> Iterator[tuple[str, str]]:
    """Yield (label, text) of all that is known of a version, most important first."""
    yield "", status.message or "the operator has not looked at it yet"
    if spec.decision != "Auto":
        yield "decision", f"{spec.decision}, by a person"
    verdicts = (status.content, status.held_out, status.canary, status.watch)
    for label, verdict in zip(("content", "held-out", "canary", "since"), verdicts, strict=True):
        if verdict is not None and verdict.message:
            yield label, f"{verdict.outcome or verdict.reason}: {verdict.message}"
    yield from _origin(spec)
    yield "digest", spec.digest
    for condition in status.conditions:
        if condition.message:
            yield condition.type, f"{condition.status} ({condition.reason}): {condition.message}"


def _origin(spec: VersionSpec) -> Iterator[tuple[str, str]]:
    origin, makers = spec.origin, []
    if spec.run_ref is not None:
        at = f", iteration {origin.iteration + 1}" if origin.iteration is not None else ""
        makers.append(f"run {spec.run_ref.name}{at}")
    if origin.method:
        makers.append(origin.method)
    makers += [f"{role}: {model}" for role, model in sorted(origin.models.items())]
    if origin.seed is not None:
        makers.append(f"seed {origin.seed}")
    if makers:
        yield "from", ", ".join(makers)
    costs = ((origin.rollouts, "rollouts"), (origin.tokens, "tokens"), (origin.gpu_seconds, "GPU seconds"))
    if any(number for number, _ in costs):
        yield "cost", ", ".join(f"{number:,.0f} {unit}" for number, unit in costs if number)
    for sentence in origin.stakes.sentences():
        yield "known", sentence
    if spec.parent_digest:
        yield "parent", spec.parent_digest[:SHORT]
    for split, digest in sorted(origin.data_digests.items()):
        yield split, f"data {digest[:SHORT]}"


def difference(diff: Diff, before: str, after: str) -> Iterator[str]:
    """Yield what changed, bullet by bullet: ``-`` went, ``+`` came, ``~`` was re-worded."""
    yield (
        f"from {before} to {after}: {len(diff.added)} came, {len(diff.removed)} went, "
        f"{len(diff.changed)} changed, {diff.same} stayed"
    )
    sections = {bullet.section for bullet in (*diff.added, *diff.removed)}
    for section in sorted(sections | {change.section for change in diff.changed}):
        yield ""
        yield f"## {visible(section)}"
        for bullet in diff.removed:
            if bullet.section == section:
                yield f"- {_bullet(bullet.id, bullet.text)}"
        for change in diff.changed:
            if change.section == section:
                yield f"~ {_bullet(change.id, change.before)}"
                yield f"  {' ' * (len(change.id) + 2)} now: {visible(change.after)}"
        for bullet in diff.added:
            if bullet.section == section:
                yield f"+ {_bullet(bullet.id, bullet.text)}"


def _bullet(bullet_id: str, text: str) -> str:
    return f"[{visible(bullet_id)}] {visible(text)}" if bullet_id else visible(text)
