"""From the text of a manifest to runs; every way it can be wrong is one line that says the fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from pydantic import ValidationError

from combee.api.common import API_VERSION, Model
from combee.api.discipline import SPEC, TEMPLATE, escalations, missing_inputs
from combee.api.explain import closest, explain, path_of, path_text, summary
from combee.api.fields import Loc
from combee.api.playbook import Playbook, PlaybookVersion
from combee.api.run import PromptLearningRun, RunSpec
from combee.api.yamlread import Document, read_yaml
from combee.errors import CombeeError, ManifestError
from combee.names import API_GROUP

KIND = "PromptLearningRun"
_OPAQUE = ("affinity", "options", "topologySpreadConstraints")
"""Parts that the API server passes on as they are."""
KINDS: dict[str, type[Model]] = {
    KIND: PromptLearningRun,
    "Playbook": Playbook,
    "PlaybookVersion": PlaybookVersion,
}
"""every kind; only runs are learned, the others belong to a cluster and are checked here."""
Resource = PromptLearningRun | Playbook | PlaybookVersion
Refusals = Callable[[Resource], Iterable[ManifestError]]
"""What is refused of a resource; each says where by a path, such as ``spec.engines[0]``."""


def parse_runs(text: str, where: str) -> list[PromptLearningRun]:
    """Return the runs of a YAML text with one or more documents, in order; at least one.

    Playbooks beside them are checked and left to the cluster; objects of other APIs are ignored. ``where`` is
    the file's name for messages. Raises ManifestError (``where`` is ``file:line: path``)
    for the first thing that is wrong.
    """
    documents = _documents(text, where)
    runs: list[PromptLearningRun] = []
    for document in documents:
        run = _resource(document.value, _placed(where, document))
        if not isinstance(run, PromptLearningRun):
            continue
        if any(other.name == run.name for other in runs):
            raise ManifestError(
                f"two runs are named {run.name!r}",
                where=_placed(where, document)(("metadata", "name")),
                fix="Give each run a name of its own.",
            )
        runs.append(run)
    if not runs:
        raise ManifestError(
            "there is no run in it, and only runs are learned",
            where=where,
            fix=f"Add one of kind: {KIND}; a Playbook is for a cluster: kubectl combee playbook preview "
            f"NAME -f {where}",
        )
    return runs


def parse_run(data: object, where: str) -> PromptLearningRun:
    """Return one run from plain data, such as an object read from the API server. Raises as parse_runs."""
    place = _unplaced(where)
    run = _resource(data, place)
    if not isinstance(run, PromptLearningRun):
        raise ManifestError(f"this is a {run.kind}", where=place(("kind",)), fix=f"Give a {KIND}.")
    return run


def parse_resource(data: object, where: str) -> Resource:
    """Return one run, Playbook or PlaybookVersion from plain data. Raises as parse_runs."""
    return _resource(data, _unplaced(where))


def problems_in(text: str, where: str, also: Refusals = lambda resource: ()) -> list[CombeeError]:
    """Return all that is wrong with a manifest, empty when nothing is: what ``combee validate`` lists.

    ``also`` gives what else is refused of a resource that its models accept; its lines are found here.
    """
    try:
        documents = _documents(text, where)
    except CombeeError as error:
        return [error]
    problems = [one for each in documents for one in _problems(each.value, _placed(where, each), also)]
    if not problems and any(_kind(document.value) == KIND for document in documents):
        try:
            parse_runs(text, where)
        except CombeeError as error:
            return [error]
    return problems


def resources_in(text: str, where: str) -> list[Resource]:
    """Return each of our objects in a manifest, in order. Raises as parse_runs."""
    return [_resource(document.value, _placed(where, document)) for document in _documents(text, where)]


def config_maps_in(text: str, where: str) -> dict[str, Mapping[str, object]]:
    """Return name -> data of the ConfigMaps that stand beside a run. Raises ManifestError for bad YAML."""
    maps: dict[str, Mapping[str, object]] = {}
    for document in read_yaml(text, where):
        value = document.value
        if isinstance(value, Mapping) and (value.get("apiVersion"), _kind(value)) == ("v1", "ConfigMap"):
            metadata, data = value.get("metadata"), value.get("data")
            if isinstance(metadata, Mapping) and isinstance(data, Mapping):
                maps[str(metadata.get("name"))] = data
    return maps


def _documents(text: str, where: str) -> list[Document]:
    """Return our objects, at least one. Raises ManifestError without any."""
    documents = [document for document in read_yaml(text, where) if not _others(document.value)]
    if not documents:
        raise ManifestError(
            "there is no manifest in it",
            where=where,
            fix=f"Start with apiVersion: {API_VERSION} and kind: {KIND}.",
        )
    return documents


def _others(data: object) -> bool:
    """Return whether it is plainly of another API: claims and ConfigMaps often stand beside a run."""
    api, kind = (data.get("apiVersion"), _kind(data)) if isinstance(data, Mapping) else (None, None)
    if not isinstance(api, str) or not isinstance(kind, str) or api.partition("/")[0] == API_GROUP:
        return False
    return closest(kind, list(KINDS)) is None


def _placed(where: str, document: Document) -> Callable[[Loc], str]:
    def place(loc: Loc) -> str:
        head = f"{where}:{document.line(tuple(loc))}"
        return f"{head}: {path_text(loc)}" if loc else head

    return place


def _unplaced(where: str) -> Callable[[Loc], str]:
    return lambda loc: ": ".join(part for part in (where, path_text(loc)) if part)


def _problems(data: object, place: Callable[[Loc], str], also: Refusals) -> list[CombeeError]:
    try:
        root = _check_kind(data, place)
        resource = root.model_validate(data)
        assert isinstance(resource, Resource)
        more = [ManifestError(e.what, where=place(path_of(e.where)), fix=e.fix) for e in also(resource)]
        return [*_unfinished(data, place), *_unstated(resource, place), *more]
    except ValidationError as error:
        return [*explain(error, root=root, where=place)]
    except CombeeError as error:
        return [error]


def _resource(data: object, place: Callable[[Loc], str]) -> Resource:
    root = _check_kind(data, place)
    try:
        resource = root.model_validate(data)
    except ValidationError as error:
        raise summary(explain(error, root=root, where=place)) from None
    assert isinstance(resource, Resource)
    return resource


def _unfinished(data: object, place: Callable[[Loc], str]) -> Iterator[ManifestError]:
    """Yield the fields of a spec that are null, which the API server would drop without a word."""
    spec = data.get("spec") if isinstance(data, Mapping) else None
    for loc in _nulls(spec, ("spec",)):
        yield ManifestError(
            "nothing is written here", where=place(loc), fix="Remove the line or complete it."
        )


def _nulls(value: object, at: Loc) -> Iterator[Loc]:
    pairs: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, Mapping):
        pairs = [(key, one) for key, one in value.items() if key not in _OPAQUE]
    elif isinstance(value, list):
        pairs = enumerate(value)
    for key, one in pairs:
        if one is None:
            yield (*at, key)
        yield from _nulls(one, (*at, key))


def _unstated(resource: Model, place: Callable[[Loc], str]) -> list[ManifestError]:
    """Return what a run, or a template, that names discipline Strict does not state."""
    named = disciplined(resource)
    if named is None or named[0].discipline != "Strict":
        return []
    spec, at = named
    lacks = {"not stated": missing_inputs(spec), "not sound": escalations(spec)}
    fix = f"Discipline Strict refuses the run; with {at}.discipline: Advisory it is a warning."
    return [
        ManifestError(f"{what} ({one.asks})", where=place(path_of(one.at(at))), fix=fix)
        for what, questions in lacks.items()
        for one in questions
    ]


def disciplined(resource: Model) -> tuple[RunSpec, str] | None:
    """Return the spec of a run, or a Playbook's template, that is to state its inputs, and its path."""
    if isinstance(resource, PromptLearningRun):
        return resource.spec, SPEC
    if isinstance(resource, Playbook) and resource.spec.learn is not None:
        return resource.spec.learn.template, TEMPLATE
    return None


def _kind(data: object) -> object:
    return data.get("kind") if isinstance(data, Mapping) else None


def _check_kind(data: object, place: Callable[[Loc], str]) -> type[Model]:
    """Return the model of the kind that ``data`` says it is."""
    if not isinstance(data, Mapping):
        raise ManifestError("not a mapping", where=place(()), fix=f"Start with apiVersion: {API_VERSION}.")
    kind = _kind(data)
    if kind is None:
        raise ManifestError("kind is missing", where=place(("kind",)), fix=f"Add kind: {KIND}.")
    if isinstance(kind, str) and kind in KINDS:
        return KINDS[kind]
    meant = closest(kind, list(KINDS)) if isinstance(kind, str) else None
    guess = f"Did you mean {meant}?" if meant else f"This reads kind {', '.join(KINDS)}."
    raise ManifestError(f"unknown kind {str(kind)[:60]!r}", where=place(("kind",)), fix=guess)
