"""The nouns of the project as plain data, shared by every layer above. No behaviour, no I/O.

Ids. An *example* id is the line number of its row unless the data gives one. A *trajectory* id is
``<example id>@<epoch>``; it is the **source** that entries of a ledger cite, and two sources are
*distinct* when their example ids differ (``example_of``). A *reflection* id is unique within one
iteration and short (``r-00017``) because models must copy it; a *lesson* id is
``<reflection id>.<k>``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Example:
    """One row of data: ``input`` is what the model reads, ``target`` what a right answer states."""

    id: str
    input: str
    target: str
    digest: str
    """sha256 hex of the row's canonical content (input and target), independent of id."""
    tokens: int = 0
    """of all that the model reads of the row, where ``input`` is only its beginning; 0: ``input`` is all."""
    cluster: str = ""
    """a hash of the name of the cluster that it belongs to; empty: it stands for itself."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """An answer to an example that a person has scored."""

    example: Example
    answer: str
    label: float
    """the person's score, in [0, 1]."""


@dataclass(frozen=True, slots=True)
class Score:
    """A task's verdict on one answer. ``value`` in [0, 1]; ``feedback`` is shown to the proposer."""

    value: float
    correct: bool
    feedback: str
    partial: float | None = None
    """partial credit in [0, 1], which is reported and decides nothing; None where the task has none."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """That a trajectory was not rolled out here: which part of the recording it is, and whether how the
    recording ended is known."""

    part: int = 1
    of: int = 1
    outcome_known: bool = True


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What an agent did on one example. A failed call has ``error`` set and counts as wrong."""

    id: str
    example_id: str
    input: str
    output: str
    answer: str
    score: float
    correct: bool
    feedback: str
    cited: tuple[str, ...] = ()
    """ids of the playbook bullets that the agent says it used."""
    error: str = ""
    partial: float | None = None
    """the score's partial credit; 0 for a failed call of a task that has it."""
    recorded: Recorded | None = None
    objectives: tuple[tuple[str, float], ...] = ()
    """(name, score) by the objectives that the task has besides the score."""
    records: tuple[tuple[str, str], ...] | None = None
    """(component, text) for each component that the task itself comments on; None where a task never does."""
    variant: str = ""
    """the name of the text that was used, where an iteration works with several; else empty."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An artifact as agents get it: its text, and (name, text) of its components where it has any."""

    text: str
    components: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Lesson:
    """One thing worth remembering, as the proposer put it."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Reflection:
    """The lesson(s) drawn from one trajectory."""

    id: str
    trajectory_id: str
    correct: bool
    text: str
    """the diagnosis: what happened and why; one paragraph."""
    lessons: tuple[Lesson, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    """(bullet id, helpful | harmful | neutral) votes on the playbook's bullets."""
    variant: str = ""
    """that of its trajectory."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A model input: messages, and the JSON schema its answer must follow (None: free text).

    What calls share (instructions, playbook) comes first and what varies last, so that a server's
    prefix cache serves it.
    """

    messages: tuple[Message, ...]
    schema_name: str = ""
    schema: dict[str, Any] | None = field(default=None, hash=False)
    max_output_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class Diversity:
    """What keeps an iteration's proposals from being all alike: part of its frozen plan."""

    temperature: float
    """the least that its proposer's answers are drawn at."""
    fresh: bool = False
    """whether it builds on what the run started from, and not on what leads."""
    weights: tuple[tuple[str, float], ...] = ()
    """(kind of edit, how likely it is drawn); empty where all are as likely."""


def example_of(source: str) -> str:
    """Return the example id inside a source (a trajectory id): ``"17"`` of ``"17@2"``."""
    return source.rpartition("@")[0] or source


def trajectory_id(example_id: str, epoch: int) -> str:
    """Return the id of a trajectory: ``"17@2"`` for example 17 in epoch 2."""
    return f"{example_id}@{epoch}"


@dataclass(frozen=True, slots=True)
class Owner:
    """An object of the API server that owns others: a run, a Playbook, a Deployment."""

    name: str
    namespace: str
    uid: str
