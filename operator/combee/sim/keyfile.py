"""Key files: the right answers, which only the simulator reads; and finding a question in a prompt.

A key file is JSON: ``{"version": 1, "task", "topics": {topic: times asked}, "examples": {id: {"question",
"target", "topic"}}}``; the id is the digest of the question. Questions are recognised verbatim
(also inside JSON strings, and with other white space) wherever they stand.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from combee.errors import DataError
from combee.sim import draws, planted, tags

_START = re.compile(r"(?:^|[\n:>`\"])[\s\"*\\]*")
_LONGEST_HEAD = 100
"""Questions of one data set may begin with the same words for long."""
_WINDOW = 4_000
_FORMULA = re.compile(r"Use formula (.*?) to answer", re.S)
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")
_ANSWER = re.compile(r"[\s\"]*\.?\s*Answer:\s*$")


@dataclass(frozen=True, slots=True)
class Known:
    """One question with its right answer and the topic whose rule it needs."""

    id: str
    question: str
    target: str
    topic: str
    mistake: str
    """the typical wrong answer."""


@dataclass(frozen=True, slots=True)
class Found:
    """A question found at [start, end) of a text."""

    known: Known
    start: int
    end: int


def formula_row(context: str, target: str) -> tuple[str, str]:
    """(topic, question) of a Formula row; ValueError when it is none."""
    named = _FORMULA.search(context)
    if not named:
        raise ValueError("no 'Use formula ... to answer' in it")
    question = context.partition("Question:")[2] or context
    return " ".join(named.group(1).split()), _ANSWER.sub("", question).strip(' \n\t"*')


def planted_row(context: str, target: str) -> tuple[str, str]:
    """(topic, question) of a planted row; ValueError when it is none."""
    found = planted.QUESTION.search(context)
    if not found:
        raise ValueError("no 'Procedure P-... is applied to the input ...' in it")
    return found.group(1), found.group()


ROWS: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "finer": tags.row,
    "formula": formula_row,
    "planted": planted_row,
}
"""How a task's rows (context, target) are read; a new task is a new line here and in ``params.TASK_LAWS``."""


def build(task: str, data: Iterable[tuple[str, bytes]]) -> dict[str, Any]:
    """A key from JSONL files given as (name, content). Raises DataError naming file and line."""
    if task not in ROWS:
        raise DataError(f"no rules for task {task!r}", fix=f"Use one of {', '.join(sorted(ROWS))}.")
    topics: Counter[str] = Counter()
    examples: dict[str, dict[str, str]] = {}
    for name, content in data:
        for number, line in enumerate(content.decode("utf-8-sig").splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                target = str(row["target"])
                topic, question = ROWS[task](row["context"], target)
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"not a {task} row ({error})", where=f"{name}:{number}") from error
            topics[topic] += 1
            examples[draws.digest(question)[:16]] = {"question": question, "target": target, "topic": topic}
    return {"version": 1, "task": task, "topics": dict(sorted(topics.items())), "examples": examples}


def load(path: Path) -> dict[str, Any]:
    """Read a key file. Raises DataError when it is none."""
    try:
        key = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read as a key file ({error})", where=str(path)) from error
    if not isinstance(key, dict) or key.get("version") != 1 or key.get("task") not in ROWS:
        raise DataError("is no key file of version 1", where=str(path), fix="Make it with `combee sim key`.")
    return key


def mistake(example: str, target: str) -> str:
    """The typical wrong answer to a question whose right one is a number: far off, with odd cents.

    >>> mistake("17", "2.0") != mistake("18", "2.0")
    True
    """
    try:
        value = float(target)
    except ValueError:
        return f"{target} (restated)"
    luck, cents = draws.unit("mistake", example), 11 + draws.number("cents", example) % 88
    off = value * (1.2 + 0.6 * luck) if abs(value) >= 2 else value + 1 + int(3 * luck)
    return f"{int(off)}.{cents:02d}" if int(off) or off > 0 else f"-0.{cents:02d}"


class Questions:
    """All known questions, found in a text by their beginnings."""

    def __init__(self, keys: Iterable[dict[str, Any]]) -> None:
        keys = list(keys)
        lengths = (len(row["question"]) for key in keys for row in key["examples"].values())
        self._head = min([_LONGEST_HEAD, *filter(None, lengths)])
        self._by_head: dict[str, list[Known]] = {}
        self._by_words: dict[str, Known] = {}
        self._planted: dict[str, Known] = {}
        for key in keys:
            confused = tags.confusions(key["examples"].values()) if key["task"] == "finer" else None
            for id_, row in key["examples"].items():
                if confused is not None:
                    self._add(id_, row, tags.mistake(row["target"], row["topic"], confused))
                elif key["task"] != "planted":
                    self._add(id_, row, mistake(id_, row["target"]))

    def _add(self, id_: str, row: dict[str, str], wrong: str) -> None:
        known = Known(id_, row["question"], row["target"], row["topic"], wrong)
        self._by_head.setdefault(known.question[: self._head], []).append(known)
        self._by_words[_squeezed(known.question)] = known

    def __len__(self) -> int:
        return len(self._by_words)

    def last_in(self, text: str) -> Found | None:
        """The last known question in a text, or None."""
        best = self._verbatim(text)
        planted_at = text.rfind("is applied to the input ")
        if planted_at >= 0 and (best is None or planted_at > best.start):
            for found in planted.QUESTION.finditer(text, max(0, planted_at - 20)):
                best = Found(self._procedure(found), found.start(), found.end())
        return best or self._squeezed_in(text)

    def _verbatim(self, text: str) -> Found | None:
        """Looks at windows from the end on, since what varies mostly stands last."""
        end, size = len(text), _WINDOW
        while end > 0:
            begin = max(0, text.rfind("\n", 0, max(0, end - size)))
            best: Found | None = None
            for place in _START.finditer(text, begin, end):
                start = place.end()
                for known in self._by_head.get(text[start : start + self._head], ()):
                    longer = best is None or start > best.start or len(known.question) > best.end - best.start
                    if longer and text.startswith(known.question, start):
                        best = Found(known, start, start + len(known.question))
            if best is not None:
                return best
            end, size = begin, size * 4
        return None

    def _procedure(self, found: re.Match[str]) -> Known:
        question, topic, value = found.group(), found.group(1), int(found.group(2))
        right, wrong = planted.line(topic, "right")(value), planted.line(topic, "wrong")(value)
        return Known(draws.digest(question)[:16], question, str(right), topic, str(wrong))

    def _squeezed_in(self, text: str) -> Found | None:
        """The slow way, for prompts that quote the question as JSON or lay it out anew."""
        if not any(head in text for head in {head[:8] for head in self._by_head}):
            return None
        squeezed = _squeezed(text)
        for words, known in self._by_words.items():
            if words in squeezed:
                start = max(0, text.find(known.question[:8]))
                return Found(known, start, min(len(text), start + len(known.question)))
        return None


def _squeezed(text: str) -> str:
    if "\\u" in text:
        text = _ESCAPED.sub(lambda code: chr(int(code.group(1), 16)), text)
    return " ".join(text.replace("\\n", " ").replace('\\"', '"').split())
