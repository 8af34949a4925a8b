"""One trace as it is stored until it is read: as JSON, already in parts, outside of memory."""

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
    """``title``: what was asked, cut; ``answer``: the agent's last message, cut; ``score``: None where the
    row does not say how it ended."""

    title: str
    answer: str
    score: float | None
    feedback: str
    parts: tuple[str, ...]
    objectives: tuple[tuple[str, float], ...] = ()
    """as in ``Trajectory``."""
    records: tuple[tuple[str, str], ...] | None = None
    """as in ``Trajectory``."""

    def encode(self) -> bytes:
        """Return the recording as JSON; equal recordings have equal bytes."""
        absent = {"objectives": not self.objectives, "records": self.records is None}
        row = {name: value for name, value in asdict(self).items() if not absent.get(name)}
        return json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes) -> Recording:
    """Return the recording that ``Recording.encode`` wrote."""
    row = json.loads(data)
    pairs = {name: tuple((key, value) for key, value in row[name]) for name in _PAIRS if name in row}
    return Recording(**{**row, "parts": tuple(row["parts"]), **pairs})


def trajectories(example: Example, recording: Recording, epoch: int) -> Iterator[Trajectory]:
    """Yield the trajectory of a recording, one part at a time. All parts have one id: they are one source."""
    score, feedback = recording.score, recording.feedback
    for number, part in enumerate(recording.parts, start=1):
        yield Trajectory(
            id=trajectory_id(example.id, epoch),
            example_id=example.id,
            input=recording.title,
            output=part,
            answer=recording.answer,
            score=score or 0.0,
            correct=score is not None and score >= RIGHT_FROM,
            feedback=feedback if score is not None else f"{NOT_SAID} {feedback}".rstrip(),
            recorded=Recorded(number, len(recording.parts), score is not None),
            objectives=recording.objectives,
            records=recording.records,
        )
