"""Decides which role a request asks the model to play: a table, read top to bottom, first match wins.

The shape of the requested answer decides first, then the instruction's words. Nothing depends on the caller.
A further role or base method is a further line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from combee.sim.fill import ANSWER
from combee.sim.forms import Form

LESSON = re.compile(r"lesson|insight")
JUDGE, REFLECT, AGGREGATE, ROLLOUT, CHAT, EMBED = "judge", "reflect", "aggregate", "rollout", "chat", "embed"


@dataclass(frozen=True, slots=True)
class Cue:
    """``shape`` decides by a form alone; ``words`` decide where no shape did."""

    role: str
    shape: Callable[[Form], bool]
    words: re.Pattern[str]


def _judges(form: Form) -> bool:
    scalars = form.of("boolean", "enum")
    lists = any(f.kind == "array" for f in form.fields)
    return bool(scalars) and not lists and not any(f.is_operation() or f.is_tag() for f in form.walk())


def _aggregates(form: Form) -> bool:
    for field in form.lists_of("object"):
        item = field.item
        if item is None:
            continue
        if any(f.is_operation() for f in item.fields) or item.lists_of("string", "integer", "number"):
            return True
        if len(item.of("string")) >= 3:
            return True
    return False


def _reflects(form: Form) -> bool:
    return bool(form.lists_of("object")) or any(LESSON.search(one.hint) for one in form.lists_of("string"))


def _answers(form: Form) -> bool:
    strings, lists = form.of("string"), form.of("array")
    if lists:
        return len(strings) >= 2 and len(form.lists_of("string")) == 1
    return len(strings) >= 2 and any(ANSWER.search(one.hint) for one in strings)


TABLE = (
    Cue(JUDGE, _judges, re.compile(r"\b(?:judge|grader|verdict|grade the|impartial)\b", re.I)),
    Cue(
        AGGREGATE,
        _aggregates,
        re.compile(
            (
                r"\b(?:curat|aggregat|consolidat|distil|summari[sz]e|synthesi[sz]e|merg)\w*|\bwrite a new "
                r"instruction\b"
            ),
            re.I,
        ),
    ),
    Cue(
        REFLECT,
        _reflects,
        re.compile(r"\b(?:diagnos\w+|went wrong|root cause|reflect on|lessons? (?:from|to))\b", re.I),
    ),
    Cue(ROLLOUT, _answers, re.compile(r"(?!)")),
)


def role_of(form: Form | None, instruction: str, *, asks: bool, lists: bool) -> str:
    """Return the role of a request.

    ``instruction`` is the text outside the question; ``asks``: whether it holds a known question; ``lists``:
    whether it holds lessons outside the artifact's lines.
    """
    if form is not None and form.kind == "object":
        for cue in TABLE:
            if cue.shape(form):
                return cue.role
    for cue in TABLE:
        if cue.words.search(instruction) and (cue.role != AGGREGATE or lists):
            return cue.role
    if asks:
        return ROLLOUT
    return AGGREGATE if lists else CHAT
