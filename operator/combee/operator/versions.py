"""The PlaybookVersions of a Playbook: listing them, making those of runs, and the version that a run starts
from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import ValidationError

from combee import names
from combee.api.parts import InitialPlaybook
from combee.api.run import PromptLearningRun, RunSpec
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import BugError, ClusterError
from combee.methods.registry import UNNAMED
from combee.objects.versions import version_object
from combee.plan.cluster.memory import Memory, Start
from combee.plan.playbook.authentic import digest_of_text
from combee.plan.playbook.changed import Looks, looks_of
from combee.plan.playbook.serving import Version, Wanted, serving
from combee.records import Owner


@dataclass(slots=True)
class Versions:
    """Reads and makes PlaybookVersions for runs."""

    kube: Kube

    async def of(self, namespace: str, playbook: str) -> list[Object]:
        """Return the versions of a Playbook as raw objects."""
        versions = await self.kube.list(names.PLAYBOOK_VERSION_KIND, namespace)
        return [version for version in versions if version["spec"]["playbookRef"]["name"] == playbook]

    async def started(self, run: PromptLearningRun, owner: Owner, memory: Memory) -> Memory:
        """Return the memory with the version that learning starts from: the active one when the run is first
        seen. One that may hold what the run forgets is not started from."""
        initial, playbook = run.spec.task.initial_playbook, run.spec.playbook_ref
        if initial is None or not initial.active_version or playbook is None or memory.start is not None:
            return memory
        versions = [Version.of(version) for version in await self.of(owner.namespace, playbook.name)]
        raw_playbook = await self.kube.get(names.PLAYBOOK_KIND, owner.namespace, playbook.name)
        digest = serving(Wanted.of(raw_playbook or {}), versions)
        active = next((version for version in versions if version.digest == digest), None)
        forgotten = {*run.spec.task.data.forgotten}
        if active is None or not forgotten <= active.forgotten:
            return replace(memory, start=Start())
        digests = active.content_digests
        start = Start(active.digest, active.config_map, digests, _key_in(run, digests))
        return replace(memory, start=start)

    async def looks(self, spec: RunSpec, namespace: str) -> Looks | None:
        """Return what a run's Playbook knows of heldOuts; None where there is none, or it is a later
        release's: its gate asks."""
        ref = spec.playbook_ref
        playbook = await self.kube.get(names.PLAYBOOK_KIND, namespace, ref.name) if ref is not None else None
        if ref is None or playbook is None:
            return None
        try:
            return looks_of(playbook, await self.of(namespace, ref.name))
        except (BugError, ValidationError):
            return None

    async def announce(self, run: PromptLearningRun, owner: Owner, memory: Memory) -> None:
        """Make the version of the learned artifact, unless it exists. Learning the same artifact again
        changes nothing, and people's decision about it stays. Raises ClusterError when another artifact has
        its name."""
        body = version_object(run, owner, memory)
        if await self.kube.create(body) is not None:
            return
        name = body["metadata"]["name"]
        existing = await self.kube.get(names.PLAYBOOK_VERSION_KIND, owner.namespace, name)
        if existing is not None and existing["spec"]["digest"] != body["spec"]["digest"]:
            raise ClusterError(
                "a version of this name is of another artifact",
                where=f"{names.PLAYBOOK_VERSION_KIND} {owner.namespace}/{name}",
                fix="Delete it, when it was not made by a run",
                status=409,
            )


def with_start(run: PromptLearningRun, memory: Memory) -> PromptLearningRun:
    """Return the run for its pods: its initial playbook is the ConfigMap of the version that was active when
    it began."""
    if memory.start is None:
        return run
    source = None
    if memory.start.config_map:
        digests, initial = memory.start.content_digests, run.spec.task.initial_playbook
        # Where none is noted, the pods are of an earlier release, which knows nothing of ledgers.
        several = run.spec.method.has_components and names.COMPONENTS_KEY in digests
        key = memory.start.key or (names.COMPONENTS_KEY if several else names.PROMPT_KEY)
        pinned = initial.sha256 if initial is not None else None
        # A manifest pins the text of a version; its components and its ledger have digests of their own.
        sha256 = digests.get(key) if pinned in (None, digests.get(names.PROMPT_KEY)) else pinned
        ref = {"name": memory.start.config_map, "key": key}
        source = InitialPlaybook.model_validate({"configMap": ref, "sha256": sha256})
    task = run.spec.task.model_copy(update={"initial_playbook": source})
    return run.model_copy(update={"spec": run.spec.model_copy(update={"task": task})})


def _key_in(run: PromptLearningRun, digests: Mapping[str, str]) -> str:
    """Return the key of a version's ConfigMap that a run starts from."""
    method = run.spec.method
    learned_by = None if method.type == UNNAMED else digest_of_text(method.type)
    return method.start_in(digests, own=digests.get(names.METHOD_KEY) == learned_by)


def with_models(run: PromptLearningRun, memory: Memory) -> PromptLearningRun:
    """Return the run for its pods: each engine that refers to a server has the model that was there when the
    run first saw it."""
    engines = tuple(
        engine.model_copy(update={"ref": engine.ref.model_copy(update={"model": served.model})})
        if engine.ref is not None and (served := memory.services.get(engine.name)) is not None
        else engine
        for engine in run.spec.engines
    )
    return run.model_copy(update={"spec": run.spec.model_copy(update={"engines": engines})})
