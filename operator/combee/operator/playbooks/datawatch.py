"""Tell whether a Playbook's data changed: ConfigMaps by their metadata, the rest by a Job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from combee.api.parts import DataSource
from combee.api.playbook import PlaybookSpec
from combee.clients.kubernetes.kube import Kube, Object
from combee.objects.accounts import account_objects
from combee.objects.datawatch import datawatch_job, labels_of, watched
from combee.objects.meta import owned
from combee.objects.types import Settings
from combee.observe.jobs import ended
from combee.observe.runs import worker_end
from combee.plan.playbook.datawatch import places, wait_seconds
from combee.records import Owner
from combee.times import seconds_of

LOOK_SECONDS = 5.0
"""between two looks at a Job that is at work."""


@dataclass(frozen=True, slots=True)
class DataSeen:
    """What is known of the data now."""

    marks: Mapping[str, str] = field(default_factory=dict)
    """place -> its mark, of those that could be told."""
    trouble: str = ""
    """why a pod could not tell."""
    last: float | None = None
    """when the last Job was made, in seconds since 1970."""
    live: bool = False
    """whether it is at work."""


@dataclass(slots=True)
class DataWatch:
    """``look`` before a decision, ``keep`` after it."""

    kube: Kube
    settings: Settings

    async def look(self, owner: Owner, spec: PlaybookSpec) -> DataSeen:
        """What ConfigMaps and the last Job say. No request where no change of data starts a run."""
        named = self._places(spec)
        if not named:
            return DataSeen()
        marks = await self._config_maps(owner, named)
        if not watched(named):
            return DataSeen(marks)
        labels = ",".join(f"{name}={value}" for name, value in labels_of(owner.name).items())
        jobs = [
            job for job in await self.kube.list("Job", owner.namespace, labels=labels) if owned(job, owner)
        ]
        jobs.sort(key=lambda job: str(job["metadata"]["creationTimestamp"]))
        if not jobs:
            return DataSeen(marks)
        last = seconds_of(jobs[-1]["metadata"]["creationTimestamp"])
        past = [job for job in jobs if ended(job)]
        report = await self._report(past[-1]) if past else {}
        places = report.get("marks")
        if isinstance(places, dict):
            marks |= {str(key): str(mark) for key, mark in places.items()}
        return DataSeen(marks, str(report.get("error", "")), last, live=ended(jobs[-1]) is None)

    async def keep(self, owner: Owner, spec: PlaybookSpec, seen: DataSeen, now: float) -> float | None:
        """Make the Job that it is time for; seconds until somebody is to look again, None where nobody is."""
        named = self._places(spec)
        if not named or spec.learn is None:
            return None
        poll = spec.learn.poll_seconds
        body = datawatch_job(owner, named, poll, now, self.settings)
        if body is None:
            return float(poll)
        if seen.live:
            return LOOK_SECONDS
        wait = wait_seconds(seen.last, poll, now)
        if wait > 0:
            return wait
        for one in (*account_objects(owner.namespace, self.settings), body):
            await self.kube.create(one)
        return LOOK_SECONDS

    def _places(self, spec: PlaybookSpec) -> dict[str, DataSource]:
        """Without the policy no Secret is mounted; the runs that would name it are refused with the
        reason."""
        if spec.learn is None:
            return {}
        named = places(spec.learn)
        return {
            key: one for key, one in named.items() if self.settings.secret_policy or one.secret_ref is None
        }

    async def _config_maps(self, owner: Owner, named: Mapping[str, DataSource]) -> dict[str, str]:
        """Their resource versions; their content is not read."""
        marks = {}
        for key, source in named.items():
            if source.config_map is None:
                continue
            chosen = f"metadata.name={source.config_map.name}"
            for one in await self.kube.list("ConfigMap", owner.namespace, fields=chosen, bare=True):
                if one["metadata"]["name"] == source.config_map.name:
                    marks[key] = str(one["metadata"]["resourceVersion"])
        return marks

    async def _report(self, job: Object) -> Mapping[str, object]:
        """What the Job's pod left in its termination message; empty where that cannot be read."""
        chosen = f"batch.kubernetes.io/controller-uid={job['metadata']['uid']}"
        for pod in await self.kube.list("Pod", job["metadata"]["namespace"], labels=chosen):
            try:
                report = json.loads(str((worker_end(pod) or {}).get("message", "")))
            except ValueError:
                continue
            if isinstance(report, dict):
                return report
        return {}
