"""The board that one decision is worked out on: each version's status so far, and what happened on the way.

A board lives within one call of ``decide_playbook``. The steps of a decision read it and write on it; what
stands on it in the end becomes the plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from combee.algo.verdict import Judgement
from combee.api.common import one_line
from combee.api.playbook_status import (
    HistoryEntry,
    HistoryLine,
    PlaybookStatus,
    RefusedBy,
    Thresholds,
    Trail,
    Verdict,
    VersionPhase,
    VersionStatus,
)
from combee.plan.playbook.heldout import held_out_of
from combee.plan.playbook.memory import PlaybookMemory, VersionMemory
from combee.plan.playbook.serving import Version
from combee.plan.playbook.thresholds import policy_of, thresholds_of
from combee.plan.playbook.trail import appended
from combee.plan.playbook.types import About, Happened, PlaybookSeen, VersionSeen

MAX_HISTORY = 20
MAX_SENTENCE = 500
"""The most bytes of a sentence."""
By = Literal["Gates", "Decision", "Pin", "Rollback"]
SHORT_HISTORY: tuple[Any, ...] = ("Promoted", "RolledBack", "Refused", "Inconclusive", "Restarted")
"""What the status shows of the history: ``HistoryEntry.event``."""


@dataclass(slots=True)
class Record:
    """One version: as seen, and its status and memory as they will be."""

    seen: VersionSeen
    status: VersionStatus
    memory: VersionMemory

    @property
    def digest(self) -> str:
        return self.seen.digest

    @property
    def short(self) -> str:
        """Its first twelve digits, for sentences."""
        return self.digest[:12]

    @property
    def phase(self) -> VersionPhase:
        return self.status.phase

    @property
    def age(self) -> tuple[str, float, str]:
        """A key by which the later of two versions is greater. Times of creation are whole seconds: of two
        made in one second, the one that was looked at later."""
        look = self.status.look
        return self.seen.created, math.inf if look is None else look.number, self.digest

    def update(self, **changed: Any) -> None:
        self.status = self.status.model_copy(update=changed)

    def remember(self, **changed: Any) -> None:
        self.memory = replace(self.memory, **changed)

    def served(self) -> Version:
        """Return the version as the serving rule reads it."""
        return Version(
            digest=self.digest,
            decision=self.seen.spec.decision,
            phase=str(self.phase),
            refused_by=self.status.refused_by,
            created=self.seen.created,
            config_map=self.seen.spec.config_map_name,
        )


@dataclass(slots=True)
class Board:
    """Everything that a decision reads and writes."""

    about: About
    before: PlaybookStatus
    seen: PlaybookSeen
    memory: PlaybookMemory
    thresholds: Thresholds
    records: dict[str, Record]
    """the versions, by digest."""
    active: str = ""
    previous: str = ""
    candidate: str = ""
    held_out_digest: str = ""
    history: list[HistoryEntry] = field(default_factory=list)
    trail: Trail = field(default_factory=Trail)
    unsettled: dict[str, list[HistoryLine]] = field(default_factory=dict)
    """digest of a version -> the lines about it that were written while its own status was not: what they
    tell of is decided again."""
    events: list[Happened] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    """times, in seconds since 1970, at which something may change by itself."""

    @classmethod
    def of(cls, about: About, status: PlaybookStatus, seen: PlaybookSeen) -> Board:
        """Return the board at the beginning, with what the statuses say."""
        versions = [v for v in seen.versions if v.spec.playbook_ref.name == about.name]
        records = {
            v.digest: Record(v, v.status, VersionMemory.from_json(v.status.state))
            for v in sorted(versions, key=lambda v: (v.created, v.name), reverse=True)
        }
        return cls(
            about=about,
            before=status,
            seen=seen,
            memory=PlaybookMemory.from_json(status.state),
            thresholds=thresholds_of(about.spec),
            records=records,
            active=status.active_digest,
            previous=status.previous_digest,
            held_out_digest=status.held_out_digest,
            history=list(status.history),
            trail=status.trail or Trail(),
            unsettled={
                digest: [
                    line
                    for line in (status.trail.pending if status.trail is not None else ())
                    if line.digest == digest and line.number > record.memory.noted
                ]
                for digest, record in records.items()
            },
        )

    @property
    def now(self) -> str:
        """The time of this tick as the API writes times."""
        return self.about.when(self.seen.now)

    @property
    def pinned(self) -> str:
        """``spec.version.pinnedDigest``."""
        return self.about.spec.version.pinned_digest or ""

    @property
    def compared_on(self) -> str:
        """The digest of the heldOut that versions are compared on; empty while there is none."""
        given, active = self.about.spec.held_out.digest or self.held_out_digest, self.get(self.active)
        return given or (held_out_of(active.seen) if active is not None else "")

    def latest_first(self) -> Iterator[Record]:
        return iter(sorted(self.records.values(), key=lambda record: record.age, reverse=True))

    def get(self, digest: str) -> Record | None:
        return self.records.get(digest)

    def opaque(self, digest: str) -> bool:
        """Return whether a digest's version is there but cannot be read, so that nothing of it is known."""
        unread = bool(digest) and digest not in self.records
        return unread and any(one.digest == digest for one in self.seen.opaque)

    def note(self, event: str, digest: str, message: str, *, by: str = "", warn: bool = False) -> None:
        """Say what happened: in the history, and as an event."""
        if not self.record_line(event, digest, message, by=by):
            return
        if event in SHORT_HISTORY:
            entry = HistoryEntry(time=self.now, event=event, digest=digest, by=by, message=message)
            self.history = [*self.history, entry][-MAX_HISTORY:]
        self.events.append(Happened("Warning" if warn else "Normal", event, message, digest))

    def record_line(self, event: str, digest: str, message: str, *, by: str = "", time: str = "") -> bool:
        """Add a line to the history; return whether it is a new one.

        ``time``: when it happened, where that is not now.
        """
        record = self.get(digest)
        line = HistoryLine(
            time=time or self.now,
            event=event,
            digest=digest,
            by=by,
            who=self._who(record, by),
            policy=self._policy(record),
            message=one_line(message, MAX_SENTENCE),
        )
        # This was decided again after a crash or a conflict between two writes: it happened once.
        written = next((old for old in self.unsettled.get(digest, ()) if _is_again(line, old)), None)
        if written is not None:
            self.unsettled[digest].remove(written)
            return False
        self.trail = appended(self.trail, line)
        return True

    def _who(self, record: Record | None, by: str) -> str:
        if by == "Pin":
            return self.about.pinned_by
        return record.seen.decided_by if by == "Decision" and record is not None else ""

    def _policy(self, record: Record | None) -> str:
        frozen = record.status.thresholds if record is not None else None
        return one_line(policy_of(self.about.spec, frozen or self.thresholds), MAX_SENTENCE)

    def refuse(self, record: Record, by: RefusedBy, reason: str) -> None:
        """Refuse a version: it is not active any more, and will not be unless it is named."""
        record.update(phase=VersionPhase.REFUSED, refused_by=by, message=reason, test=None)
        if by in ("Decision", "Rollback"):
            others = tuple(digest for digest in self.memory.refused if digest != record.digest)
            self.memory = replace(self.memory, refused=(*others, record.digest))
        self.note("Refused", record.digest, f"{record.short} is refused: {reason}", by=by, warn=True)


def _is_again(line: HistoryLine, old: HistoryLine) -> bool:
    """Return whether a line tells of what an older one tells of. The time until which a canary goes on, which
    is in its message, is another one when it is begun again."""
    return (line.event, line.by, line.policy) == (old.event, old.by, old.policy)


def verdict_of(judgement: Judgement, against: str = "") -> Verdict:
    """Return a judgement as a status shows it."""
    return Verdict(
        outcome=judgement.outcome,
        reason=judgement.reason,
        message=judgement.message,
        score=_short(judgement.score),
        gain=_short(judgement.gain),
        low=_short(judgement.low),
        high=_short(judgement.high),
        shrunk_gain=_short(judgement.shrunk_gain),
        samples=judgement.samples,
        needed=judgement.needed,
        against=against,
    )


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
