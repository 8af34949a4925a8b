"""What a step notes beside its calls: each rollout with its score, and each call that brought no answer.

The notes stand behind the calls in the step's call graph, a line each. Rollouts become the run's record of
rollouts; a lost call is never remembered as an answer, so that a replay has to be told of it.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from combee.clients.model.wire import Completion
from combee.errors import CombeeError, ContextLengthError, RolloutError, TransientError
from combee.records import Shown, Trajectory

_MARK = b"{"
"""what a note's line begins with; a call's is a list."""

_OF_A_MODEL: Mapping[str, type[CombeeError]] = {
    kind.code: kind for kind in (ContextLengthError, TransientError)
}


@dataclass(frozen=True, slots=True)
class RolledOut:
    """One rollout: what was asked of which example, and what it scored and used."""

    split: str
    """train, select, gate or test."""
    stage: str
    chain: int
    example: str
    repeat: int
    """which repeat of the same question it is; in the map the epoch."""
    prompt: str
    """sha256 of the text of the artifact that the agent was shown."""
    score: float
    correct: bool
    error: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    lost_tokens: int = 0
    seconds: float = 0.0
    """of the task model's calls, as the server took them."""


@dataclass(frozen=True, slots=True)
class LostCall:
    """A call that brought no answer, by its key in the memo."""

    key: str
    code: str
    what: str
    where: str = ""
    fix: str = ""
    used: dict[str, Any] | None = None
    """what a program's rollout had asked until it was lost, as one completion; None where that was nothing,
    and for a call of a model."""

    @classmethod
    def of(cls, key: str, error: CombeeError, used: Completion | None = None) -> LostCall:
        """Return the note of an error."""
        completion = None if used is None else used.to_json()
        return cls(key, error.code, error.what, error.where, error.fix, completion)

    @property
    def error(self) -> CombeeError:
        """The error as it was."""
        kind = _OF_A_MODEL.get(self.code)
        error = (
            RolloutError(self.code, self.what, where=self.where, fix=self.fix)
            if kind is None
            else kind(self.what, where=self.where, fix=self.fix)
        )
        error.used = None if self.used is None else Completion.from_json(self.used)
        return error


@dataclass(slots=True)
class Notes:
    """The notes of one step."""

    rollouts: list[RolledOut] = field(default_factory=list)
    lost: list[LostCall] = field(default_factory=list)
    used: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    """by stage and chain, what calls of the task model used since the last rollout there."""

    def rolled_out(self, trajectory: Trajectory, shown: Shown, *, split: str, stage: str, chain: int) -> None:
        """Note a rollout of the artifact ``shown`` with what its calls used."""
        repeat = trajectory.id.rpartition("@")[2]
        note = RolledOut(
            split=split,
            stage=stage,
            chain=chain,
            example=trajectory.example_id,
            repeat=int(repeat),
            prompt=hashlib.sha256(shown.text.encode()).hexdigest(),
            score=trajectory.score,
            correct=trajectory.correct,
            error=trajectory.error,
            **self.used.pop((stage, chain), {}),
        )
        self.rollouts.append(note)

    def called(self, stage: str, chain: int, **used: float) -> None:
        """Note what a call of the task model used."""
        before = self.used.get((stage, chain), {})
        self.used[stage, chain] = {name: before.get(name, 0) + amount for name, amount in used.items()}

    def take_in(self, part: Notes, first_chain: int) -> None:
        """Add the notes of a part whose chains are numbered from ``first_chain``."""
        self.rollouts += [replace(one, chain=one.chain + first_chain) for one in part.rollouts]
        self.lost += part.lost

    def encode(self) -> bytes:
        """Return the notes as JSON lines, in an order that does not depend on who answered first."""
        rollouts = sorted(self.rollouts, key=lambda one: (one.stage, one.chain, one.repeat))
        lines = [{"rollout": asdict(one)} for one in rollouts] + [{"lost": asdict(one)} for one in self.lost]
        return "".join(json.dumps(line) + "\n" for line in lines).encode()


def errors_of(lost: Iterable[LostCall]) -> dict[str, list[CombeeError]]:
    """Return the errors of lost calls by key, in the order in which they were met."""
    errors: dict[str, list[CombeeError]] = {}
    for call in lost:
        errors.setdefault(call.key, []).append(call.error)
    return errors


def is_note(line: bytes) -> bool:
    """Return whether a line of a call graph is a note."""
    return line.startswith(_MARK)


def decode_notes(data: bytes) -> Notes:
    """Return the notes in a call graph; those of an earlier version have none."""
    notes = Notes()
    for line in io.BytesIO(data):
        if is_note(line):
            note = json.loads(line)
            notes.rollouts += [RolledOut(**note["rollout"])] if "rollout" in note else []
            notes.lost += [LostCall(**note["lost"])] if "lost" in note else []
    return notes


def all_notes(parts: Iterable[bytes]) -> Notes:
    """Return the notes of several call graphs together."""
    whole = Notes()
    for part in parts:
        whole.take_in(decode_notes(part), 0)
    return whole
