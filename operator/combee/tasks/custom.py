"""Loads a user's task, ``module:Class``, and checks it against the protocol.

Loading it runs its code with all the rights of the process, so it is loaded only where nothing but the run
itself is at stake. An exception or a result that breaks the protocol becomes a ManifestError that names the
class, the method and the exception, and never quotes the row.
"""

from __future__ import annotations

import importlib
import math
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from combee.errors import CombeeError, ManifestError
from combee.records import Example, Score
from combee.tasks.dataset import Dataset
from combee.tasks.protocol import Task

WHERE = "spec.task.custom.class"
METHODS = ("read_rows", "model_input", "parse_answer", "score")
TEXTS = ("instructions", "answer_schema_description")
MAX_FEEDBACK = 4000
"""most characters kept of a score's feedback."""
_MAX_MESSAGE = 300

Result = TypeVar("Result")


def load_task(path: str, name: str = "Custom") -> Task:
    """Return an object of the class ``module:Class``, created without arguments and checked at every call.

    ``name`` is the task's type.

    Raises ManifestError when the module or class is missing, when importing or creating it fails, or when it
    lacks a part of the protocol.
    """
    module_name, _, class_name = path.partition(":")
    task: Any = _checked_call(path, "__init__", _class(path, module_name, class_name))
    missing = [part for part in METHODS if not callable(getattr(task, part, None))]
    if missing:
        raise _breach(f"{path} has no method {', '.join(missing)}")
    for part in TEXTS:
        if not isinstance(_checked_call(path, part, partial(getattr, task, part, None)), str):
            raise _breach(f"{path} has no text {part}")
    return _CheckedTask(path, task, name)


def _class(path: str, module_name: str, class_name: str) -> Any:
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if missing == module_name or module_name.startswith(f"{missing}."):
            raise ManifestError(
                f"there is no module {module_name} here",
                where=WHERE,
                fix="In a cluster it must be in custom.image; on a laptop on PYTHONPATH",
            ) from None
        raise _raised(path, "importing it", error) from None
    except (Exception, SystemExit) as error:
        raise _raised(path, "importing it", error) from None
    task_class = getattr(module, class_name, None)
    if not isinstance(task_class, type):
        article = "no" if task_class is None else "something that is no class called"
        raise _breach(f"the module {module_name} has {article} {class_name}")
    return task_class


@dataclass(frozen=True, slots=True)
class _CheckedTask:
    """A ``Task`` around the user's object: wrong types and exceptions end the step and name their origin."""

    path: str
    task: Any
    name: str

    @property
    def instructions(self) -> str:
        return self._text("instructions", lambda: self.task.instructions)

    @property
    def answer_schema_description(self) -> str:
        return self._text("answer_schema_description", lambda: self.task.answer_schema_description)

    def read_rows(self, data: Iterable[bytes], where: str) -> Dataset:
        rows = _checked_call(self.path, "read_rows", lambda: self.task.read_rows(data, where))
        if not isinstance(rows, Dataset) or not rows.examples:
            raise _breach(f"{self.path}.read_rows must return a Dataset with examples")
        ids = {example.id for example in rows.examples}
        if len(ids) != len(rows.examples) or not all(
            isinstance(example_id, str) and example_id for example_id in ids
        ):
            raise _breach(f"{self.path}.read_rows must give each example an id of its own")
        return rows

    def model_input(self, example: Example) -> str:
        return self._text("model_input", lambda: self.task.model_input(example))

    def parse_answer(self, text: str) -> str:
        return self._text("parse_answer", lambda: self.task.parse_answer(text))

    def score(self, answer: str, example: Example) -> Score:
        score = _checked_call(self.path, "score", lambda: self.task.score(answer, example))
        if not isinstance(score, Score) or not _is_share(score.value) or not isinstance(score.feedback, str):
            raise _breach(
                f"{self.path}.score must return a Score with a value from 0 to 1 and a feedback text"
            )
        if score.partial is not None and not _is_share(score.partial):
            raise _breach(f"{self.path}.score must return a partial credit from 0 to 1, or None")
        return Score(float(score.value), bool(score.correct), score.feedback[:MAX_FEEDBACK], score.partial)

    def _text(self, method: str, call: Callable[[], Any]) -> str:
        text = _checked_call(self.path, method, call)
        if not isinstance(text, str):
            raise _breach(f"{self.path}.{method} must return text, not {type(text).__name__}")
        return text


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1


def _checked_call(path: str, method: str, call: Callable[[], Result]) -> Result:
    try:
        return call()
    except CombeeError:
        raise
    except (Exception, SystemExit) as error:
        raise _raised(path, method, error) from None


def _raised(path: str, method: str, error: BaseException) -> ManifestError:
    """Return an error with the type of an exception and the line that raised it. The exception's message may
    quote a row, so only an import's is included."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    message = f": {str(error)[:_MAX_MESSAGE]}" if isinstance(error, ImportError | SyntaxError) else ""
    return ManifestError(
        f"{path}: {method} raised {type(error).__name__}{place}{message}",
        where=WHERE,
        fix="Mend the class; a task raises DataError for unfit rows and nothing else",
    )


def _breach(what: str) -> ManifestError:
    return ManifestError(what, where=WHERE, fix="See combee.tasks.protocol.Task for what a task is")
