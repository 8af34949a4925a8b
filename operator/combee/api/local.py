"""What a manifest needs on a laptop: a stand-in for each part that only a cluster has.

Pure checks on names; whether a file or variable behind a stand-in exists is for its reader to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from combee.api.common import REMOTE_SCHEMES, uri_scheme
from combee.api.discipline import refusal
from combee.api.engines import Engine
from combee.api.parts import DataSource
from combee.api.run import PromptLearningRun
from combee.errors import ManifestError, NotAvailableError, UserError

INITIAL_PLAYBOOK = "initialPlaybook"
"""the name that stands for task.initialPlaybook in ``--data``."""
USUAL_URL = "http://127.0.0.1:8000/v1"
"""where ``vllm serve`` and ``combee sim serve`` answer unless told otherwise."""
_AN = {"activeVersion": "an"}
SECRET_KEYS = {"s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "https": ("TOKEN",)}
"""Schemes that a laptop can read, and the keys that the Secret of such an address must have."""


@dataclass(frozen=True, slots=True)
class Given:
    """The names that flags give: engines, ``NAME/KEY`` of secrets, and of data ``train``, ``heldOut``,
    ``test`` and ``initialPlaybook``."""

    engines: frozenset[str] = frozenset()
    engine_keys: frozenset[str] = frozenset()
    engine_models: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    data: frozenset[str] = frozenset()


def check_local(run: PromptLearningRun, given: Given) -> None:
    """Refuse a run that lacks stand-ins, or stand-ins that stand for nothing.

    Raises ManifestError naming the flag, or NotAvailableError for an address that this version cannot read.
    """
    if run.spec.suspend:
        raise ManifestError(
            "true: there is nothing to suspend on a laptop",
            where="spec.suspend",
            fix="Remove suspend, then run.",
        )
    if (refused := refusal(run.spec, "Advisory")) is not None:
        raise refused[1]
    check_readable(run, given)
    for problem in _models_lack(run, given):
        raise problem.error


def check_readable(run: PromptLearningRun, given: Given) -> None:
    """Check what a preview needs, the data and no model. One error names all that the data lack."""
    _check_flags(run, given)
    lacks: dict[tuple[str, str], UserError] = {}
    for problem in _data_lack(run, given):
        lacks.setdefault(problem.flag, problem.error)
    if lacks:
        first, *others = lacks.items()
        more = "".join(f", and {' '.join(flag)} for {error.where}" for flag, error in others)
        first[1].fix = f"{first[1].fix.removesuffix('.')}{more}."
        raise first[1]


def lacking(run: PromptLearningRun, given: Given) -> list[str]:
    """Return the flags that ``combee run`` still needs, each followed by a value to replace."""
    flags = dict.fromkeys(problem.flag for problem in _models_lack(run, given))
    return [word for flag in flags for word in flag]


def sources(run: PromptLearningRun) -> dict[str, DataSource]:
    """Return the data splits given, by name."""
    splits = run.spec.task.data
    named = {"train": splits.train, "heldOut": splits.held_out, "test": splits.test}
    return {name: source for name, source in named.items() if source is not None}


def _check_flags(run: PromptLearningRun, given: Given) -> None:
    known = [engine.name for engine in run.spec.engines]
    for flag, names in (
        ("--engine", given.engines),
        ("--engine-key", given.engine_keys),
        ("--engine-model", given.engine_models),
    ):
        for name in sorted(names.difference(known)):
            raise ManifestError(
                f"the manifest has no engine {name!r}",
                where=f"{flag} {name}",
                fix=f"Engines of {run.name}: {', '.join(known) or 'none'}.",
            )
    for pair in sorted(given.secrets):
        if "/" not in pair:
            raise ManifestError(
                "a secret is named by NAME/KEY",
                where=f"--secret {pair}",
                fix=f"Write --secret {pair}/KEY=env:VAR.",
            )
    splits = list(sources(run))
    if run.spec.task.initial_playbook is not None:
        splits.append(INITIAL_PLAYBOOK)
    for name in sorted(given.data.difference(splits)):
        raise ManifestError(
            f"the manifest has no split {name!r}",
            where=f"--data {name}",
            fix=f"Splits here: {', '.join(splits)}.",
        )


@dataclass(frozen=True, slots=True)
class _Lack:
    """The error that says what is lacking, and the flag that gives it."""

    error: UserError
    flag: tuple[str, str]


def _data_lack(run: PromptLearningRun, given: Given) -> Iterator[_Lack]:
    for name, source in sources(run).items():
        if name in given.data:
            continue
        part = "configMap" if source.config_map is not None else "pvc"
        path = f"spec.task.data.{name}"
        yield from _source_lack(path, name, source.uri, part)
        if source.secret_ref is not None:
            yield from _keys_lack(path, uri_scheme(source.uri or ""), source.secret_ref.name, given.secrets)
    if (initial := run.spec.task.initial_playbook) is not None and INITIAL_PLAYBOOK not in given.data:
        part = "activeVersion" if initial.active_version else "configMap"
        yield from _source_lack("spec.task.initialPlaybook", INITIAL_PLAYBOOK, initial.uri, part)


def _source_lack(path: str, name: str, uri: str | None, part: str) -> Iterator[_Lack]:
    flag = ("--data", f"{name}=PATH")
    if uri is None:
        error: UserError = ManifestError(
            f"{_AN.get(part, 'a')} {part} is on a cluster, and this runs on a laptop",
            where=f"{path}.{part}",
            fix=f"Give a file that stands for it: {' '.join(flag)}.",
        )
        yield _Lack(error, flag)
    elif (scheme := uri_scheme(uri)) in REMOTE_SCHEMES and scheme not in SECRET_KEYS:
        error = NotAvailableError(
            f"reading {scheme}:// on a laptop is not available in this version",
            where=f"{path}.uri",
            fix=f"Give a local copy: {' '.join(flag)}.",
        )
        yield _Lack(error, flag)


def _keys_lack(path: str, scheme: str, secret: str, secrets: frozenset[str]) -> Iterator[_Lack]:
    """Yield each key that an address's Secret must have and no variable stands for."""
    for key in SECRET_KEYS.get(scheme, ()):
        if f"{secret}/{key}" not in secrets:
            flag = ("--secret", f"{secret}/{key}=env:VAR")
            error = ManifestError(
                "a Secret is on a cluster, and this runs on a laptop",
                where=f"{path}.secretRef",
                fix=f"Give a variable that holds its key: {' '.join(flag)}.",
            )
            yield _Lack(error, flag)


