"""The Jobs that judge canaries: which there are, how they fare, and the next one where it is time for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from combee import names
from combee.api.common import one_line
from combee.api.playbook import PlaybookSpec
from combee.clients.kubernetes.kube import Kube, Object
from combee.objects.accounts import account_objects
from combee.objects.judge import MADE_OF, PAIRS_BEFORE, JudgeWish, judge_job, secrets_of
from combee.objects.types import Owner, Settings
from combee.observe.playbooks import Observed
from combee.observe.runs import PATIENCE_SECONDS, age, owned
from combee.plan.cluster.diagnose import being_set_up, diagnose
from combee.plan.cluster.seen import Trouble
from combee.plan.playbook.judging import (
    LONGEST_PAUSE_SECONDS,
    LOOK_SECONDS,
    MODES,
    SLOT_SECONDS,
    JudgeJob,
    wait_seconds,
)
from combee.plan.playbook.memory import VersionMemory
from combee.plan.playbook.queries import begins_at, ready_seconds
from combee.plan.playbook.types import CanaryWish, PlaybookPlan
from combee.times import seconds_of

WINDOWS_AT_ONCE = 5
"""Prometheus is asked when so many windows more are over, and after ten minutes at the latest."""
MAX_MESSAGE = 600
"""bytes of why a Job failed."""


@dataclass(frozen=True, slots=True)
class AtWork:
    """A Playbook's Jobs that judge."""

    jobs: Mapping[str, list[Object]] = field(default_factory=dict)
    """by test, the oldest first."""
    troubles: Mapping[str, str] = field(default_factory=dict)
    """by test: why its pairs are not being judged."""
    refused: str = ""
    """why none are."""

    def why(self, tests: Iterable[str]) -> dict[str, str]:
        """Those of ``tests`` that are not being judged, and why."""
        told = {test: self.refused or self.troubles.get(test, "") for test in tests}
        return {test: why for test, why in told.items() if why}


