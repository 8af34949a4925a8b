"""Key files: the right answers, which only the simulator reads; and finding a question in a prompt.

A key file is JSON: ``{"version": 1, "task", "topics": {topic: times asked}, "rules": {topic: {"right",
"wrong", "name"}}, "examples": {id: {"question", "target", "topic"}}}``; the id is the digest of the question.
Questions are recognised verbatim (also inside JSON strings, and with other white space) wherever they stand.

A rule's ``right`` and ``wrong`` are what lessons say after "When a question uses X,": the correct way and the
typical slip, each with one name in quotation marks. ``name`` says the topic in words, where it is no word
itself. A topic that has no rule here gets a pair of conventions with codes.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from combee.errors import DataError
from combee.sim import draws, planted, tags

_START = re.compile(r"[\n:>`\"][\s\"*\\]*")
_FIRST = re.compile(r"[\s\"*\\]*")
_LONGEST_HEAD = 100
"""Questions of one data set may begin with the same words for long."""
_WINDOW = 4_000
_FORMULA_RULES = Path(__file__).with_name("formula.json")
"""The rules of the Formula data's 50 formulas."""
_FORMULA = re.compile(r"Use formula (.*?) to answer", re.S)
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")
_SUBJECT = re.compile(r"Subject: (.+)")
_ANSWER = re.compile(r"[\s\"]*\.?\s*Answer:\s*$")


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its right answer and the topic whose rule it needs."""

    id: str
    text: str
    target: str
    topic: str
    mistake: str
    """the typical wrong answer."""


@dataclass(frozen=True, slots=True)
class QuestionMatch:
    """A known question at [start, end) of a text."""

    question: Question
    start: int
    end: int


def formula_row(context: str, target: str) -> tuple[str, str]:
    """Return (topic, question) of a Formula row. Raises ValueError for another row."""
    match = _FORMULA.search(context)
    if not match:
        raise ValueError("no 'Use formula ... to answer' in it")
    question = context.partition("Question:")[2] or context
    return " ".join(match.group(1).split()), _ANSWER.sub("", question).strip(' \n\t"*')


def planted_row(context: str, target: str) -> tuple[str, str]:
    """Return (topic, question) of a planted row. Raises ValueError for another row."""
    match = planted.QUESTION.search(context)
    if not match:
        raise ValueError("no 'Procedure P-... is applied to the input ...' in it")
    return match.group(1), match.group()


def reply_row(context: str, target: str) -> tuple[str, str]:
    """Return (topic, question) of a message to answer. Raises ValueError for another row."""
    match = _SUBJECT.match(context)
    if not match:
        raise ValueError("it does not begin with 'Subject: ...'")
    return match.group(1).strip(), context.strip()


ROWS: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "finer": tags.row,
    "formula": formula_row,
    "planted": planted_row,
    "reply": reply_row,
}
"""How to read a task's rows (context, target); a new task is a new line here and in ``params.TASK_LAWS``."""
ANY = "any"
"""The task of rows whose fields are named, of which nothing else is known."""
KINDS_PER_ROW = 0.1
"""Kinds that rows are drawn into where neither a topic nor a label groups them, by row."""


@dataclass(frozen=True, slots=True)
class FieldNames:
    """Which fields of a row hold the text that models are asked, the right answer and, if any, the topic."""

    input: str
    target: str
    topic: str | None = None


def rows_of(name: str, content: bytes) -> Iterator[tuple[str, Any]]:
    """Yield (where, row) of JSON lines, or of CSV with a header where the name ends so.

    Raises DataError, with the line, for one that is no JSON, and for what is no UTF-8.
    """
    where = name
    try:
        text = content.decode("utf-8-sig")
        if name.lower().endswith(".csv"):
            for number, row in enumerate(csv.DictReader(io.StringIO(text, newline="")), 1):
                yield f"{name}, row {number}", row
            return
        for number, line in enumerate(text.split("\n"), 1):
            where = f"{name}:{number}"
            if line.strip():
                yield where, json.loads(line)
    except (ValueError, csv.Error) as error:
        raise DataError(f"cannot be read as rows ({error})", where=where) from error


