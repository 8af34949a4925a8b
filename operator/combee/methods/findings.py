"""What a version's content must not hold: the method's checks on every line, every bullet and all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import islice
from typing import Literal

from combee.algo.verdict import Judgement
from combee.api.common import one_line
from combee.errors import UserError
from combee.methods.content import SHINGLE_WORDS, injection_reason, leak_reason
from combee.methods.protocol import LeakCorpus
from combee.names import FINDINGS_KEY

_BULLET = re.compile(r"\s*(?:[-*]\s+)?\[(?P<id>[^\]\s]{1,40})\]")
_HEADING = re.compile(r"\s{0,3}#")
_SHOWN = 3
_KEPT = 100
"""The most findings that travel with a version; one is enough to refuse it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a version's content that must not be delivered. It never repeats the content."""

    kind: Literal["leak", "injection"]
    entry: str
    """the bullet's id or number."""
    reason: str


def findings(playbook: str) -> tuple[Finding, ...]:
    """Return what is wrong with the text of a playbook, in its order; nothing of the text is repeated.

    A bullet of several lines is checked line by line and as a whole. Orders are also looked for across
    bullets, as a model reads them.

    Passages of training rows are not looked for: ``verbatim`` does that, where the rows are at hand.
    """
    unfit: list[Finding] = []
    for entry, lines in _entries(playbook):
        texts = _texts(lines)
        leaks = (f"it seems to hold {private}" for text in texts if (private := leak_reason(text)))
        orders = (reason for text in texts if (reason := injection_reason(text)))
        unfit += [Finding("leak", entry, reason) for reason in _first(leaks)]
        unfit += [Finding("injection", entry, reason) for reason in _first(orders)]
    if not any(finding.kind == "injection" for finding in unfit) and (order := injection_reason(playbook)):
        unfit.append(Finding("injection", "several entries together", order))
    return tuple(unfit)


def verbatim(playbook: str, corpus: LeakCorpus) -> tuple[Finding, ...]:
    """Return the bullets that repeat a passage of the rows of ``corpus``, in order, at most ``_KEPT``.

    Only a pod of the run has the rows: what it finds travels with the version (``findings_json``).
    """
    reason = f"it repeats {SHINGLE_WORDS} words in a row that only few rows of the data have"
    matches = (
        Finding("leak", entry, reason)
        for entry, lines in _entries(playbook)
        if any(corpus.repeats(text) for text in _texts(lines))
    )
    return tuple(islice(matches, _KEPT))


def findings_json(findings: Sequence[Finding]) -> str:
    """Return the findings as ``findings_from`` reads them."""
    return json.dumps([astuple(finding) for finding in findings], separators=(",", ":"))


def findings_from(text: str, *, where: str = FINDINGS_KEY) -> tuple[Finding, ...]:
    """Return what ``findings_json`` wrote. Raises UserError when it is something else."""
    try:
        return tuple(_finding(*row) for row in json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"what a run found in the content cannot be read ({type(error).__name__})",
            where=where,
            fix="Let a run make the version",
        ) from None


def _finding(kind: object, entry: object, reason: object) -> Finding:
    if kind not in ("leak", "injection") or not isinstance(entry, str) or not isinstance(reason, str):
        raise ValueError("not a finding")
    return Finding("leak" if kind == "leak" else "injection", one_line(entry, 60), one_line(reason, 200))


def _texts(lines: list[str]) -> list[str]:
    """Return each line, and all of them as one text."""
    return lines if len(lines) == 1 else [*lines, "\n".join(lines)]


def _entries(playbook: str) -> Iterator[tuple[str, list[str]]]:
    """Yield bullets with the lines that continue them, and any other line by itself."""
    entry, lines = "", list[str]()
    for place, line in enumerate(playbook.splitlines(), start=1):
        bullet = _BULLET.match(line)
        if bullet is None and entry and line.strip() and not _HEADING.match(line):
            lines.append(line)
            continue
        if lines:
            yield entry or f"line {place - 1}", lines
        entry, lines = (bullet["id"] if bullet else ""), [line]
    if lines:
        yield entry or f"line {len(playbook.splitlines())}", lines


def _first(reasons: Iterator[str]) -> list[str]:
    return [reason for reason in (next(reasons, ""),) if reason]


def content_verdict(findings: Sequence[Finding] | None) -> Judgement:
    """Return the verdict on findings; None means that the content was not looked at. The reasons are
    ContentPassed, LeakFound, InjectionFound and NotLookedAt."""
    if findings is None:
        return Judgement("Inconclusive", "NotLookedAt", "its content was not read yet", final=False)
    if not findings:
        return Judgement("Passed", "ContentPassed", "no private data and no orders were found in it")
    shown = "; ".join(f"{finding.entry}: {finding.reason}" for finding in findings[:_SHOWN])
    more = f" and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
    reason = "LeakFound" if any(finding.kind == "leak" for finding in findings) else "InjectionFound"
    return Judgement("Failed", reason, f"{shown}{more}", samples=len(findings))
