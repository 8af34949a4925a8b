"""The prompts. What calls share comes first, what varies last; what models and people wrote stands in lists
of one line an item, so that no text can pose as an item of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from combee.api.method_gepa import CURRENT_TEXT, SIDE_INFO
from combee.methods.base import SUMMARIZE
from combee.methods.components.lessons import backers
from combee.methods.protocol import Rendered, Update
from combee.methods.replies import quote_line
from combee.methods.schemas import Schema, ids_of, list_of, object_of, text_of
from combee.methods.verification import Page
from combee.records import Message, Prompt, Reflection, Trajectory

MAX_GIVEN_CHARS = 12_000
"""How much of an example's input a record holds: its beginning, and its end where questions often stand."""
MAX_QUOTED_CHARS = 6_000
"""How much of an answer or of its feedback a record holds."""
MAX_RECORD_CHARS = 18_000
"""the same of all that a task's own record says."""
SHARED_CHARS = 400
"""From this length on a beginning that all inputs of a call have in common is told once."""
MAX_LESSON_CHARS = 1_200
ROLLOUT_TOKENS, MAP_TOKENS, REDUCE_TOKENS = 1024, 4096, 8192
"""Most tokens of an answer, by kind of call."""
EMPTY = "(none yet)"
EVERY = "*"
"""The name, in a record's id, of all components at once: what happened concerns the whole prompt."""

MERGE_TEXTS = f"""\
An assistant works with these instructions:
=====
{CURRENT_TEXT}
=====

Several people each saw another part of its work, and each proposed new instructions. \
Merge all proposals into one:
keep every specific rule of each, and where two contradict each other the more specific one.

{SIDE_INFO}

Reply with the whole new instructions and nothing else, between two lines of ```.
"""
"""The template of a call that merges several new texts of a component."""

ROLLOUT = object_of(
    reasoning=text_of("the steps that lead to the answer", 2000),
    rules=list_of(text_of("a rule of the instructions that was used, in a few words", 160), 8),
    answer=text_of("the final answer and nothing else", 2000),
)


def lessons_schema(records: Sequence[str]) -> Schema:
    """Return the schema of the lessons of these records: as many as there are, or twice as many of a few."""
    cited = ids_of(records, 16, "id of a record it comes from")
    lesson = object_of(text=text_of("the lesson in one line", MAX_LESSON_CHARS), records=cited)
    return object_of(lessons=list_of(lesson, max(6, len(records))))


_ANSWER = """\
Reply with a JSON object of three fields: "reasoning" (your steps, kept short), \
"rules" (the rules of the instructions
that you used, an empty list if none) and "answer" (the final answer alone).
"""
_LESSONS = """\
Reply with a JSON object of one field, "lessons": a list of objects with "text" (the lesson in one line) \
and "records"
(the ids of the records it really comes from, copied exactly).
"""


def rollout_prompt(instructions: str, playbook_text: str, model_input: str) -> Prompt:
    """Ask to answer one example: what the task asks for, then the variant."""
    system = "\n\n".join(part.strip() for part in (instructions, playbook_text, _ANSWER) if part.strip())
    messages = (Message("system", system), Message("user", f"# TASK\n\n{model_input}"))
    return Prompt(messages, "rollout", ROLLOUT, ROLLOUT_TOKENS)


def record_text(trajectory: Trajectory) -> str:
    """Return what an aggregator sees of a trajectory: what was given, what came back, and the feedback."""
    feedback = trajectory.feedback.strip() or ("right" if trajectory.correct else "wrong")
    worked = " ".join(part for part in (trajectory.output.strip(), trajectory.answer.strip()) if part)
    answered = quote_line(worked or "(nothing)", MAX_QUOTED_CHARS)
    verdict = quote_line(feedback, MAX_QUOTED_CHARS)
    return f"{_GIVEN}{_both_ends(trajectory.input)} | Answered: {answered} | Feedback: {verdict}"


_GIVEN = "Given: "
_CUT = " (...) "
_PLACEHOLDER = re.compile(f"{re.escape(CURRENT_TEXT)}|{re.escape(SIDE_INFO)}")
_SENTENCE_END = re.compile(r"[^\W\d][.!?:] ")
"""After a word: what ends in a digit may be the number of what follows."""


def _both_ends(text: str) -> str:
    """Return ``text`` on one line; of one that is too long, its first third and its end."""
    line = quote_line(text, len(text))
    if len(line) <= MAX_GIVEN_CHARS:
        return line
    head = MAX_GIVEN_CHARS // 3
    return line[:head] + _CUT + line[-(MAX_GIVEN_CHARS - head - len(_CUT)) :]


