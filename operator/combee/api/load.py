"""From the text of a manifest to runs; every way it can be wrong is one line that says the fix."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import ValidationError

from combee.api.availability import UNAVAILABLE_KINDS, not_available, refuse_kind
from combee.api.common import API_VERSION
from combee.api.explain import closest, explain, path_text, summary
from combee.api.fields import Loc
from combee.api.run import PromptLearningRun
from combee.api.yamlread import Document, read_yaml
from combee.errors import CombeeError, ManifestError, NotAvailableError

KIND = "PromptLearningRun"


def parse_runs(text: str, where: str) -> list[PromptLearningRun]:
    """The runs of a YAML text with one or more documents, in order; at least one.

    ``where`` is the file's name for messages. Raises ManifestError (``where`` is
    ``file:line: path``) or NotAvailableError, for the first thing that is wrong.
    """
    documents = read_yaml(text, where)
    if not documents:
        raise ManifestError(
            "there is no manifest in it",
            where=where,
            fix=f"Start with apiVersion: {API_VERSION} and kind: {KIND}.",
        )
    runs: list[PromptLearningRun] = []
    for document in documents:
        run = _run(document.value, _placed(where, document))
        if any(other.name == run.name for other in runs):
            raise ManifestError(
                f"two runs are named {run.name!r}",
                where=_placed(where, document)(("metadata", "name")),
                fix="Give each run a name of its own.",
            )
        runs.append(run)
    return runs


def parse_run(data: object, where: str) -> PromptLearningRun:
    """One run from plain data, such as an object read from the API server. Errors as parse_runs."""
    return _run(data, lambda loc: ": ".join(part for part in (where, path_text(loc)) if part))


def problems_in(text: str, where: str) -> list[CombeeError]:
    """All that is wrong with a manifest, empty when nothing is: what ``combee validate`` lists."""
    try:
        documents = read_yaml(text, where)
        if not documents:
            parse_runs(text, where)
    except CombeeError as error:
        return [error]
    found: list[CombeeError] = []
    for document in documents:
        found += _problems(document.value, _placed(where, document))
    if not found:
        try:
            parse_runs(text, where)
        except CombeeError as error:
            return [error]
    return found


def _placed(where: str, document: Document) -> Callable[[Loc], str]:
    def place(loc: Loc) -> str:
        head = f"{where}:{document.line(tuple(loc))}"
        return f"{head}: {path_text(loc)}" if loc else head

    return place


def _problems(data: object, place: Callable[[Loc], str]) -> list[CombeeError]:
    try:
        _check_kind(data, place)
        run = PromptLearningRun.model_validate(data)
        return [*_not_available(run, place)]
    except ValidationError as error:
        return [*explain(error, root=PromptLearningRun, where=place)]
    except CombeeError as error:
        return [error]


def _run(data: object, place: Callable[[Loc], str]) -> PromptLearningRun:
    _check_kind(data, place)
    try:
        run = PromptLearningRun.model_validate(data)
    except ValidationError as error:
        raise summary(explain(error, root=PromptLearningRun, where=place)) from None
    for missing in _not_available(run, place):
        raise missing
    return run


def _not_available(run: PromptLearningRun, place: Callable[[Loc], str]) -> list[NotAvailableError]:
    return not_available(run, lambda path: place(tuple(path.split("."))))


def _check_kind(data: object, place: Callable[[Loc], str]) -> None:
    if not isinstance(data, Mapping):
        raise ManifestError("not a mapping", where=place(()), fix=f"Start with apiVersion: {API_VERSION}.")
    kind = data.get("kind")
    if kind in UNAVAILABLE_KINDS:
        raise refuse_kind(str(kind), place(("kind",)))
    if kind == KIND:
        return
    if kind is None:
        raise ManifestError("kind is missing", where=place(("kind",)), fix=f"Add kind: {KIND}.")
    word = kind if isinstance(kind, str) else ""
    guess = f"Did you mean {KIND}?" if closest(word, [KIND]) else f"This reads kind {KIND} only."
    raise ManifestError(f"unknown kind {str(kind)[:60]!r}", where=place(("kind",)), fix=guess)