def _field(row: Any, field: str) -> str:
    value = row[field]
    if not isinstance(value, str | int | float) or not str(value).strip():
        raise ValueError(f"no text in its field {field}")
    return str(value).strip()


def build_any(names: FieldNames, data: Iterable[tuple[str, bytes]]) -> dict[str, Any]:
    """Return a key of any rows, JSONL or CSV, by the names of their fields.

    A row's topic is its field's, else its target where targets repeat (labels), else a kind that the hash of
    its text draws. Raises DataError with file and line.
    """
    read: list[tuple[str, str, str]] = []
    for name, content in data:
        for where, row in rows_of(name, content):
            try:
                topic = _field(row, names.topic) if names.topic else ""
                read.append((topic, _field(row, names.input), _field(row, names.target)))
            except (ValueError, KeyError, TypeError) as error:
                fix = f"Its fields are {', '.join(map(str, row))}." if isinstance(row, dict) else ""
                raise DataError(f"not such a row ({error})", where=where, fix=fix) from error
    labels = len({target for _, _, target in read}) <= len(read) / 2
    kinds = max(1, round(len(read) * KINDS_PER_ROW))

    def shared(topic: str, question: str, target: str) -> str:
        kind = f"kind {1 + draws.number('kind', question) % kinds}"
        return _one_line(topic or (target if labels else kind))

    return _key(ANY, ((shared(*row), *row[1:]) for row in read))


def _one_line(topic: str) -> str:
    """Return a topic as sentences may name it: short, without commas, which would end its name there."""
    return " ".join(topic.replace(",", " ").replace('"', " ").split())[:80].strip() or "rows"


