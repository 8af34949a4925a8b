"""A task in a container of its own: the files it is given, the files it leaves, and their meaning. Pure.

In: ``example.json`` (the row, with its id) and ``artifact.md`` (what was learned so far). Out:
``trajectory.jsonl`` (what the agent did, in a form that Traces reads) and ``reward.json`` (``{"reward": 0.5,
"feedback": "..."}``). The files it leaves become a recording, so that everything after it is as with traces.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, NoReturn

from combee.algo.tokens import estimate_tokens
from combee.errors import DataError, RolloutError
from combee.records import Example
from combee.tasks.dataset import (
    BOM,
    MAX_ID_CHARACTERS,
    MAX_ROW_BYTES,
    Dataset,
    add_each,
    dataset_digest,
    id_of,
)
from combee.tasks.protocol import ScoredElsewhere
from combee.tasks.traces.conversation import Row, UnreadableError
from combee.tasks.traces.outcomes import MAX_FEEDBACK
from combee.tasks.traces.read import MAX_TRACE_BYTES, recording_of, row_of
from combee.tasks.traces.recording import Recording

EXAMPLE, ARTIFACT = "example.json", "artifact.md"
TRAJECTORY, REWARD = "trajectory.jsonl", "reward.json"
PART_TOKENS = 16_000
"""most tokens of a trajectory that one reflection reads; a longer one is read in parts."""
LEFT: Mapping[str, int] = {TRAJECTORY: MAX_TRACE_BYTES, REWARD: 64 * 1024}
"""the files that a container leaves, and the most bytes that are read of each."""
MAX_SAID = 500
"""most characters of a container's last output that are recorded with a failed rollout."""
_SIGNAL = 128
_KILLED, _OUT_OF_CPU, _FILE_TOO_LARGE = _SIGNAL + 9, _SIGNAL + 24, _SIGNAL + 25


class Fault(StrEnum):
    """How a container, or an adapter's process, misbehaved on an example: the ``error`` of its trajectory."""

    TIMEOUT = "TaskTimeout"
    WROTE_TOO_MUCH = "TaskWroteTooMuch"
    KILLED = "TaskKilled"
    CRASHED = "TaskCrashed"
    NO_REWARD = "TaskNoReward"
    BAD_REWARD = "TaskBadReward"
    NO_TRAJECTORY = "TaskNoTrajectory"
    BAD_TRAJECTORY = "TaskBadTrajectory"
    RAISED = "TaskRaised"
    NO_SCORE = "TaskNoScore"
    DIED = "TaskDied"


