"""What stands for cluster parts on a laptop: flags become endpoints, keys and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from combee.api.common import SecretKeyRef, uri_scheme
from combee.api.local import INITIAL_PLAYBOOK, check_local, sources
from combee.api.parts import DataSource
from combee.api.run import PromptLearningRun
from combee.assembly.endpoints import checked_key, role_endpoints
from combee.assembly.splits import read_playbook, read_split, refuse_overlap
from combee.clients.model.wire import Endpoint
from combee.errors import DataError, UserError
from combee.settings import environment_value
from combee.tasks.dataset import Dataset
from combee.tasks.protocol import Task


@dataclass(frozen=True, slots=True)
class StandIns:
    """``--engine``, ``--secret`` and ``--data``, parsed."""

    engines: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """``NAME/KEY`` -> environment variable."""
    data: Mapping[str, str] = field(default_factory=dict)
    task_user: str = ""
    """``--task-user``: the first user id of a container task's commands, or ``me``."""


def parse_stand_ins(
    engines: Sequence[str], secrets: Sequence[str], data: Sequence[str], task_user: str = ""
) -> StandIns:
    """The flags as mappings. UserError showing the form when one is not NAME=VALUE."""
    parsed_secrets = {}
    for name, value in _pairs("--secret", "NAME/KEY=env:VARIABLE", secrets).items():
        if not value.startswith("env:") or not value[4:]:
            raise UserError(
                "a secret comes from the environment",
                where=f"--secret {name}",
                fix=f"Write --secret {name}=env:VARIABLE",
            )
        parsed_secrets[name] = value[4:]
    return StandIns(
        engines=_pairs("--engine", "NAME=URL, such as main=http://127.0.0.1:8000/v1", engines),
        secrets=parsed_secrets,
        data=_pairs("--data", "SPLIT=PATH, such as train=rows.jsonl", data),
        task_user=task_user,
    )


def _pairs(flag: str, form: str, values: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not equals or not name or not rest:
            where = flag if flag == "--secret" else f"{flag} {name}"  # it may be the key itself
            raise UserError(f"not of the form {form.split(',')[0]}", where=where, fix=f"Write {flag} {form}")
        found[name] = rest
    return found


def check_stand_ins(run: PromptLearningRun, given: StandIns) -> None:
    """Raise what a laptop lacks for this run, naming the flag."""
    check_local(run, engines=set(given.engines), secrets=set(given.secrets), data=set(given.data))


def endpoints(run: PromptLearningRun, given: StandIns) -> dict[str, Endpoint]:
    """Role -> endpoint, for the roles in use."""

    def engine_url(engine: str) -> tuple[str, str]:
        return given.engines[engine], f"--engine {engine}"

    def key_of(_role: str, ref: SecretKeyRef) -> tuple[str, str]:
        name = f"{ref.name}/{ref.key}"
        variable = given.secrets[name]
        key = checked_key(
            environment_value(variable, wanted_for=f"--secret {name}"),
            shown=variable,
            where=f"--secret {name}",
            fix=f"export {variable} again with the key alone",
        )
        return key, f"--secret {name}=env:{variable}"

    return role_endpoints(run.spec, engine_url=engine_url, key_of=key_of)


def locate(uri: str, base: Path) -> str:
    """A data address: a path is relative to the manifest's folder, ``file:`` may be written."""
    if uri.startswith("file:"):
        uri = uri.removeprefix("file://").removeprefix("file:")
    return uri if "://" in uri else str(base / uri)


def read_splits(run: PromptLearningRun, task: Task, given: StandIns, base: Path) -> dict[str, Dataset]:
    """Every split, read and checked. DataError when heldOut or test shares a row with train."""
    splits: dict[str, Dataset] = {}
    for name, source in sources(run).items():
        if name in given.data:
            splits[name] = read_split(task, _local_copy(name, given))
        else:
            splits[name] = read_split(task, locate(source.uri or "", base), _secret_of(source, given))
    refuse_overlap(splits)
    return splits


def _secret_of(source: DataSource, given: StandIns) -> dict[str, str] | None:
    """The keys of the Secret of an address, from the variables that stand for them."""
    if source.secret_ref is None:
        return None
    name = source.secret_ref.name
    return {
        pair.removeprefix(f"{name}/"): environment_value(variable, wanted_for=f"--secret {pair}")
        for pair, variable in given.secrets.items()
        if pair.startswith(f"{name}/")
    }


def read_initial_playbook(run: PromptLearningRun, given: StandIns, base: Path) -> str:
    """The text of task.initialPlaybook; empty when there is none."""
    initial = run.spec.task.initial_playbook
    if initial is None:
        return ""
    if INITIAL_PLAYBOOK in given.data:
        return read_playbook(_local_copy(INITIAL_PLAYBOOK, given))
    return read_playbook(locate(initial.uri or "", base))


def _local_copy(name: str, given: StandIns) -> str:
    """The path that ``--data`` gives for a split."""
    path = locate(given.data[name], Path())
    if "://" in path:
        raise DataError(
            f"{uri_scheme(path)}: addresses cannot be read here: --data stands for a file",
            where=path,
            fix="Give the path of a local copy, or write the address in the manifest",
        )
    return path
