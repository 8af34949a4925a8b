"""The judges of a Playbook's canaries: observe, decide, apply."""

from __future__ import annotations

from dataclasses import dataclass

from combee.api.playbook import PlaybookSpec
from combee.clients.kubernetes.kube import Kube
from combee.names import PLAYBOOK_VERSION_KIND
from combee.objects.accounts import account_objects
from combee.objects.judge import judge_job
from combee.objects.types import Settings
from combee.observe.judges import see_judges
from combee.observe.playbooks import Observed
from combee.plan.playbook.judges import JudgesPlan, JudgesSeen, VersionContent, decide_judges, known_judges
from combee.plan.playbook.memory import VersionMemory
from combee.plan.playbook.serving import Version
from combee.plan.playbook.types import PlaybookPlan
from combee.records import Owner


@dataclass(slots=True)
class Judges:
    """Call ``look`` before a decision about the Playbook, and ``keep`` after it."""

    kube: Kube
    settings: Settings

    async def look(self, owner: Owner, spec: PlaybookSpec, now: float) -> JudgesSeen:
        """Return the state of the Playbook's Jobs."""
        return await see_judges(self.kube, owner, spec, now, secret_policy=self.settings.secret_policy)

    async def keep(
        self, owner: Owner, spec: PlaybookSpec, plan: PlaybookPlan, observed: Observed, seen: JudgesSeen
    ) -> float | None:
        """Make the Jobs that are due, and delete those of canaries that are over. Return the seconds until
        the next Job is due, None where no canary is under way."""
        known = map(Version.of, observed.versions.values())
        contents = {one.digest: VersionContent(one.config_map, one.content_digests) for one in known}
        judges = decide_judges(owner, spec, plan, contents, seen, observed.seen.now)
        made = await self._apply(judges, owner.namespace, observed.seen.now)
        for wish in plan.canaries:
            if (uid := made.get(wish.comparison.id)) is not None:
                # Now, since the operator may be away until the Job is gone: what it brought must count.
                before = VersionMemory.from_json(plan.versions[wish.version].state).job_uids
                status = {"state": {"judges": list(known_judges(before, [uid]))}}
                await self.kube.patch(
                    PLAYBOOK_VERSION_KIND, owner.namespace, wish.version, {"status": status}, part="status"
                )
        return judges.wake_after_seconds

    async def _apply(self, plan: JudgesPlan, namespace: str, now: float) -> dict[str, str]:
        """Return comparison -> the uid of the Job that was made for it."""
        for job in plan.delete:
            await self.kube.delete("Job", namespace, job.name, uid=job.uid)
        if plan.start:
            for body in account_objects(namespace, self.settings):
                await self.kube.create(body)
        made = {
            wish.comparison.id: await self.kube.create(judge_job(wish, now, self.settings))
            for wish in plan.start
        }
        return {comparison: str(job["metadata"]["uid"]) for comparison, job in made.items() if job}
