"""One trace as it is kept until it is its turn: in parts already, as JSON, outside of the memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from combee.records import Example, Recorded, Trajectory, trajectory_id
from combee.tasks.traces.outcomes import RIGHT_FROM

_PAIRS = ("objectives", "records")
NOT_SAID = "How it ended was not recorded: judge by what can be seen."


@dataclass(frozen=True, slots=True)
class Recording:
    """``title``: what was asked, cut; ``answer``: the last thing the agent said, cut; ``score``: None where
    the row does not say how it ended."""

    title: str
    answer: str
    score: float | None
    feedback: str
    parts: tuple[str, ...]
    objectives: tuple[tuple[str, float], ...] = ()
    """as ``Trajectory`` has them"""
    records: tuple[tuple[str, str], ...] | None = None
    """as ``Trajectory`` has them"""

    def encode(self) -> bytes:
        """JSON; equal recordings have equal bytes."""
        lacks = {"objectives": not self.objectives, "records": self.records is None}
        row = {name: value for name, value in asdict(self).items() if not lacks.get(name)}
        return json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes) -> Recording:
    """The inverse of ``Recording.encode``."""
    row = json.loads(data)
    pairs = {name: tuple((key, value) for key, value in row[name]) for name in _PAIRS if name in row}
    return Recording(**{**row, "parts": tuple(row["parts"]), **pairs})


def trajectories(example: Example, recording: Recording, epoch: int) -> Iterator[Trajectory]:
    """The trajectory of a recording, a part at a time. All parts have one id: they are one source."""
    score, said = recording.score, recording.feedback
    for number, part in enumerate(recording.parts, start=1):
        yield Trajectory(
            id=trajectory_id(example.id, epoch),
            example_id=example.id,
            input=recording.title,
            output=part,
            answer=recording.answer,
            score=score or 0.0,
            correct=score is not None and score >= RIGHT_FROM,
            feedback=said if score is not None else f"{NOT_SAID} {said}".rstrip(),
            recorded=Recorded(number, len(recording.parts), score is not None),
            objectives=recording.objectives,
            records=recording.records,
        )
