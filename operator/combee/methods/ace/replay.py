"""Which entries must prove themselves on the example they come from, and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from combee.algo.seeds import digest_of
from combee.errors import BugError
from combee.methods.ace.facts import facts_of, lessons_of
from combee.methods.ace.ledger import Ledger
from combee.methods.ace.render import render
from combee.methods.ace.resolve import DISTINCT_TO_DELETE, DISTINCT_TO_SUPPORT, rivalries
from combee.methods.protocol import Verify
from combee.methods.verification import Page
from combee.records import Trajectory, example_of


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A request to answer ``source``'s example, and its controls, with the entry in the ``page``."""

    entry_digest: str
    source: str
    page: Page


def replay_candidates(ledger: Ledger, *, trajectories: Mapping[str, Trajectory]) -> list[str]:
    """Return the digests of the entries that a replay can decide, disputed ones first, then by digest.

    These are the undecided entries with a single distinct source, and the disputed ones, where a source among
    ``trajectories`` answered wrong. What the user gave is replayed only when disputed; what two distinct
    examples asked to delete is not replayed.
    """
    facts, lessons, rivals = facts_of(ledger), lessons_of(ledger), rivalries(ledger)
    candidates = []
    for rep, lesson in lessons.members.items():
        if lesson.wins or lesson.losses or len(lesson.deleters) >= DISTINCT_TO_DELETE:
            continue
        disputed = bool(rivals[rep])
        single = len(lesson.examples) < DISTINCT_TO_SUPPORT and not facts.trusted(rep)
        if (disputed or single) and _wrong_source(ledger, rep, trajectories):
            candidates.append((not disputed, rep))
    return [rep for _, rep in sorted(candidates)]


def _wrong_source(ledger: Ledger, digest: str, trajectories: Mapping[str, Trajectory]) -> str:
    """Return the first source of an entry whose answer was wrong, or empty; a failed call shows nothing."""
    lessons = lessons_of(ledger)
    lesson = lessons.members[lessons.rep_of[digest]]
    for source in sorted(lesson.sources):
        trajectory = trajectories.get(source)
        if trajectory is not None and not trajectory.correct and not trajectory.error:
            return source
    return ""


def replay_request(
    ledger: Ledger,
    entry_digest: str,
    shown: str,
    *,
    trajectories: Mapping[str, Trajectory],
    budget_tokens: int,
    verify: Verify,
) -> ReplayRequest:
    """Return a candidate's replay, beside the text ``shown`` without it. Raises BugError for others."""
    known = entry_digest in lessons_of(ledger).rep_of
    source = _wrong_source(ledger, entry_digest, trajectories) if known else ""
    if not source:
        raise BugError("the entry has no wrong trajectory to be replayed on", where=entry_digest[:12])
    text = render(ledger, budget_tokens=budget_tokens, verify=verify, with_entry=entry_digest).text
    return ReplayRequest(entry_digest, source, Page.of(text, shown))


def replay_controls(
    entry_digest: str, right: Iterable[str], *, source: str = "", count: int = 2
) -> tuple[str, ...]:
    """Return ``count`` of the example ids ``right`` (or all, if fewer), chosen by hash with the entry: the
    same for every order of ``right``. The example of the replayed ``source`` is never a control."""
    others = {example for example in right if example != example_of(source)}
    return tuple(sorted(others, key=lambda example: (digest_of([entry_digest, example]), example))[:count])
