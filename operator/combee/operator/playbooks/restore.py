"""Versions whose ConfigMap was replaced or deleted: what a run published is put back.

From what is left of it and what is delivered, where each key has its digest there; else from the run's store,
by a Job that publishes once more. What is put back is looked at like everything else: by its digests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from combee import names
from combee.api.load import parse_resource
from combee.api.playbook_status import VersionPhase
from combee.api.run import PromptLearningRun
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import CombeeError
from combee.objects.accounts import account_objects
from combee.objects.jobs import step_job
from combee.objects.meta import owned
from combee.objects.playbooks import playbook_reference, published_config_map
from combee.objects.types import Settings
from combee.objects.versions import version_labels
from combee.observe.jobs import ended
from combee.observe.playbooks import Observed
from combee.plan.cluster.decide import Run, publish_step
from combee.plan.cluster.happenings import Happening
from combee.plan.cluster.memory import Memory
from combee.plan.decide import Identity
from combee.plan.playbook.authentic import digest_of_text
from combee.plan.playbook.types import PlaybookPlan, VersionSeen
from combee.records import Owner

AGAIN_SECONDS = 5.0
SLOT_SECONDS = 300
"""A version is published again at most once in this time."""
KEPT_SECONDS = 600
"""How long a Job that ended stays; after one that failed the next is made only then."""


@dataclass(slots=True)
class Restorer:
    """Puts back what runs published for a Playbook."""

    kube: Kube
    settings: Settings

    async def restore(
        self, owner: Owner, plan: PlaybookPlan, observed: Observed, now: float
    ) -> tuple[tuple[Happening, ...], float | None]:
        """Put back what is not as it was published. Return what a person must do where that cannot be, and
        the seconds until the next look; None where all is well."""
        gone = {*plan.prune_versions, *plan.prune_contents}
        broken = [
            version
            for version in observed.seen.versions
            if version.spec.content_digests
            and not version.has_content
            and version.name not in gone
            and plan.versions[version.name].phase is not VersionPhase.REFUSED
        ]
        troubles = [await self._put_back(owner, version, observed, now) for version in broken]
        events = tuple(Happening("Warning", "NotRestored", trouble) for trouble in troubles if trouble)
        return events, AGAIN_SECONDS if broken else None

    async def _put_back(self, owner: Owner, version: VersionSeen, observed: Observed, now: float) -> str:
        """Put one version's content back, or begin to; return why not, empty otherwise."""
        name, digests = version.spec.config_map_name, version.spec.content_digests
        present = await self.kube.get("ConfigMap", owner.namespace, name)
        left = authentic_parts(digests, present, observed.delivered)
        job = None if left.keys() == digests.keys() else await self._publish_again(owner, version, now)
        if job is None and left.keys() != digests.keys():
            return (
                f"ConfigMap {name} cannot be put back: the run that published it is gone; apply it from a "
                "backup, or apply that run once more, by its name"
            )
        last = await self._last_job(owner, version) if job is not None else None
        if last is not None and (failed := ended(last, "Failed")) is not None:
            return (
                f"ConfigMap {name} cannot be put back: Job {last['metadata']['name']} failed "
                f"({failed.get('message', '')}); look at its pods' logs. The next try comes in ten minutes"
            )
        if present is not None:
            labels = present["metadata"].get("labels") or {}
            if labels.get(names.LABEL_MANAGED_BY) != names.MANAGED_BY:
                return f"ConfigMap {name} is not the operator's to delete: delete it, and it is put back"
            await self.kube.delete("ConfigMap", owner.namespace, name, uid=present["metadata"]["uid"])
        if job is None:
            await self.kube.create(published_config_map(owner, name, version.digest, left))
            return ""
        if last is not None and ended(last, "Complete") is None:
            return ""
        for body in account_objects(owner.namespace, self.settings):
            await self.kube.create(body)
        await self.kube.create(job)
        return ""

    async def _last_job(self, owner: Owner, version: VersionSeen) -> Object | None:
        """Return the newest Job that was made to publish a version again; None where there is none."""
        selector = f"{names.LABEL_PLAYBOOK}={names.playbook_label(owner.name)}"
        begins = names.restore_name(owner.name, version.digest, 0).removesuffix("0")
        jobs = [
            job
            for job in await self.kube.list("Job", owner.namespace, labels=selector)
            if job["metadata"]["name"].startswith(begins) and owned(job, owner)
        ]
        return max(jobs, key=lambda job: str(job["metadata"]["creationTimestamp"]), default=None)

    async def _publish_again(self, owner: Owner, version: VersionSeen, now: float) -> Object | None:
        """Return the Job that publishes a version from its run's store; None where the run is gone."""
        ref = version.spec.run_ref
        raw = await self.kube.get(names.RUN_KIND, owner.namespace, ref.name) if ref is not None else None
        if raw is None or ref is None or raw["metadata"]["uid"] != ref.uid:
            return None
        body = {part: raw[part] for part in ("apiVersion", "kind", "metadata", "spec")}
        try:
            run = parse_resource(body, "")
            memory = Memory.from_status((raw.get("status") or {}).get("state"))
        except CombeeError:
            return None
        best = memory.run.best
        if not isinstance(run, PromptLearningRun) or best is None or best.artifact != version.digest:
            return None
        return _job(run, memory, owner, version, self.settings, int(now // SLOT_SECONDS))


def authentic_parts(digests: Mapping[str, str], *config_maps: Object | None) -> dict[str, str]:
    """Return what some ConfigMaps still have of a published content, by key."""
    texts = [(key, text) for one in config_maps if one for key, text in (one.get("data") or {}).items()]
    return {key: text for key, text in texts if digests.get(key) == digest_of_text(text)}


def _job(
    run: PromptLearningRun, memory: Memory, owner: Owner, version: VersionSeen, settings: Settings, slot: int
) -> Object:
    """Return the run's publish step as a Job of the Playbook's: the run itself is over, and waits in no
    queue."""
    spec = run.spec.model_copy(update={"queue": None})
    uid = str(version.spec.run_ref.uid) if version.spec.run_ref is not None else ""
    learner = Owner(run.metadata.name, owner.namespace, uid)
    about = Run(Identity(learner.name, learner.uid[:8]), spec)
    image = memory.images.get("worker", settings.worker_image)
    again = run.model_copy(update={"spec": spec})
    pinned = replace(settings, worker_image=image)
    job = step_job(again, learner, publish_step(about, memory), 0, pinned)
    job["metadata"] = {
        "name": names.restore_name(owner.name, version.digest, slot),
        "namespace": owner.namespace,
        "labels": version_labels(owner.name),
        "ownerReferences": [playbook_reference(owner)],
    }
    job["spec"]["ttlSecondsAfterFinished"] = KEPT_SECONDS
    return job
