"""What stands for cluster parts on a laptop: flags become endpoints, keys and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from combee.api.common import ConfigMapKeyRef, SecretKeyRef, uri_scheme
from combee.api.engines import Engine, Vllm
from combee.api.local import INITIAL_PLAYBOOK, USUAL_URL, Given, sources
from combee.api.parts import DataSource
from combee.api.run import PromptLearningRun, RunSpec
from combee.assembly.endpoints import checked_key, role_endpoints
from combee.assembly.splits import cluster_field, read_playbook, read_split, refuse_overlap
from combee.clients.model.wire import Endpoint
from combee.errors import DataError, UserError
from combee.local.flags import StandInFlags
from combee.report.bundle import RESULT_FILE
from combee.report.result import read_result
from combee.settings import environment_value, is_set
from combee.tasks.dataset import Dataset
from combee.tasks.protocol import Task

OPENAI_HOST = "api.openai.com"
OPENAI_KEY = "OPENAI_API_KEY"


NOWHERE = "http://nowhere.invalid/v1"
"""the address of an engine that nobody asks; names under .invalid are no host's (RFC 2606)."""


@dataclass(frozen=True, slots=True)
class StandIns:
    """The flags of ``StandInFlags``, parsed."""

    engines: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """``NAME/KEY`` -> environment variable."""
    data: Mapping[str, str] = field(default_factory=dict)
    task_user: str = ""
    """``--task-user``: the first user id of a container task's commands, or ``me``."""
    engine_keys: Mapping[str, str] = field(default_factory=dict)
    """engine -> environment variable."""
    engine_models: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)
    """split -> its text, from a ConfigMap that stands in the manifest's file."""

    def names(self) -> Given:
        """The names that are given."""
        parts = (
            self.engines,
            self.engine_keys,
            self.engine_models,
            self.secrets,
            {**self.data, **self.beside},
        )
        return Given(*(frozenset(part) for part in parts))


def parse_stand_ins(flags: StandInFlags, task_user: str = "") -> StandIns:
    """The flags as mappings. UserError showing the form when one is not NAME=VALUE."""
    return StandIns(
        engines=_pairs("--engine", f"NAME=URL, such as main={USUAL_URL}", flags.engines),
        secrets=_variables("--secret", "NAME/KEY=env:VARIABLE", flags.secrets),
        data=_pairs("--data", "SPLIT=PATH, such as train=rows.jsonl", flags.data),
        task_user=task_user,
        engine_keys=_variables("--engine-key", "NAME=env:VARIABLE", flags.engine_keys),
        engine_models=_pairs("--engine-model", "NAME=MODEL, such as main=gpt-5-mini", flags.engine_models),
    )


def _variables(flag: str, form: str, values: Sequence[str]) -> dict[str, str]:
    """Name -> environment variable. A value that is not one may be the key itself, and is not shown."""
    variables = {}
    for name, value in _pairs(flag, form, values).items():
        if not value.startswith("env:") or not value[4:]:
            what = (
                "a secret comes from the environment"
                if flag == "--secret"
                else "a key comes from the environment"
            )
            raise UserError(what, where=f"{flag} {name}", fix=f"Write {flag} {name}=env:VARIABLE")
        variables[name] = value[4:]
    return variables


