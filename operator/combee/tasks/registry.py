"""Finds the task of a manifest: built-in and installed ones by ``task.type``, a custom one by its class."""

from __future__ import annotations

from combee import extensions
from combee.api.parts import Task as TaskSpec
from combee.errors import ManifestError
from combee.tasks.adapter import AdapterTask
from combee.tasks.container import ContainerTask
from combee.tasks.custom import load_task
from combee.tasks.finer import FinerTask
from combee.tasks.formula import FormulaTask
from combee.tasks.metrics import measured
from combee.tasks.protocol import Task
from combee.tasks.reply import ReplyTask
from combee.tasks.traces import TracesTask

_TASKS: dict[str, Task] = {
    "Formula": FormulaTask(),
    "FiNER": FinerTask(),
    "Reply": ReplyTask(),
    "Traces": TracesTask(),
}


def task_of(spec: TaskSpec) -> Task:
    """Return the task of a manifest, with the metric that scores its answers.

    **Imports the user's code** for type Custom and for types that packages add: call it only in the pods of
    the run, and in ``combee run`` and ``combee preview`` on a laptop; never in the operator or the gateway.
    Raises what ``task_for`` and ``load_task`` raise. Containers and adapters run in processes of their own.
    """
    return measured(_unmeasured(spec), spec)


def _unmeasured(spec: TaskSpec) -> Task:
    if spec.type == "Traces" and spec.traces is not None:
        return TracesTask(spec.traces.format, spec.traces.part_tokens)
    if spec.type != "Custom" or spec.custom is None:
        return task_for(spec.type)
    if spec.custom.adapter is not None:
        return AdapterTask()
    if spec.custom.class_ is None:
        return ContainerTask()
    return load_task(spec.custom.class_)


def task_for(type: str) -> Task:
    """Return the task of a built-in or installed type. Raises ManifestError for other types and for
    Custom."""
    if (task := _TASKS.get(type)) is not None:
        return task
    added = extensions.names(extensions.TASKS)
    if type in added:
        return load_task(extensions.path(extensions.TASKS, type), type)
    known = ", ".join((*_TASKS, *added))
    raise ManifestError(f"unknown task type {type!r}", where="spec.task.type", fix=f"Use {known}.")
