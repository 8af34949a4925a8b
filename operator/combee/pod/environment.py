"""What a step's pod was given: its files and variables, read and checked, as plain data.

/etc/combee/run/run.json      the run: name, namespace, uid, spec with defaults filled in
/etc/combee/plan/plan.json    the iteration's plan (map, reduce, finish)
/etc/combee/secrets/<use>/    a Secret's keys as files
/data/<split>/                a ConfigMap's key or a claim
/store                        the store, where it is a claim
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from combee.api.common import SecretKeyRef, uri_scheme
from combee.api.run import PromptLearningRun, RunSpec
from combee.assembly.endpoints import checked_key
from combee.clients.store.s3 import s3_options
from combee.clients.store.store import Store
from combee.errors import BugError, UserError
from combee.plan.types import IterationPlan, Step
from combee.settings import PodSettings, WorkerSettings
from combee.steps import kind_of

RUN_FILE = "/etc/combee/run/run.json"
PLAN_FILE = "/etc/combee/plan/plan.json"
SECRETS_FOLDER = "/etc/combee/secrets"
DATA_FOLDER = "/data"
TERMINATION_LOG = "/dev/termination-log"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod's part of a run."""

    settings: WorkerSettings
    run: PromptLearningRun
    step: Step
    shard: int
    plan: IterationPlan | None
    engines: dict[str, str]

    @property
    def name(self) -> str:
        """The run's name."""
        return self.run.name

    @property
    def namespace(self) -> str:
        """The run's namespace."""
        return self.run.metadata.namespace or ""

    @property
    def uid(self) -> str:
        """The run's uid."""
        return str(self.run.metadata.uid)

    @property
    def spec(self) -> RunSpec:
        """The run's spec, with defaults filled in."""
        return self.run.spec

    def data_file(self, split: str, inner: str) -> str:
        """Return the path of a split's file."""
        return str(self.settings.path(f"{DATA_FOLDER}/{split}/{inner}"))

    def secret(self, use: str) -> dict[str, str] | None:
        """Return the keys of a mounted Secret; None when none is mounted for that use."""
        return read_secret(self.settings.path(f"{SECRETS_FOLDER}/{use}"))


def read_secret(folder: Path) -> dict[str, str] | None:
    """Return the keys of the Secret that is mounted at a folder; None when none is."""
    if not folder.is_dir():
        return None
    # The kubelet's own entries (such as ..data) begin with dots.
    return {
        file.name: file.read_text(encoding="utf-8")
        for file in sorted(folder.iterdir())
        if file.is_file() and not file.name.startswith("..")
    }


def secret_key(settings: PodSettings, use: str, ref: SecretKeyRef, where: str) -> str:
    """Return the key that a Secret holds for a use. Raises UserError, without the value, if it is unfit."""
    shown = f"{ref.key} of the Secret {ref.name}"
    key = ((read_secret(settings.path(f"{SECRETS_FOLDER}/{use}")) or {}).get(ref.key) or "").strip()
    if not key:
        raise UserError(f"{shown} is empty", where=where, fix="Put the key alone into it")
    return checked_key(key, shown=shown, where=where, fix="Put the key alone into it")


def open_store(settings: PodSettings, uri: str) -> Store:
    """Open the store at a folder or an address. Raises UserError that names a key its Secret lacks."""
    if uri.startswith("/"):
        return Store.open(str(settings.path(uri)))
    secret = read_secret(settings.path(f"{SECRETS_FOLDER}/store"))
    return Store.open(uri, options=s3_options(secret) if uri_scheme(uri) == "s3" else None)


def read_pod(settings: WorkerSettings) -> Pod:
    """Read everything the pod was given. Raises BugError when what the operator wrote cannot be read."""
    run = _run(settings.path(RUN_FILE))
    step = checked(Step, settings.step.encode(), "COMBEE_STEP")
    if not 0 <= settings.shard < max(1, step.shards):
        raise BugError(f"shard {settings.shard} of {step.shards}", where=step.name)
    plan = None
    if kind_of(step.kind).planned:
        plan = IterationPlan.from_json(_content(settings.path(PLAN_FILE)), where=PLAN_FILE)
    return Pod(
        settings=settings,
        run=run,
        step=step,
        shard=settings.shard,
        plan=plan,
        engines=checked(dict[str, str], settings.engines.encode(), "COMBEE_ENGINES"),
    )


def _run(path: Path) -> PromptLearningRun:
    try:
        run = PromptLearningRun.model_validate(json.loads(_content(path)))
    except (ValidationError, ValueError) as error:
        raise BugError(f"not a run ({_first(error)})", where=RUN_FILE) from None
    if not run.metadata.uid:
        raise BugError("the run has no uid", where=RUN_FILE)
    return run


def checked(kind: Any, data: bytes, where: str) -> Any:
    """Return a value of a type from JSON. Raises BugError, without the value, when it is something else."""
    try:
        return TypeAdapter(kind).validate_json(data)
    except ValidationError as error:
        raise BugError(f"it cannot be read ({_first(error)})", where=where) from None


def _first(error: Exception) -> str:
    """Return where something is wrong and why, without the value."""
    if not isinstance(error, ValidationError):
        return "no JSON"
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BugError(f"it cannot be read ({error.strerror})", where=str(path)) from None