AGAIN = frozenset({Fault.KILLED, Fault.CRASHED, Fault.DIED})
"""Rollouts that died are tried again, since a node or a neighbour may be the cause; one that ran to its end
is not."""
_FIXES: Mapping[Fault, str] = {
    Fault.TIMEOUT: "Raise timeoutSeconds, or see why it does not end",
    Fault.WROTE_TOO_MUCH: "Raise container.scratch, or write less",
    Fault.KILLED: "Mostly for memory: raise container.memory",
    Fault.CRASHED: "A rollout ends with exit code 0, whatever its reward",
    Fault.NO_REWARD: f'Write {{"reward": 0.5}} to {REWARD} in the folder that COMBEE_OUT names',
    Fault.BAD_REWARD: f'{REWARD} is like {{"reward": 0.5, "feedback": "..."}}, the reward from 0 to 1',
    Fault.NO_TRAJECTORY: f"Write what the agent did to {TRAJECTORY} in the folder that COMBEE_OUT names",
    Fault.BAD_TRAJECTORY: f"{TRAJECTORY} is one trace, or one chat message a line",
    Fault.RAISED: "See why the adapter's evaluate raises; task.initialPlaybook gives it the components "
    "that it asks for",
    Fault.NO_SCORE: "An adapter's evaluate gives a number, or None for an example that failed",
    Fault.DIED: "See why the adapter's process ends, mostly for memory",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container ended. ``code``: its exit code, or 128 plus the number of the signal that ended it."""

    code: int
    seconds: float
    stopped: Fault | None = None
    """why it was stopped; None when it ended by itself."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """the files of ``LEFT`` that exist; one byte over the limit where a file is larger."""
    output: str = ""
    """its last output, for the user alone: it may quote a row."""


def given_files(example: Example, artifact: str) -> dict[str, bytes]:
    """Return the files that a container is given, by name."""
    row = {"id": example.id, **json.loads(example.input)}
    return {
        EXAMPLE: (json.dumps(row, ensure_ascii=False) + "\n").encode(errors="replace"),
        ARTIFACT: artifact.encode(errors="replace"),
    }


def recording_left(ended: Ended, *, part_tokens: int = PART_TOKENS) -> Recording:
    """Return the recording that a container left. Raises RolloutError, whose code is a ``Fault``."""
    _refuse_end(ended)
    reward, feedback = _reward(ended)
    trajectory = ended.files.get(TRAJECTORY)
    if trajectory is None:
        fail(Fault.NO_TRAJECTORY, f"it left no {TRAJECTORY}", ended.output)
    if len(trajectory) > LEFT[TRAJECTORY]:
        fail(Fault.BAD_TRAJECTORY, f"its {TRAJECTORY} is longer than {LEFT[TRAJECTORY]:,} bytes")
    try:
        recording, _ = recording_of(_trace(trajectory), "Auto", part_tokens, Counter())
    except UnreadableError as error:
        fail(Fault.BAD_TRAJECTORY, f"its {TRAJECTORY} {error}")
    return replace(recording, score=reward, feedback=feedback)


def fail(fault: Fault, what: str, output: str = "") -> NoReturn:
    """Raise RolloutError. ``output``: the container's last words."""
    words = " ".join(output.split())[-MAX_SAID:]
    raise RolloutError(fault.value, f"{what}{f': {words}' if words else ''}", fix=_FIXES[fault])


def remedy(code: str) -> str:
    """Return what to do about rollouts that failed with this code; empty when no container is to blame."""
    return _FIXES[Fault(code)] if code in set(Fault) else ""


def may_be_tried_again(error: RolloutError) -> bool:
    """Return whether another try may end differently."""
    return error.code in AGAIN


def _refuse_end(ended: Ended) -> None:
    duration = f"after {ended.seconds:.0f} s"
    if ended.stopped is Fault.TIMEOUT or ended.code == _OUT_OF_CPU:
        fail(Fault.TIMEOUT, f"it was stopped at its timeout, {duration}", ended.output)
    if ended.stopped is Fault.WROTE_TOO_MUCH or ended.code == _FILE_TOO_LARGE:
        fail(Fault.WROTE_TOO_MUCH, f"it was stopped for the files it wrote, {duration}", ended.output)
    if ended.stopped is not None:
        fail(ended.stopped, f"it was stopped {duration}", ended.output)
    if ended.code == _KILLED:
        fail(Fault.KILLED, f"it was killed (exit code {ended.code}) {duration}", ended.output)
    if ended.code:
        fail(Fault.CRASHED, f"it ended with exit code {ended.code} {duration}", ended.output)


def _reward(ended: Ended) -> tuple[float, str]:
    data = ended.files.get(REWARD)
    if data is None:
        fail(Fault.NO_REWARD, f"it left no {REWARD}", ended.output)
    if len(data) > LEFT[REWARD]:
        fail(Fault.BAD_REWARD, f"its {REWARD} is longer than {LEFT[REWARD]:,} bytes")
    try:
        row = row_of(data)
    except UnreadableError as error:
        fail(Fault.BAD_REWARD, f"its {REWARD} {error}")
    reward, feedback = row.get("reward"), row.get("feedback", "")
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        fail(Fault.BAD_REWARD, f"its {REWARD} has no number as reward")
    if not 0 <= reward <= 1:
        fail(Fault.BAD_REWARD, f"the reward in its {REWARD} is not from 0 to 1")
    if not isinstance(feedback, str):
        fail(Fault.BAD_REWARD, f"the feedback in its {REWARD} is no text")
    return float(reward), " ".join(feedback.encode(errors="replace").decode().split())[:MAX_FEEDBACK]


def _trace(data: bytes) -> Row:
    """Return one trace from one line, or from one chat message per line."""
    rows = [row_of(line) for line in data.splitlines() if line.strip()]
    if not rows:
        raise UnreadableError("is empty")
    if len(rows) == 1 and ("messages" in rows[0] or "steps" in rows[0]):
        return rows[0]
    if all("role" in row for row in rows):
        return {"messages": rows}
    raise UnreadableError("is neither one trace nor one chat message a line")


@dataclass(frozen=True, slots=True)
class ContainerTask(ScoredElsewhere):
    """Rows are JSON objects that only the container understands. The container also scores them."""

    name: str = "Custom"
    instructions: str = ""
    answer_schema_description: str = "What the agent said last."
    unscored: ClassVar[str] = "a container scores its own rollouts"

    def read_rows(self, data: Iterable[bytes], where: str) -> Dataset:
        """Return one example per line, each a JSON object. Raises DataError (``file:line``) for other
        lines."""
        return json_rows(data, where)


def json_rows(data: Iterable[bytes], where: str, *, with_id: bool = False) -> Dataset:
    """Return one example per line, each a JSON object; ``with_id`` leaves the row's id in its input. Raises
    DataError as ``dataset.add_each`` does for other lines."""
    reader = _Rows(where, with_id)
    add_each(data, reader.add)
    return reader.dataset()


@dataclass(slots=True)
class _Rows:
    where: str
    with_id: bool = False
    examples: list[Example] = field(default_factory=list)
    line_of: dict[str, int] = field(default_factory=dict)
    """digest of the content -> line."""
    digest_of: dict[str, str] = field(default_factory=dict)
    """id -> digest of the content."""
    merged: list[int] = field(default_factory=list)

    def add(self, number: int, line: bytes) -> None:
        if len(line.rstrip(b"\r\n")) > MAX_ROW_BYTES:
            self._refuse(number, f"the row is longer than {MAX_ROW_BYTES} bytes")
        line = line.removeprefix(BOM) if number == 1 else line
        if not line.strip():
            return
        try:
            row = row_of(line)
        except UnreadableError as error:
            self._refuse(number, f"the row {error}")
        if line.lstrip().startswith(b"["):
            self._refuse(number, "the row is not a JSON object")
        own_id = {"id": row["id"]} if self.with_id and "id" in row else {}
        example_id = self._id(number, row.pop("id", None))
        if not row:
            self._refuse(number, "the row is empty")
        canonical = json.dumps(row, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(canonical.encode("ascii")).hexdigest()
        if self.digest_of.setdefault(example_id, digest) != digest:
            self._refuse(number, "its id is also the id of another row, which has other content")
        if self.line_of.setdefault(digest, number) != number:
            self.merged.append(number)
            return
        text = json.dumps({**own_id, **row}, ensure_ascii=False).encode(errors="replace").decode()
        self.examples.append(Example(example_id, text, "", digest, estimate_tokens(text)))

    def _id(self, number: int, value: Any) -> str:
        if value is None:
            return str(number)
        text = id_of(value)
        if not text:
            self._refuse(number, f"its id is no word of at most {MAX_ID_CHARACTERS} characters")
        return text

    def dataset(self) -> Dataset:
        if not self.examples:
            raise DataError("there is no row in it", where=self.where, fix="Write one JSON object a line")
        warning = (
            f"{self.where}: {len(self.merged):,} rows are identical to earlier ones and are merged with them"
        )
        warnings = (warning,) if self.merged else ()
        return Dataset(tuple(self.examples), dataset_digest(self.examples), warnings, merged=self.digest_of)

    def _refuse(self, number: int, what: str) -> NoReturn:
        raise DataError(
            what, where=f"{self.where}:{number}", fix='A row is one JSON object, such as {"maze": ...}'
        )
