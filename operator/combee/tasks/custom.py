"""A task of the user's own, ``module:Class``, kept to the protocol.

Loading it runs its code, with everything that the process may do: so it is loaded only where nothing but
the run itself is at stake. What it raises or returns against the protocol is a ManifestError that names
the class, the method and the exception, and never the row.
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
"""characters of a score's feedback that are kept."""
_MAX_SAID = 300

Result = TypeVar("Result")


def load_task(path: str, name: str = "Custom") -> Task:
    """An object of the class ``module:Class``, made without arguments, kept to the protocol. ``name``: the task's type.

    Raises ManifestError when there is no such module or class, when importing or making it fails, or when
    it lacks a part of the protocol.
    """
    module_name, _, class_name = path.partition(":")
    made = _made(path, _class(path, module_name, class_name))
    missing = [name for name in METHODS if not callable(getattr(made, name, None))]
    if missing:
        raise _wrong(f"{path} has no method {', '.join(missing)}")
    for name in TEXTS:
        if not isinstance(_called(path, name, partial(getattr, made, name, None)), str):
            raise _wrong(f"{path} has no text {name}")
    return _Kept(path, made, name)


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
        raise _failed(path, "importing it", error) from None
    except (Exception, SystemExit) as error:
        raise _failed(path, "importing it", error) from None
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        what = "no" if found is None else "something that is no class called"
        raise _wrong(f"the module {module_name} has {what} {class_name}")
    return found


def _made(path: str, found: Any) -> Any:
    return _called(path, "__init__", found)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A ``Task`` around the user's object: wrong types and exceptions end the step, and say whose they are."""

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
        rows = _called(self.path, "read_rows", lambda: self.task.read_rows(data, where))
        if not isinstance(rows, Dataset) or not rows.examples:
            raise _wrong(f"{self.path}.read_rows must return a Dataset with examples")
        ids = {example.id for example in rows.examples}
        if len(ids) != len(rows.examples) or not all(isinstance(one, str) and one for one in ids):
            raise _wrong(f"{self.path}.read_rows must give each example an id of its own")
        return rows

    def model_input(self, example: Example) -> str:
        return self._text("model_input", lambda: self.task.model_input(example))

    def parse_answer(self, text: str) -> str:
        return self._text("parse_answer", lambda: self.task.parse_answer(text))

    def score(self, answer: str, example: Example) -> Score:
        found = _called(self.path, "score", lambda: self.task.score(answer, example))
        if not isinstance(found, Score) or not _is_share(found.value) or not isinstance(found.feedback, str):
            raise _wrong(
                f"{self.path}.score must return a Score with a value from 0 to 1 and a feedback text"
            )
        if found.partial is not None and not _is_share(found.partial):
            raise _wrong(f"{self.path}.score must return a partial credit from 0 to 1, or None")
        return Score(float(found.value), bool(found.correct), found.feedback[:MAX_FEEDBACK], found.partial)

    def _text(self, method: str, call: Callable[[], Any]) -> str:
        found = _called(self.path, method, call)
        if not isinstance(found, str):
            raise _wrong(f"{self.path}.{method} must return text, not {type(found).__name__}")
        return found


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1


def _called(path: str, method: str, call: Callable[[], Result]) -> Result:
    try:
        return call()
    except CombeeError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(path, method, error) from None


def _failed(path: str, method: str, error: BaseException) -> ManifestError:
    """The type of an exception and the line that raised it. Its words may hold a row, and stay out but for
    those of an import."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    words = f": {str(error)[:_MAX_SAID]}" if isinstance(error, ImportError | SyntaxError) else ""
    return ManifestError(
        f"{path}: {method} raised {type(error).__name__}{at}{words}",
        where=WHERE,
        fix="Mend the class; a task raises DataError for unfit rows and nothing else",
    )


def _wrong(what: str) -> ManifestError:
    return ManifestError(what, where=WHERE, fix="See combee.tasks.protocol.Task for what a task is")
