"""A task that an adapter of the gepa package rolls out and scores: what it is asked, and what its answers mean. Pure.

An adapter works on one example at a time: ``evaluate([row], candidate)``, then ``make_reflective_dataset`` for each
component. What it says is a recording, so that everything after it is as with a container.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from combee.errors import BugError, ManifestError
from combee.records import Example, Score, Shown
from combee.tasks.container import Fault, fail, json_rows
from combee.tasks.dataset import Dataset
from combee.tasks.traces.conversation import whole
from combee.tasks.traces.recording import Recording

WHERE = "spec.task.custom.adapter"
ONE_COMPONENT = "instructions"
"""The component's name where what is learned is one text."""
MAX_TITLE, MAX_ANSWER = 1200, 2000
"""characters of a row and of what came of it that a trajectory keeps"""


@dataclass(frozen=True, slots=True)
class AdapterTask:
    """Rows are JSON objects that only the adapter understands; it is the one that scores."""

    name: str = "Custom"
    instructions: str = ""
    answer_schema_description: str = "What the adapter's program put out."

    def read_rows(self, data: Iterable[bytes], where: str) -> Dataset:
        """One example a line, a JSON object. DataError (``file:line``) for what is none."""
        return json_rows(data, where, with_id=True)

    def model_input(self, example: Example) -> str:
        """The row."""
        return example.input

    def parse_answer(self, text: str) -> str:
        """The text without blanks around it."""
        return text.strip()

    def score(self, answer: str, example: Example) -> Score:
        """BugError: the adapter scores."""
        raise BugError("an adapter scores its own rollouts", where=self.name)


def candidate_of(shown: Shown) -> dict[str, str]:
    """What the adapter calls a candidate: texts by component."""
    return dict(shown.components) or {ONE_COMPONENT: shown.text}


def asked_of(example: Example, shown: Shown, *, reflected: bool) -> dict[str, Any]:
    """What an adapter's process is asked."""
    return {"row": json.loads(example.input), "candidate": candidate_of(shown), "reflected": reflected}


def recording_said(example: Example, said: Mapping[str, Any], factory: str) -> Recording:
    """What an adapter's process answered.

    RolloutError (a ``Fault``) where this example failed; ManifestError where the adapter does not keep to the
    protocol, which no other example would mend.
    """
    if "broken" in said:
        raise ManifestError(
            f"{factory}: {said['broken']}", where=WHERE, fix="See gepa's GEPAAdapter for what an adapter is"
        )
    if "late" in said:
        fail(Fault.TIMEOUT, f"it was ended at its timeout, after {said['late']:.0f} s")
    if "died" in said:
        fail(Fault.DIED, f"its process ended with exit code {said['died']}", str(said.get("words", "")))
    if "raised" in said:
        fail(Fault.RAISED, f"evaluate raised {said['raised']}", str(said.get("words", "")))
    score = said["score"]
    if score is None:
        fail(Fault.NO_SCORE, "evaluate gave it no score")
    if not 0 <= score <= 1:
        raise ManifestError(
            f"{factory}: evaluate gave the score {score:g}",
            where=WHERE,
            fix="Scores are from 0 to 1: scale them in a factory of your own",
        )
    records = tuple((name, text) for name, rows in said["records"].items() if (text := _text(rows)))
    return Recording(
        title=_short(_given(said["records"]), MAX_TITLE),
        answer=_short(said["output"], MAX_ANSWER),
        score=float(score),
        feedback="",
        parts=("\n\n".join(dict.fromkeys(text for _, text in records)),),
        objectives=tuple(sorted((name, float(value)) for name, value in said["objectives"].items())),
        records=records,
    )


def _given(records: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The first field of the first record, by custom what was asked."""
    first = next((row for rows in records.values() for row in rows if row), {})
    return next((_flat(value) for value in first.values()), "")


def _text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The records of one component as a model reads them: a field a line."""
    return "\n\n".join("\n".join(f"{name}: {_flat(value)}" for name, value in row.items()) for row in rows)


def _flat(value: Any) -> str:
    """A value as text: of what has parts, the parts, each with its name.

    >>> _flat({"question": "2 + 2?", "hints": ["add", "carry"]})
    '(question) 2 + 2? (hints) add; carry'
    """
    if isinstance(value, Mapping):
        return " ".join(f"({name}) {_flat(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return "; ".join(_flat(inner) for inner in value)
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return whole(str(value))


def _short(text: str, characters: int) -> str:
    text = whole(text).strip()
    return text if len(text) <= characters else f"{text[:characters]} [...]"
