"""What a step pod mounts, and where: the contract between the operator and the worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from combee import names
from combee.api.parts import DataSource, InitialPlaybook
from combee.api.run import PromptLearningRun, RunSpec
from combee.names import STORE_FOLDER
from combee.objects.plans import PLAN_KEY, RUN_KEY
from combee.objects.pods import scratch
from combee.objects.types import Object, Settings
from combee.plan.types import Step
from combee.records import Owner
from combee.steps import KINDS

RUN_FOLDER = "/etc/combee/run"
PLAN_FOLDER = "/etc/combee/plan"
SECRETS_FOLDER = "/etc/combee/secrets"
DATA_FOLDER = "/data"
_OWNER_AND_GROUP_READ = 0o440


@dataclass(slots=True)
class Mounts:
    """The volumes and mounts of a pod while they are collected. A claim is declared once, however often
    it is mounted: a second volume of the same claim confuses attaching and publishing it."""

    volumes: list[Object] = field(default_factory=list)
    mounts: list[Object] = field(default_factory=list)
    _claims: dict[str, str] = field(default_factory=dict)

    def add(self, volume: Object, path: str, *, read_only: bool = True) -> None:
        """Declare ``volume`` and mount it at ``path``."""
        self.volumes.append(volume)
        self._mount(volume["name"], path, read_only)

    def claim(self, claim: str, name: str, path: str, *, read_only: bool = True) -> None:
        """Mount a claim. Read-only is set on the mount, never on the volume: drivers that attach a
        volume read-only would refuse the pod beside one that writes."""
        if claim not in self._claims:
            self._claims[claim] = name
            self.volumes.append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
        self._mount(self._claims[claim], path, read_only)

    def config_map(
        self, config_map: str, key: str, name: str, path: str, *, maybe: Sequence[str] = ()
    ) -> None:
        """Mount one key of a ConfigMap as the file ``path/key``, and besides those of the keys ``maybe`` that
        are there."""
        source: Object = {"name": config_map, "items": [{"key": key, "path": key}]}
        if not maybe:
            self.add({"name": name, "configMap": source}, path)
            return
        items = [{"key": one, "path": one} for one in maybe]
        other = {"name": config_map, "items": items, "optional": True}
        self.add(
            {"name": name, "projected": {"sources": [{"configMap": source}, {"configMap": other}]}}, path
        )

    def secret(self, secret: str, use: str, keys: tuple[str, ...] = ()) -> None:
        """Mount a Secret (only its ``keys``, where given) as the files of a use."""
        source: Object = {"secretName": secret, "defaultMode": _OWNER_AND_GROUP_READ}
        if keys:
            source["items"] = [{"key": key, "path": key} for key in keys]
        self.add({"name": f"secret-{use.lower()}", "secret": source}, f"{SECRETS_FOLDER}/{use}")

    def _mount(self, name: str, path: str, read_only: bool) -> None:
        mount: Object = {"name": name, "mountPath": path}
        if read_only:
            mount["readOnly"] = True
        self.mounts.append(mount)


def step_mounts(run: PromptLearningRun, owner: Owner, step: Step, settings: Settings) -> Mounts:
    """Return the volumes and mounts of a step's pods: those of the kind's row in ``steps``, and no others."""
    uses, made = KINDS[step.kind], Mounts()
    made.add(*_parts(*scratch(settings.worker_scratch)), read_only=False)
    made.config_map(names.run_config_name(owner.name, owner.uid), RUN_KEY, "run", RUN_FOLDER)
    if uses.planned:
        plan = names.plan_name(owner.name, owner.uid, step.iteration)
        made.config_map(plan, PLAN_KEY, "plan", PLAN_FOLDER)
    _store(made, run.spec, read_only=not uses.writes_store)
    for name, source in data_sources(run.spec):
        if name in uses.data:
            _data(made, name, source, components=run.spec.method.has_components)
    for role, model in run.spec.roles_in_use().items():
        secret = model.endpoint.api_key_secret_ref if model.endpoint is not None else None
        if role in uses.roles and secret is not None:
            made.secret(secret.name, f"role-{role}", (secret.key,))
    return made


def data_sources(spec: RunSpec) -> Iterator[tuple[str, DataSource | InitialPlaybook]]:
    """Yield the data that a run names, with the names that the contract gives them."""
    data = spec.task.data
    yield "train", data.train
    if data.held_out is not None:
        yield "heldOut", data.held_out
    if data.test is not None:
        yield "test", data.test
    if spec.task.initial_playbook is not None:
        yield "initialPlaybook", spec.task.initial_playbook


def store_address(spec: RunSpec) -> str:
    """Return what COMBEE_STORE says: a URI, or the folder that the claim is mounted at."""
    return spec.store.uri or STORE_FOLDER


def _store(made: Mounts, spec: RunSpec, *, read_only: bool) -> None:
    if spec.store.pvc is not None:
        made.claim(spec.store.pvc.claim_name, "store", STORE_FOLDER, read_only=read_only)
    if spec.store.secret_ref is not None:
        made.secret(spec.store.secret_ref.name, "store")


def _data(made: Mounts, name: str, source: DataSource | InitialPlaybook, *, components: bool = False) -> None:
    folder, volume = f"{DATA_FOLDER}/{name}", f"data-{name.lower()}"
    if source.config_map is not None:
        # What a run published has its components beside its text: a run that starts from it keeps them apart.
        published = isinstance(source, InitialPlaybook) and source.config_map.key == names.PROMPT_KEY
        maybe = (names.COMPONENTS_KEY,) if published and components else ()
        made.config_map(source.config_map.name, source.config_map.key, volume, folder, maybe=maybe)
    if isinstance(source, InitialPlaybook):
        return
    if source.pvc is not None:
        made.claim(source.pvc.claim_name, volume, folder)
    if source.secret_ref is not None:
        made.secret(source.secret_ref.name, name)


def _parts(volume: Object, mount: Object) -> tuple[Object, str]:
    return volume, mount["mountPath"]