def _rules(
    task: str, topics: Iterable[str], examples: Iterable[Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    if task == "finer":
        return tags.rules(topics, tags.confusions(examples))
    if task == "formula":
        written = json.loads(_FORMULA_RULES.read_text(encoding="utf-8"))
        return {topic: written[topic] for topic in topics if topic in written}
    return {}


def build(task: str, data: Iterable[tuple[str, bytes]]) -> dict[str, Any]:
    """Return a key made from JSONL files given as (name, content). Raises DataError with file and line."""
    if task not in ROWS:
        known = ", ".join(sorted(ROWS))
        raise DataError(
            f"no rules for task {task!r}", fix=f"Use one of {known}, or name fields with --input."
        )
    read: list[tuple[str, str, str]] = []
    for name, content in data:
        for where, row in rows_of(name, content):
            try:
                target = str(row["target"])
                read.append((*ROWS[task](row["context"], target), target))
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"not a {task} row ({error})", where=where) from error
    return _key(task, read)


def _key(task: str, rows: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """Return the key of rows: topic, question, target."""
    topics: Counter[str] = Counter()
    examples: dict[str, dict[str, str]] = {}
    for topic, question, target in rows:
        topics[topic] += 1
        examples[draws.digest(question)[:16]] = {"question": question, "target": target, "topic": topic}
    return {
        "version": 1,
        "task": task,
        "topics": dict(sorted(topics.items())),
        "rules": _rules(task, sorted(topics), examples.values()),
        "examples": examples,
    }


def load(path: Path) -> dict[str, Any]:
    """Return the content of a key file. Raises DataError when it is not one."""
    try:
        key = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read as a key file ({error})", where=str(path)) from error
    if not isinstance(key, dict) or key.get("version") != 1 or key.get("task") not in (*ROWS, ANY):
        raise DataError("is no key file of version 1", where=str(path), fix="Make it with `combee sim key`.")
    return key


def mistake(example: str, target: str) -> str:
    """Return the typical wrong answer to a question with a numeric answer: far off, with odd cents.

    >>> mistake("17", "2.0") != mistake("18", "2.0")
    True
    """
    try:
        value = float(target)
    except ValueError:
        return f"{target} (restated)"
    luck, cents = draws.unit("mistake", example), 11 + draws.number("cents", example) % 88
    wrong_value = value * (1.2 + 0.6 * luck) if abs(value) >= 2 else value + 1 + int(3 * luck)
    return f"{int(wrong_value)}.{cents:02d}" if int(wrong_value) or wrong_value > 0 else f"-0.{cents:02d}"


def _other(example: str, target: str, labels: list[str]) -> str:
    """Return another label than the right one, by the luck of the example."""
    others = [label for label in labels if label != target]
    return others[draws.number("mistake", example) % len(others)]


class Questions:
    """All known questions, found in a text by their beginnings."""

    def __init__(self, keys: Iterable[dict[str, Any]]) -> None:
        keys = list(keys)
        lengths = (len(row["question"]) for key in keys for row in key["examples"].values())
        self._head = min([_LONGEST_HEAD, *filter(None, lengths)])
        self._by_head: dict[str, list[Question]] = {}
        self._by_words: dict[str, Question] = {}
        self._planted: dict[str, Question] = {}
        for key in keys:
            targets = (
                sorted({row["target"] for row in key["examples"].values()}) if key["task"] == ANY else []
            )
            confused = tags.confusions(key["examples"].values()) if key["task"] == "finer" else None
            for id_, row in key["examples"].items():
                if confused is not None:
                    self._add(id_, row, tags.mistake(row["target"], row["topic"], confused))
                elif 1 < len(targets) <= len(key["examples"]) / 2:
                    self._add(id_, row, _other(id_, row["target"], targets))
                elif key["task"] != "planted":
                    self._add(id_, row, mistake(id_, row["target"]))

    def _add(self, id_: str, row: dict[str, str], wrong: str) -> None:
        question = Question(id_, row["question"], row["target"], row["topic"], wrong)
        self._by_head.setdefault(question.text[: self._head], []).append(question)
        self._by_words[_squeezed(question.text)] = question

    def __len__(self) -> int:
        return len(self._by_words)

    def last_in(self, text: str) -> QuestionMatch | None:
        """Return the last known question in a text, or None."""
        best = self._verbatim(text)
        planted_position = text.rfind("is applied to the input ")
        if planted_position >= 0 and (best is None or planted_position > best.start):
            for match in planted.QUESTION.finditer(text, max(0, planted_position - 20)):
                best = QuestionMatch(self._procedure(match), match.start(), match.end())
        return best or self._squeezed_in(text)

    def _verbatim(self, text: str) -> QuestionMatch | None:
        """Search windows from the end on, since what varies mostly stands last."""
        end, size = len(text), _WINDOW
        while end > 0:
            begin = max(0, text.rfind("\n", 0, max(0, end - size)))
            best: QuestionMatch | None = None
            starts = [match.end() for match in _START.finditer(text, begin, end)]
            if not begin and (first := _FIRST.match(text, 0, end)):
                starts.insert(0, first.end())
            for start in starts:
                for question in self._by_head.get(text[start : start + self._head], ()):
                    longer = best is None or start > best.start or len(question.text) > best.end - best.start
                    if longer and text.startswith(question.text, start):
                        best = QuestionMatch(question, start, start + len(question.text))
            if best is not None:
                return best
            end, size = begin, size * 4
        return None

    def _procedure(self, match: re.Match[str]) -> Question:
        question, topic, value = match.group(), match.group(1), int(match.group(2))
        right, wrong = planted.line(topic, "right")(value), planted.line(topic, "wrong")(value)
        return Question(draws.digest(question)[:16], question, str(right), topic, str(wrong))

    def _squeezed_in(self, text: str) -> QuestionMatch | None:
        """Search slowly, for prompts that quote the question as JSON or lay it out anew."""
        if not any(head in text for head in {head[:8] for head in self._by_head}):
            return None
        squeezed = _squeezed(text)
        for words, question in self._by_words.items():
            if words in squeezed:
                start = max(0, text.find(question.text[:8]))
                return QuestionMatch(question, start, min(len(text), start + len(question.text)))
        return None


def _squeezed(text: str) -> str:
    if "\\u" in text:
        text = _ESCAPED.sub(lambda code: chr(int(code.group(1), 16)), text)
    return " ".join(text.replace("\\n", " ").replace('\\"', '"').split())