def _models_lack(run: PromptLearningRun, given: Given) -> Iterator[_Lack]:
    engines = {engine.name: engine for engine in run.spec.engines}
    for role, model in run.spec.roles_in_use().items():
        path = f"spec.models.{role}"
        if model.engine_ref is not None:
            yield from _engine_lacks(engines[model.engine_ref.name], f"{path}.engineRef", given)
        secret = model.endpoint.api_key_secret_ref if model.endpoint is not None else None
        if secret is not None and (pair := f"{secret.name}/{secret.key}") not in given.secrets:
            error = ManifestError(
                "a Secret is on a cluster, and this runs on a laptop",
                where=f"{path}.endpoint.apiKeySecretRef",
                fix=f"Give a variable that holds it: --secret {pair}=env:VAR.",
            )
            yield _Lack(error, ("--secret", f"{pair}=env:{_variable(pair)}"))


def _engine_lacks(engine: Engine, path: str, given: Given) -> Iterator[_Lack]:
    name, ref = engine.name, engine.ref
    what = f"engine {name!r} is {f'{ref.kind} {ref.name} of' if ref else 'on'} a cluster"
    if name not in given.engines:
        error = ManifestError(
            f"{what}, and this runs on a laptop",
            where=path,
            fix=f"Give an OpenAI-compatible server that stands for it: --engine {name}=URL.",
        )
        yield _Lack(error, ("--engine", f"{name}={USUAL_URL}"))
    if not engine.model and name not in given.engine_models:
        error = ManifestError(
            f"{what}, which alone can tell its model",
            where=path,
            fix=f"Say which model stands for it: --engine-model {name}=MODEL.",
        )
        yield _Lack(error, ("--engine-model", f"{name}=MODEL"))


def _variable(pair: str) -> str:
    """Return a name for the variable that holds the key of a Secret."""
    return "".join(char if char.isascii() and char.isalnum() else "_" for char in pair.upper())