@dataclass(slots=True)
class Judges:
    """``look`` before a decision, ``keep`` after it."""

    kube: Kube
    fence: Callable[[], None]
    """raises unless we may write."""
    settings: Settings
    make_accounts: bool
    """whether accounts are made where they are needed; otherwise the chart has made them."""
    secret_policy: bool
    """whether the admission policy that guards Secrets is installed."""
    _accounts: set[str] = field(default_factory=set)
    """namespaces whose accounts were seen to."""

    async def look(self, owner: Owner, spec: PlaybookSpec, now: float) -> AtWork:
        """How the Jobs fare. One request, and two more for each test that is in trouble; none for a Playbook without
        such a canary."""
        if spec.canary is None or spec.canary.mode not in MODES:
            return AtWork()
        chosen = f"{names.LABEL_PLAYBOOK}={names.playbook_label(owner.name)},{names.LABEL_CANARY}"
        jobs: dict[str, list[Object]] = {}
        for job in await self.kube.list("Job", owner.namespace, labels=chosen):
            if owned(job, owner):
                jobs.setdefault(job["metadata"]["labels"][names.LABEL_CANARY], []).append(job)
        for mine in jobs.values():
            mine.sort(key=lambda job: str(job["metadata"]["creationTimestamp"]))
        told = await asyncio.gather(*(self._trouble(mine, now) for mine in jobs.values()))
        return AtWork(jobs, dict(zip(jobs, told, strict=True)), self._refused(spec))

    async def keep(
        self, owner: Owner, spec: PlaybookSpec, plan: PlaybookPlan, there: Observed, at_work: AtWork
    ) -> float | None:
        """Make the Jobs that it is time for, and end those of tests that are over; seconds until something is to
        be done again, None where no test is under way."""
        wishes = [wish for wish in plan.canaries if wish.test.mode in MODES]
        for test in at_work.jobs.keys() - {wish.test.id for wish in wishes}:
            for job in filter(_live, at_work.jobs[test]):
                self.fence()
                meta = job["metadata"]
                await self.kube.delete("Job", meta["namespace"], meta["name"], uid=meta["uid"])
        if at_work.refused:
            return None
        waits = []
        for wish in wishes:
            asked = _wish(owner, spec, plan, there, wish)
            if asked is not None:
                waits.append(await self._next(asked, at_work.jobs.get(wish.test.id, []), there.seen.now))
        return min(waits, default=None)

    async def _next(self, wish: JudgeWish, jobs: list[Object], now: float) -> float:
        """Make a test's Job if it is time for it; seconds until the test is to be looked at again."""
        asked, pause = wish.canary.prometheus, SLOT_SECONDS * 1.0
        if asked is not None:
            pause = min(LONGEST_PAUSE_SECONDS, max(pause, WINDOWS_AT_ONCE * asked.window_seconds))
        wait = wait_seconds(map(_job, jobs), wish.made_of(), wish.pairs, now, pause)
        if wait is None:
            return LOOK_SECONDS
        if asked is not None:
            wait = max(wait, ready_seconds(asked, wish.begins, wish.first, now))
        if wait > 0:
            return wait
        if self.make_accounts and wish.owner.namespace not in self._accounts:
            for body in account_objects(wish.owner.namespace, self.settings):
                self.fence()
                await self.kube.create(body)
            self._accounts.add(wish.owner.namespace)
        self.fence()
        await self.kube.create(judge_job(wish, now, self.settings))
        return LOOK_SECONDS

    def _refused(self, spec: PlaybookSpec) -> str:
        """Why a canary's Secrets are not mounted: only where somebody asked whether the author may get them."""
        if self.secret_policy or spec.canary is None:
            return ""
        named = sorted({ref.name for ref in secrets_of(spec.canary, spec.delivery.gateway).values()})
        if not named:
            return ""
        return (
            f"SecretNotAllowed: without the chart's admission policy {', '.join(named)} is not mounted. Ask whoever "
            "installed the chart for admissionPolicy.install"
        )

    async def _trouble(self, jobs: list[Object], now: float) -> str:
        """Why the last Job cannot start or, until another one has come to its end, why one failed."""
        ended = [job for job in jobs if not _live(job)]
        last = next(reversed(jobs), None)
        if last is not None and _live(last):
            stuck = not last.get("status", {}).get("ready") and age(last, now) > PATIENCE_SECONDS
            trouble = await self._diagnosed(last) if stuck else None
            if trouble is not None:
                return one_line(trouble.message, MAX_MESSAGE)
        if not ended or (failed := _failed(ended[-1])) is None:
            return ""
        trouble = await self._diagnosed(ended[-1])
        said = trouble.message if trouble is not None else str(failed.get("message", ""))
        return one_line(said, MAX_MESSAGE)

    async def _diagnosed(self, job: Object) -> Trouble | None:
        """Why a Job's pod does not run, or died."""
        namespace, uid = job["metadata"]["namespace"], job["metadata"]["uid"]
        pods = await self.kube.list("Pod", namespace, labels=f"batch.kubernetes.io/controller-uid={uid}")
        asked = being_set_up(pods) if pods else job
        if asked is None:
            return diagnose(pods)
        about = f"involvedObject.uid={asked['metadata']['uid']}"
        return diagnose(pods, await self.kube.list("Event", namespace, fields=about))


def _wish(
    owner: Owner, spec: PlaybookSpec, plan: PlaybookPlan, there: Observed, wish: CanaryWish
) -> JudgeWish | None:
    """What a test's Job is to do; None while a version's content is missing that it must put in front."""
    if spec.canary is None:
        return None
    contents = {one["spec"]["digest"]: one["spec"]["configMapName"] for one in there.versions.values()}
    if wish.test.against and wish.test.against not in contents:
        return None
    memory = VersionMemory.from_json(plan.versions[wish.version].state)
    asked = spec.canary.prometheus
    return JudgeWish(
        owner=owner,
        canary=spec.canary,
        gateway=spec.delivery.gateway,
        test=wish.test,
        digest=wish.digest,
        contents=contents,
        done=memory.tally.spans,
        pairs=wish.pairs,
        since=int(memory.since),
        begins=begins_at(memory.since, asked) if asked is not None else 0,
        first=memory.reading.last + 1 if memory.reading is not None else 0,
    )


def _job(raw: Object) -> JudgeJob:
    meta = raw["metadata"]
    notes = meta.get("annotations") or {}
    before = str(notes.get(PAIRS_BEFORE, ""))
    return JudgeJob(
        created=seconds_of(meta["creationTimestamp"]),
        live=_live(raw),
        made_of=str(notes.get(MADE_OF, "")),
        pairs=int(before) if before.isdigit() else -1,
    )


def _live(job: Object) -> bool:
    ended = {c["type"] for c in job.get("status", {}).get("conditions", ()) if c.get("status") == "True"}
    return not ended & {"Complete", "Failed"} and "deletionTimestamp" not in job["metadata"]


def _failed(job: Object) -> Mapping[str, object] | None:
    conditions = job.get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == "Failed" and c.get("status") == "True"), None)
