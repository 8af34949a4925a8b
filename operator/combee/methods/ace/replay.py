"""Which entries must prove themselves, on which examples, against which controls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isqrt

from combee.algo.seeds import digest_of
from combee.errors import BugError
from combee.methods.ace.facts import Lesson, facts_of, lessons_of
from combee.methods.ace.ledger import Ledger
from combee.methods.ace.matching import Readers
from combee.methods.ace.resolve import DISTINCT_TO_DELETE, DISTINCT_TO_SUPPORT, rivalries
from combee.methods.verification import Page
from combee.records import Trajectory, example_of

MOST_CONTROLS = 8
"""Controls of an entry, however many examples read it."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A request to answer ``source``'s example, and the entry's controls, with the entry in the ``page``.

    ``source`` is empty where nothing is to be fixed: then ``own``, the examples behind it, are controls.
    """

    entry_digest: str
    source: str
    own: tuple[str, ...]
    page: Page


def to_replay(ledger: Ledger, *, trajectories: Mapping[str, Trajectory], readers: Readers) -> list[str]:
    """Return the digests of the entries that a replay can decide: disputed ones first, then those that would
    be rendered for their sources alone, then the others; of each, those that most examples read come first,
    then those with the fewest sources.

    An entry was tried before, or was not: once lost, several sources earn it another replay, on another
    example; so does one source where it was an earlier run that it lost in. What the user gave is replayed
    only when disputed; what two distinct examples asked to delete is not replayed.
    """
    facts, lessons, rivals = facts_of(ledger), lessons_of(ledger), rivalries(ledger)
    undecided = []
    for rep, lesson in lessons.members.items():
        disputed = bool(rivals[rep])
        supported = len(lesson.examples) >= DISTINCT_TO_SUPPORT
        again = (supported and lesson.losses == lesson.wins + 1) or (lesson.lost and lesson.last_run != 0)
        settled = lesson.tried and not again
        if settled or len(lesson.deleters) >= DISTINCT_TO_DELETE or (facts.trusted(rep) and not disputed):
            continue
        right = supported and not lesson.tried and bool(_right_examples(lesson, trajectories))
        if _wrong_source(lesson, trajectories) or right:
            reach = len(readers.of(ledger.texts[rep]))
            undecided.append((not disputed, not supported, -reach, len(lesson.examples), rep))
    return [rep for *_, rep in sorted(undecided)]


def _wrong_source(lesson: Lesson, trajectories: Mapping[str, Trajectory]) -> str:
    """Return the first source whose answer was wrong and whose example has not been replayed, or empty; a
    failed call shows nothing."""
    tried = {example_of(source) for source in lesson.tried}
    for source in sorted(lesson.sources):
        trajectory = trajectories.get(source)
        if trajectory is None or trajectory.correct or trajectory.error:
            continue
        if trajectory.example_id not in tried:
            return source
    return ""


def _right_examples(lesson: Lesson, trajectories: Mapping[str, Trajectory]) -> tuple[str, ...]:
    known = (trajectories.get(source) for source in sorted(lesson.sources))
    return tuple(dict.fromkeys(one.example_id for one in known if one is not None and one.correct))


def replay_request(
    ledger: Ledger,
    entry_digest: str,
    *,
    trajectories: Mapping[str, Trajectory],
    page: Page,
) -> ReplayRequest:
    """Return the replay of an entry on a page that holds it. Raises BugError where no replay can decide."""
    lessons = lessons_of(ledger)
    lesson = lessons.members.get(lessons.rep_of.get(entry_digest, ""))
    source = _wrong_source(lesson, trajectories) if lesson else ""
    own = _right_examples(lesson, trajectories) if lesson and not source else ()
    if not source and not own:
        raise BugError("the entry has no trajectory to be replayed on", where=entry_digest[:12])
    return ReplayRequest(entry_digest, source, own, page)


def replay_controls(request: ReplayRequest, right: Iterable[str], reading: Iterable[str]) -> tuple[str, ...]:
    """Return the entry's controls among the example ids ``right``, never the one that it is to fix.

    They are those behind it where it has nothing to fix; then of those ``reading`` it one, or the square root
    of how many read it if that is more; then one more. All are chosen by hash with the entry, the same for
    every order of ``right``.
    """

    def order(example: str) -> tuple[str, str]:
        return digest_of([request.entry_digest, example]), example

    reading = set(reading)
    others = sorted(set(right) - {example_of(request.source)} - set(request.own), key=order)
    matched = [example for example in others if example in reading][: max(1, isqrt(len(reading)))]
    rest = [example for example in others if example not in matched]
    wanted = max(2, 1 + isqrt(len(reading)))
    chosen = [*request.own, *[*matched, *rest][:wanted]]
    return tuple(chosen[:MOST_CONTROLS])