def _pairs(flag: str, form: str, values: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, rest = value.partition("=")
        if not equals or not name or not rest:
            where = flag if "=env:" in form else f"{flag} {name}"  # it may be the key itself
            raise UserError(f"not of the form {form.split(',')[0]}", where=where, fix=f"Write {flag} {form}")
        pairs[name] = rest
    return pairs


def with_config_maps(
    given: StandIns, run: PromptLearningRun, maps: Mapping[str, Mapping[str, object]]
) -> StandIns:
    """``given`` with the splits and the initial playbook whose ConfigMaps are in ``maps``."""
    wanted = {name: source.config_map for name, source in sources(run).items()}
    if run.spec.task.initial_playbook is not None:
        wanted[INITIAL_PLAYBOOK] = run.spec.task.initial_playbook.config_map
    texts = {
        name: maps[ref.name].get(ref.key)
        for name, ref in wanted.items()
        if ref is not None and name not in given.data and ref.name in maps
    }
    return replace(given, beside={name: text for name, text in texts.items() if isinstance(text, str)})


def with_engine_models(run: PromptLearningRun, given: StandIns) -> PromptLearningRun:
    """``run`` with the models that ``--engine-model`` names. An engine that serves another model has
    no revision and no arguments. Names that stand for no engine are left to the other checks.

    Raises UserError where the manifest has prices and none is the other model's: nothing would count what it
    costs, for GPUs of the run's own do not serve it.
    """
    if not given.engine_models:
        return run
    engines = [
        _serving(engine, given.engine_models[engine.name]) if engine.name in given.engine_models else engine
        for engine in run.spec.engines
    ]
    spec = run.spec.model_copy(update={"engines": tuple(engines)})
    for role, unpriced in spec.unpriced().items():
        ref, model = unpriced.engine_ref, spec.model_name(role)
        if ref is not None and model != run.spec.model_name(role):
            raise UserError(
                f"the manifest's prices say nothing of {model}",
                where=f"--engine-model {ref.name}",
                fix="Add it under prices.models, with prices of 0 where it costs nothing",
            )
    return run.model_copy(update={"spec": spec})


def uncounted(spec: RunSpec) -> tuple[str, ...]:
    """A warning for each model that costs its GPUs' time alone: a laptop has no GPUs of the run's own."""
    models = dict.fromkeys(spec.model_name(role) for role in spec.unpriced())
    return tuple(
        f"prices say nothing of the tokens of {model}, and a laptop does not count the time of its GPUs: it "
        "costs nothing here, and budget.money does not hold it. Add it under prices.models"
        for model in models
    )


def _serving(engine: Engine, model: str) -> Engine:
    if model == engine.model:
        return engine
    try:
        named = Vllm(model=model).model
    except ValueError:
        raise UserError(
            "not the name of a model",
            where=f"--engine-model {engine.name}",
            fix="Write it as the server lists it",
        ) from None
    other: dict[str, Any] = {"model": named, "revision": None}
    if engine.ref is not None:
        return engine.model_copy(update={"ref": engine.ref.model_copy(update=other)})
    return engine.model_copy(update={"vllm": engine.server.model_copy(update={**other, "args": ()})})


def endpoints(run: PromptLearningRun, given: StandIns, *, recorded: bool = False) -> dict[str, Endpoint]:
    """Role -> endpoint, for the roles in use. Where nobody asks them, an engine needs no address and a
    model no key."""

    def engine_url(engine: str) -> tuple[str, str]:
        return NOWHERE if recorded else given.engines[engine], f"--engine {engine}"

    def engine_key(engine: str) -> tuple[str, str]:
        flag = f"--engine-key {engine}"
        if recorded:
            return "", ""
        if engine in given.engine_keys:
            variable = given.engine_keys[engine]
            return _key_in(variable, flag), f"{flag}=env:{variable}"
        if is_openai(given.engines[engine]) and is_set(OPENAI_KEY):
            return _key_in(OPENAI_KEY, OPENAI_KEY), OPENAI_KEY
        return "", ""

    def key_of(_role: str, ref: SecretKeyRef) -> tuple[str, str]:
        if recorded:
            return "", ""
        name = f"{ref.name}/{ref.key}"
        variable = given.secrets[name]
        return _key_in(variable, f"--secret {name}"), f"--secret {name}=env:{variable}"

    return role_endpoints(run.spec, engine_url=engine_url, key_of=key_of, engine_key=engine_key)


def check_keys(given: StandIns) -> None:
    """Read every key of an engine, also of one that no role asks. UserError naming the flag."""
    for engine, variable in given.engine_keys.items():
        _key_in(variable, f"--engine-key {engine}")


def is_openai(url: str) -> bool:
    """Whether a key of OpenAI may go there: to its own host and to no other, and never in the clear."""
    parts = urlsplit(url)
    return parts.scheme == "https" and parts.hostname == OPENAI_HOST


def _key_in(variable: str, flag: str) -> str:
    return checked_key(
        environment_value(variable, wanted_for=flag),
        shown=variable,
        where=flag,
        fix=f"export {variable} again with the key alone",
    )


def locate(uri: str, base: Path) -> str:
    """A data address: a path is relative to the manifest's folder, ``file:`` may be written."""
    if uri.startswith("file:"):
        uri = uri.removeprefix("file://").removeprefix("file:")
    return uri if "://" in uri else str(base / uri)


class HeldData:
    """Splits that are in memory already."""

    def __init__(self, splits: Mapping[str, Dataset]) -> None:
        self._splits = splits

    async def train(self) -> Dataset:
        """Return the rows to learn from."""
        return self._splits["train"]

    async def held_out(self) -> Dataset | None:
        """Return the rows to select and gate on."""
        return self._splits.get("heldOut")

    async def test(self) -> Dataset | None:
        """Return the rows that are scored once."""
        return self._splits.get("test")


def read_splits(run: PromptLearningRun, task: Task, given: StandIns, base: Path) -> dict[str, Dataset]:
    """Every split, read and checked. DataError when heldOut or test shares a row with train."""
    splits: dict[str, Dataset] = {}
    for name, source in sources(run).items():
        cluster_by, forgotten = cluster_field(run.spec.task, name), source.forgotten or ()
        read = partial(read_split, task, cluster_by=cluster_by, forgotten=forgotten)
        if name in given.data:
            splits[name] = read(_local_copy(name, given))
        elif name in given.beside:
            splits[name] = read(_named(source.config_map), text=given.beside[name])
        else:
            splits[name] = read(locate(source.uri or "", base), _secret_of(source, given))
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
        return read_playbook(_start_in(_local_copy(INITIAL_PLAYBOOK, given), run))
    if INITIAL_PLAYBOOK in given.beside:
        beside = given.beside[INITIAL_PLAYBOOK]
        return read_playbook(_named(initial.config_map), sha256=initial.sha256, text=beside)
    return read_playbook(_start_in(locate(initial.uri or "", base), run), sha256=initial.sha256)


def _start_in(path: str, run: PromptLearningRun) -> str:
    """The file that a run starts from where ``path`` is the folder of another run; else ``path``."""
    folder = Path(path)
    if not folder.is_dir():
        return path
    method, file = run.spec.method, folder / RESULT_FILE
    setup = read_result(file.read_bytes(), where=str(file)).setup if file.is_file() else None
    own = setup is None or setup.method in ("", method.type)
    left = {one.name for one in folder.iterdir()}
    return str(folder / method.start_in(left, own=own))


def _named(ref: ConfigMapKeyRef | None) -> str:
    """The name of a ConfigMap's key in messages."""
    return f"ConfigMap {ref.name}: {ref.key}" if ref is not None else ""


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
