"""A task that an adapter of the gepa package rolls out and scores: its requests and its replies. Pure.

An adapter works on one example at a time: ``evaluate([row], candidate)``, then ``make_reflective_dataset``
for each component. Its reply becomes a recording, so that everything after it is as with a container.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from combee.errors import ManifestError
from combee.records import Example, Shown
from combee.tasks.container import Fault, fail, json_rows
from combee.tasks.dataset import Dataset
from combee.tasks.protocol import ScoredElsewhere
from combee.tasks.traces.conversation import whole
from combee.tasks.traces.read import MAX_ANSWER, MAX_TITLE, shortened
from combee.tasks.traces.recording import Recording

WHERE = "spec.task.custom.adapter"
ONE_COMPONENT = "instructions"
"""The component's name when the artifact is one text."""


@dataclass(frozen=True, slots=True)
class AdapterTask(ScoredElsewhere):
    """Rows are JSON objects that only the adapter understands. The adapter also scores them."""

    name: str = "Custom"
    instructions: str = ""
    answer_schema_description: str = "What the adapter's program put out."
    unscored: ClassVar[str] = "an adapter scores its own rollouts"

    def read_rows(self, data: Iterable[bytes], where: str) -> Dataset:
        """Return one example per line, each a JSON object. Raises DataError (``file:line``) for other
        lines."""
        return json_rows(data, where, with_id=True)


def candidate_of(shown: Shown) -> dict[str, str]:
    """Return the adapter's candidate: texts by component."""
    return dict(shown.components) or {ONE_COMPONENT: shown.text}


def asked_of(example: Example, shown: Shown, *, reflected: bool) -> dict[str, Any]:
    """Return the request to an adapter's process."""
    return {"row": json.loads(example.input), "candidate": candidate_of(shown), "reflected": reflected}


def recording_said(example: Example, reply: Mapping[str, Any], factory: str) -> Recording:
    """Return the recording in the reply of an adapter's process.

    Raises RolloutError (a ``Fault``) where this example failed, and ManifestError where the adapter breaks
    the protocol, which would fail on every other example, too.
    """
    if "broken" in reply:
        raise ManifestError(
            f"{factory}: {reply['broken']}", where=WHERE, fix="See gepa's GEPAAdapter for what an adapter is"
        )
    if "late" in reply:
        fail(Fault.TIMEOUT, f"it was ended at its timeout, after {reply['late']:.0f} s")
    if "died" in reply:
        fail(Fault.DIED, f"its process ended with exit code {reply['died']}", str(reply.get("words", "")))
    if "raised" in reply:
        fail(Fault.RAISED, f"evaluate raised {reply['raised']}", str(reply.get("words", "")))
    score = reply["score"]
    if score is None:
        fail(Fault.NO_SCORE, "evaluate gave it no score")
    if not 0 <= score <= 1:
        raise ManifestError(
            f"{factory}: evaluate gave the score {score:g}",
            where=WHERE,
            fix="Scores are from 0 to 1: scale them in a factory of your own",
        )
    records = tuple((name, text) for name, rows in reply["records"].items() if (text := _text(rows)))
    return Recording(
        title=shortened(_question_in(reply["records"]), MAX_TITLE),
        answer=shortened(reply["output"], MAX_ANSWER),
        score=float(score),
        feedback="",
        parts=("\n\n".join(dict.fromkeys(text for _, text in records)),),
        objectives=tuple(sorted((name, float(value)) for name, value in reply["objectives"].items())),
        records=records,
    )


def _question_in(records: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the first field of the first record, which by convention is the question."""
    first = next((row for rows in records.values() for row in rows if row), {})
    return next((_flat(value) for value in first.values()), "")


def _text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the records of one component as a model reads them: one field per line."""
    return "\n\n".join("\n".join(f"{name}: {_flat(value)}" for name, value in row.items()) for row in rows)


def _flat(value: Any) -> str:
    """Return a value as text; a compound value becomes its parts, each with its name.

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