def told_once(texts: Sequence[str]) -> tuple[str, list[str]]:
    """Return the whole sentences that all inputs begin with ('' where short), and the records without them.

    >>> told_once(["Given: One of A. Which?"])
    ('', ['Given: One of A. Which?'])
    """
    if len(texts) < 2:
        return "", list(texts)
    first, last = min(texts), max(texts)  # what these two begin with alike, all between them do
    alike = first[: Page.of(last, first).shared]
    alike = alike[: max((end.end() for end in _SENTENCE_END.finditer(alike)), default=0)]
    if len(alike) < len(_GIVEN) + SHARED_CHARS or not alike.startswith(_GIVEN):
        return "", list(texts)
    return alike.removeprefix(_GIVEN).strip(), [f"{_GIVEN}... {text[len(alike) :]}" for text in texts]


def records_of(trajectory: Trajectory) -> list[tuple[str, str]]:
    """Return (component, record) pairs: those that the task itself made, or one of all components."""
    if trajectory.records is None:
        return [(EVERY, record_text(trajectory))]
    return [(name, quote_line(text, MAX_RECORD_CHARS)) for name, text in trajectory.records]


def records_side(records: Sequence[tuple[str, str]], heading: str = "RECORDS") -> str:
    """Return records, (id, text) each, as a call about them lists them; what all begin with is told once."""
    alike, texts = told_once([text for _, text in records])
    items = "\n".join(f"[{id_}] {text}" for (id_, _), text in zip(records, texts, strict=True))
    begun = f"What was given begins alike in all of them: {alike}\n\n" if alike else ""
    return f"# {heading} ({len(records)})\n\n{begun}{items}"


def lessons_prompt(
    shown: Rendered, records: Sequence[tuple[str, str]], template: str, heading: str = "RECORDS"
) -> Prompt:
    """Ask about records, (id, text) each, for lessons that cite them."""
    request = request_of(template, shown, records_side(records, heading))
    schema = lessons_schema([id_ for id_, _ in records])
    return Prompt((Message("user", f"{request}\n\n{_LESSONS}"),), "lessons", schema, MAP_TOKENS)


def request_of(template: str, shown: Rendered, side: str) -> str:
    """Return a template with the text of today and what it is to be improved by."""
    return fill(template, current=shown.text.strip() or EMPTY, side=side).strip()


def fill(template: str, *, current: str, side: str) -> str:
    """Return the template with both put in, in one pass; what is put in is not searched for placeholders.

    >>> fill("<curr_param>: <side_info>", current="<side_info>", side="x")
    '<side_info>: x'
    """
    values = {CURRENT_TEXT: current, SIDE_INFO: side}
    return _PLACEHOLDER.sub(lambda match: values[match.group()], template)


def summary_prompt(reflections: Sequence[Reflection]) -> Prompt:
    """Ask to bring records, or summaries of some, down to one short text."""
    items = "\n".join(f"[{one.id}] {' '.join(lesson.text for lesson in one.lessons)}" for one in reflections)
    messages = (Message("system", SUMMARIZE), Message("user", f"# RECORDS ({len(reflections)})\n\n{items}"))
    return Prompt(messages, "summary", None, ROLLOUT_TOKENS)


def learned_side(updates: Sequence[Update]) -> str:
    """Return what a call that writes a component anew is given: lessons, or proposals of whole texts."""
    proposals = [one for one in updates if one.op == "UPDATE"]
    if proposals:
        texts = (f"## Proposal {k}\n\n{one.text}" for k, one in enumerate(proposals, start=1))
        return "\n\n".join([f"# PROPOSALS ({len(proposals)})", *texts])
    return "\n".join([f"# LESSONS ({len(updates)})", "", *map(lesson_line, updates)])


def lesson_line(lesson: Update) -> str:
    """Return a lesson as a call is given it, with how many records back it."""
    count = backers(lesson)
    return f"- {quote_line(lesson.text, MAX_LESSON_CHARS)} ({count} record{'' if count == 1 else 's'})"


def narrowed(reflection: Reflection, component: str) -> Reflection:
    """Return the reflection with its records for one component and for all of them; without any where it has
    none."""
    own = (f"{reflection.id}.{component}", f"{reflection.id}.{EVERY}")
    records = (lesson for lesson in reflection.lessons if lesson.id in own and lesson.text)
    return replace(reflection, lessons=tuple(records))


def record_of(reflection: Reflection, component: str) -> str:
    """Return what a reflection says of one component; empty where it says nothing."""
    return " ".join(lesson.text for lesson in narrowed(reflection, component).lessons)
