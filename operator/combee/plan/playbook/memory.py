"""What the operator remembers of a Playbook and of a version between two ticks: their ``status.state``.

What people see stands beside it in the status. It is lost when a Playbook is deleted, and all of it can be
done without: versions say themselves whether they are active, previous or refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from combee.algo.tally import EXPENSES, Expense, Tally
from combee.errors import BugError
from combee.plan.playbook.curve import Curve, curves_in
from combee.plan.playbook.readings import Reading

MAX_REFUSED = 500
"""The most digests; the oldest go first. Each is on its PlaybookVersion, too, which is never pruned."""
MAX_MADE = 200
MAX_HELD_OUTS = 50
"""The most heldOuts whose looks are remembered; the one looked at longest ago goes first."""
MAX_LOOKED = 200
"""The most looks of which it is remembered whose they were. A version has its own number, too, and no more
than a hundred finished runs are kept."""
NO_EXPENSES: Mapping[Expense, Tally] = MappingProxyType(dict.fromkeys(EXPENSES, Tally()))
"""What answers took where none came."""
_KEPT: Mapping[Expense, str] = {"latency": "slow", "cost": "costly"}
"""Expense -> where what answers took of it is in a version's state."""


@dataclass(frozen=True, slots=True)
class PlaybookMemory:
    """What is remembered of a Playbook. Times are seconds since 1970; 0 means not yet."""

    refused: tuple[str, ...] = ()
    """digests refused by a person or rolled back, oldest first: still refused when made anew."""
    made: tuple[str, ...] = ()
    """runs of the template that were seen, oldest first: they are not made again when they are gone."""
    request: str = ""
    """the latest ``About.learn_request`` that a run was made for."""
    scheduled: float = 0.0
    """the latest time of the schedule that was dealt with."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """place of the template's data -> its last mark (``datawatch``)."""
    change: str = ""
    """the name of the last change of data; empty while none was seen."""
    looks: tuple[tuple[str, int], ...] = ()
    """digest of a heldOut -> the number of looks at it, the one looked at last at the end."""
    looked: tuple[tuple[str, int], ...] = ()
    """key of a look (``looks``) -> its number, the last one at the end."""
    pin: str = ""
    """the digest that was pinned when the history was last written."""

    def recalling(self, digest: str) -> PlaybookMemory:
        """Return the memory with a digest of long ago, where there is room. One that went to make room does
        not come again, so that the same facts give the same memory."""
        full = digest in self.refused or len(self.refused) >= MAX_REFUSED
        return self if full else replace(self, refused=(digest, *self.refused))

    def to_json(self) -> dict[str, Any]:
        optional: dict[str, Any] = {
            "marks": dict(self.marks),
            "change": self.change,
            "looks": [list(one) for one in self.looks[-MAX_HELD_OUTS:]],
            "looked": [list(one) for one in self.looked[-MAX_LOOKED:]],
            "pin": self.pin,
        }
        return {
            "refused": list(self.refused[-MAX_REFUSED:]),
            "made": list(self.made[-MAX_MADE:]),
            "request": self.request,
            "scheduled": self.scheduled,
            **{name: value for name, value in optional.items() if value},
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> PlaybookMemory:
        """Read what ``to_json`` wrote; a fresh one from {}. BugError when it is something else."""
        try:
            return cls(
                tuple(str(digest) for digest in raw.get("refused", ())),
                tuple(str(name) for name in raw.get("made", ())),
                str(raw.get("request", "")),
                float(raw.get("scheduled", 0.0)),
                {str(key): str(mark) for key, mark in raw.get("marks", {}).items()},
                str(raw.get("change", "")),
                _counted(raw.get("looks", ())),
                _counted(raw.get("looked", ())),
                str(raw.get("pin", "")),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise _unreadable("Playbook", error) from None


def _counted(raw: Iterable[tuple[object, Any]]) -> tuple[tuple[str, int], ...]:
    return tuple((str(of), int(number)) for of, number in raw)


@dataclass(frozen=True, slots=True)
class VersionMemory:
    """What is remembered of one version. Times are seconds since 1970; 0 means not yet."""

    promoted: float = 0.0
    """when it became active last."""
    since: float = 0.0
    """when the comparison on traffic that is under way, or pauses, began."""
    tally: Tally = field(default_factory=Tally)
    """what came in that comparison."""
    expenses: Mapping[Expense, Tally] = field(default_factory=lambda: NO_EXPENSES)
    """what answers took in that comparison, where it is a watch (``watch.more_of``)."""
    reading: Reading | None = None
    """the last reading of that comparison, where it is one of mode Prometheus."""
    curves: tuple[Curve, ...] = ()
    """how the last comparison's interval of each kind came about; it is for people and decides nothing."""
    comparison: str = ""
    """the ``TrafficComparison.id`` of ``since``, ``tally`` and ``reading``; it may go on after a pause."""
    first: float = 0.0
    """when the first of its consecutive comparisons began."""
    noted: int = 0
    """the number of the last line of the history that its status has taken in; 0: it was never looked at."""
    decision: str = "Auto"
    """``spec.decision`` as the history has it."""
    pruned: bool = False
    """whether the history says that it, or its content, is to be deleted, and it is still there."""
    replaced: bool = False
    """whether its content was replaced when it was looked at last."""
    job_uids: tuple[str, ...] = ()
    """uids of the last Jobs that judged its comparison: what they brought may be read after they are gone."""

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "promoted": self.promoted,
            "since": self.since,
            "tally": self.tally.to_json(),
        }
        reading = self.reading.to_json() if self.reading is not None else None
        curves = [curve.to_json() for curve in self.curves]
        optional: dict[str, Any] = {
            "reading": reading,
            "test": self.comparison,
            "first": self.first,
            "curves": curves,
        }
        decided = self.decision if self.decision != "Auto" else ""
        optional |= {"noted": self.noted, "decision": decided, "pruned": self.pruned}
        optional |= {"replaced": self.replaced, "judges": list(self.job_uids)}
        optional |= {_KEPT[of]: took.to_json() for of, took in self.expenses.items() if took.pairs}
        return plain | {name: value for name, value in optional.items() if value}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> VersionMemory:
        """Read what ``to_json`` wrote; a fresh one from {}. BugError when it is something else."""
        try:
            tally = Tally.from_json(raw.get("tally"))
            times = float(raw.get("promoted", 0.0)), float(raw.get("since", 0.0))
            reading = Reading.from_json(raw["reading"]) if "reading" in raw else None
            began = str(raw.get("test", "")), float(raw.get("first", 0.0))
            expenses = {of: Tally.from_json(raw.get(_KEPT[of])) for of in EXPENSES}
            noted, decision = int(raw.get("noted", 0)), str(raw.get("decision", "Auto"))
            plain = (*times, tally, expenses, reading, curves_in(raw), *began)
            return cls(
                *plain,
                noted=noted,
                decision=decision,
                pruned=bool(raw.get("pruned")),
                replaced=bool(raw.get("replaced")),
                job_uids=tuple(str(uid) for uid in raw.get("judges", ())),
            )
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise _unreadable("PlaybookVersion", error) from None


def _unreadable(kind: str, error: Exception) -> BugError:
    return BugError(
        f"the state of a {kind} cannot be read ({type(error).__name__})",
        where="status.state",
        fix="Only the operator writes it: install the version that wrote it, or remove it from the status",
    )
