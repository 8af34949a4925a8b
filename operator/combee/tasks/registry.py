"""The tasks of this version, by the manifest's ``task.type``."""

from __future__ import annotations

from typing import get_args

from combee.api.parts import TaskType
from combee.errors import ManifestError, NotAvailableError
from combee.tasks.finer import FinerTask
from combee.tasks.formula import FormulaTask
from combee.tasks.protocol import Task

_TASKS: dict[str, Task] = {"Formula": FormulaTask(), "FiNER": FinerTask()}


def task_for(type: str) -> Task:
    """The task of that type; NotAvailableError for one to come, ManifestError for an unknown one."""
    if (task := _TASKS.get(type)) is not None:
        return task
    known = ", ".join(_TASKS)
    if type in get_args(TaskType):
        raise NotAvailableError(
            f"task type {type} is not available in this version", where="spec.task.type", fix=f"Use {known}."
        )
    raise ManifestError(f"unknown task type {type!r}", where="spec.task.type", fix=f"Use {known}.")
