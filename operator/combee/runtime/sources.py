"""What stands for cluster parts on a laptop: flags become endpoints, keys and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from combee.adapters.chat import Endpoint
from combee.adapters.rows import read_lines
from combee.api.local import INITIAL_PLAYBOOK, check_local, sources
from combee.api.parts import RoleModel
from combee.api.run import PromptLearningRun
from combee.errors import BugError, CombeeError, DataError, UserError
from combee.settings import environment_value
from combee.tasks.dataset import MAX_ROW_BYTES, Dataset, overlap
from combee.tasks.protocol import Task

ROLES_IN_USE = ("task", "proposer")
"""The evaluator judges where no metric can; every task of this version has one."""
MAX_PLAYBOOK_BYTES = 1 << 20
URL_FIX = "Write it like http://127.0.0.1:8000/v1, without a key in it"


@dataclass(frozen=True, slots=True)
class StandIns:
    """``--engine``, ``--secret`` and ``--data``, parsed."""

    engines: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """``NAME/KEY`` -> environment variable."""
    data: Mapping[str, str] = field(default_factory=dict)


def parse_stand_ins(engines: Sequence[str], secrets: Sequence[str], data: Sequence[str]) -> StandIns:
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
    roles = run.spec.roles()
    return {role: _endpoint(run, role, roles[role], given) for role in ROLES_IN_USE if role in roles}


def _endpoint(run: PromptLearningRun, role: str, model: RoleModel, given: StandIns) -> Endpoint:
    if model.engine_ref is not None:
        engine = next(engine for engine in run.spec.engines if engine.name == model.engine_ref.name)
        return Endpoint(
            url=_checked_url(given.engines[engine.name], f"--engine {engine.name}"),
            model=engine.vllm.model,
            revision=engine.vllm.revision or "",
            engine_args=engine.vllm.args,
        )
    if model.endpoint is None:
        raise BugError(f"the role {role} has neither engine nor endpoint")
    key, source = "", ""
    if (ref := model.endpoint.api_key_secret_ref) is not None:
        name = f"{ref.name}/{ref.key}"
        variable = given.secrets[name]
        source = f"--secret {name}=env:{variable}"
        key = _checked_key(environment_value(variable, wanted_for=f"--secret {name}"), variable, name)
    return Endpoint(
        url=_checked_url(model.endpoint.url, f"spec.models.{role}.endpoint.url"),
        model=model.endpoint.model,
        api_key=SecretStr(key),
        revision=model.endpoint.revision or "",
        key_source=source,
    )


def _checked_url(url: str, where: str) -> str:
    """``url`` when Endpoint and the HTTP client will take it; it is not quoted, it may hold a key."""
    try:
        parts = urlsplit(url)
        good = parts.port != 0 and bool(parts.hostname) and url.isprintable() and " " not in url
        Endpoint(url=url, model="")
    except (ValueError, CombeeError) as error:
        what = error.what if isinstance(error, CombeeError) else "not a URL"
        raise UserError(what, where=where, fix=URL_FIX) from None
    if not good:
        raise UserError("not a URL", where=where, fix=URL_FIX)
    return url


def _checked_key(key: str, variable: str, name: str) -> str:
    """``key`` when it can go into an HTTP header; UserError that does not show it."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UserError(
            f"the value of {variable} is not a key: it holds a blank, a line end or a character outside ASCII",
            where=f"--secret {name}",
            fix=f"export {variable} again with the key alone",
        )
    return key


def locate(uri: str, base: Path) -> str:
    """A data address: a path is relative to the manifest's folder, ``file:`` may be written."""
    if uri.startswith("file:"):
        uri = uri.removeprefix("file://").removeprefix("file:")
    return uri if "://" in uri else str(base / uri)


def read_splits(run: PromptLearningRun, task: Task, given: StandIns, base: Path) -> dict[str, Dataset]:
    """Every split, read and checked. DataError when heldOut or test shares a row with train."""
    splits: dict[str, Dataset] = {}
    for name, source in sources(run).items():
        uri = given.data[name] if name in given.data else locate(source.uri or "", base)
        splits[name] = task.read_rows(read_lines(uri, max_bytes=MAX_ROW_BYTES), uri)
    for name in ("heldOut", "test"):
        if name in splits:
            _refuse_overlap(splits["train"], splits[name], name)
    return splits


def _refuse_overlap(train: Dataset, other: Dataset, name: str) -> None:
    shared = overlap(train, other)
    if shared:
        raise DataError(
            f"{len(shared)} of {len(other.examples)} rows are in train too: scores on them would show memory, not learning",
            where=f"spec.task.data.{name}",
            fix=f"Remove them from train or from {name}; the first is {name} row {shared[0]}",
        )


def read_initial_playbook(run: PromptLearningRun, given: StandIns, base: Path) -> str:
    """The text of task.initialPlaybook; empty when there is none."""
    initial = run.spec.task.initial_playbook
    if initial is None:
        return ""
    uri = given.data[INITIAL_PLAYBOOK] if INITIAL_PLAYBOOK in given.data else locate(initial.uri or "", base)
    data = b"".join(read_lines(uri, max_bytes=MAX_PLAYBOOK_BYTES))
    if len(data) > MAX_PLAYBOOK_BYTES:
        raise DataError(
            f"{len(data):,} bytes", where=uri, fix=f"A playbook has at most {MAX_PLAYBOOK_BYTES:,} bytes"
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DataError("not UTF-8", where=uri, fix="Save the playbook as UTF-8 text") from None
