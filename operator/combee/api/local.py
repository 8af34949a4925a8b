"""What a manifest needs on a laptop: a stand-in for each part that only a cluster has.

Pure checks on names; whether a file or variable behind a stand-in exists is for its reader to say.
"""

from __future__ import annotations

from combee.api.common import REMOTE_SCHEMES, uri_scheme
from combee.api.parts import DataSource
from combee.api.run import PromptLearningRun
from combee.errors import ManifestError, NotAvailableError

INITIAL_PLAYBOOK = "initialPlaybook"
"""the name that stands for task.initialPlaybook in ``--data``."""
_AN = {"activeVersion": "an"}
SECRET_KEYS = {"s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "https": ("TOKEN",)}
"""Schemes that a laptop can read, and the keys that the Secret of such an address must have."""


def check_local(run: PromptLearningRun, *, engines: set[str], secrets: set[str], data: set[str]) -> None:
    """Refuse a run that lacks stand-ins, or stand-ins that stand for nothing.

    ``engines``, ``secrets`` (``NAME/KEY``) and ``data`` (``train``, ``heldOut``, ``test``,
    ``initialPlaybook``) are the names given with ``--engine``, ``--secret`` and ``--data``. Raises
    ManifestError naming the flag, or NotAvailableError for an address that this version cannot read.
    """
    if run.spec.suspend:
        raise ManifestError(
            "true: there is nothing to suspend on a laptop",
            where="spec.suspend",
            fix="Remove suspend, then run.",
        )
    _check_flags(run, engines, secrets, data)
    _check_data(run, secrets, data)
    _check_models(run, engines, secrets)


def sources(run: PromptLearningRun) -> dict[str, DataSource]:
    """The data splits given, by name."""
    splits = run.spec.task.data
    named = {"train": splits.train, "heldOut": splits.held_out, "test": splits.test}
    return {name: source for name, source in named.items() if source is not None}


def _check_flags(run: PromptLearningRun, engines: set[str], secrets: set[str], data: set[str]) -> None:
    known = [engine.name for engine in run.spec.engines]
    for name in sorted(engines - set(known)):
        raise ManifestError(
            f"the manifest has no engine {name!r}",
            where=f"--engine {name}",
            fix=f"Engines of {run.name}: {', '.join(known) or 'none'}.",
        )
    for pair in sorted(secrets):
        if "/" not in pair:
            raise ManifestError(
                "a secret is named by NAME/KEY",
                where=f"--secret {pair}",
                fix=f"Write --secret {pair}/KEY=env:VAR.",
            )
    splits = list(sources(run))
    if run.spec.task.initial_playbook is not None:
        splits.append(INITIAL_PLAYBOOK)
    for name in sorted(data - set(splits)):
        raise ManifestError(
            f"the manifest has no split {name!r}",
            where=f"--data {name}",
            fix=f"Splits here: {', '.join(splits)}.",
        )


def _check_data(run: PromptLearningRun, secrets: set[str], data: set[str]) -> None:
    for name, source in sources(run).items():
        part = "configMap" if source.config_map is not None else "pvc"
        path = f"spec.task.data.{name}"
        _check_source(path, name, source.uri, part, data)
        if source.secret_ref is not None and name not in data:
            _check_keys(path, uri_scheme(source.uri or ""), source.secret_ref.name, secrets)
    if (initial := run.spec.task.initial_playbook) is not None:
        part = "activeVersion" if initial.active_version else "configMap"
        _check_source("spec.task.initialPlaybook", INITIAL_PLAYBOOK, initial.uri, part, data)


def _check_source(path: str, name: str, uri: str | None, part: str, data: set[str]) -> None:
    if name in data:
        return
    if uri is None:
        raise ManifestError(
            f"{_AN.get(part, 'a')} {part} is on a cluster, and this runs on a laptop",
            where=f"{path}.{part}",
            fix=f"Give a file that stands for it: --data {name}=PATH.",
        )
    if (scheme := uri_scheme(uri)) in REMOTE_SCHEMES and scheme not in SECRET_KEYS:
        raise NotAvailableError(
            f"reading {scheme}:// on a laptop is not available in this version",
            where=f"{path}.uri",
            fix=f"Give a local copy: --data {name}=PATH.",
        )


def _check_keys(path: str, scheme: str, secret: str, secrets: set[str]) -> None:
    """Each key that an address's Secret must have needs a variable that stands for it."""
    for key in SECRET_KEYS.get(scheme, ()):
        if f"{secret}/{key}" not in secrets:
            raise ManifestError(
                "a Secret is on a cluster, and this runs on a laptop",
                where=f"{path}.secretRef",
                fix=f"Give a variable that holds its key: --secret {secret}/{key}=env:VAR.",
            )


def _check_models(run: PromptLearningRun, engines: set[str], secrets: set[str]) -> None:
    for role, model in run.spec.roles_in_use().items():
        path = f"spec.models.{role}"
        if model.engine_ref is not None and model.engine_ref.name not in engines:
            name = model.engine_ref.name
            raise ManifestError(
                f"engine {name!r} is on a cluster, and this runs on a laptop",
                where=f"{path}.engineRef",
                fix=f"Give an OpenAI-compatible server that stands for it: --engine {name}=URL.",
            )
        secret = model.endpoint.api_key_secret_ref if model.endpoint is not None else None
        if secret is not None and f"{secret.name}/{secret.key}" not in secrets:
            raise ManifestError(
                "a Secret is on a cluster, and this runs on a laptop",
                where=f"{path}.endpoint.apiKeySecretRef",
                fix=f"Give a variable that holds it: --secret {secret.name}/{secret.key}=env:VAR.",
            )
