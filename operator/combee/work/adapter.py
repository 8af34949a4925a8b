"""Rollouts by an adapter of the gepa package: what its process is asked, and the recording in its reply."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from combee.api.tasks import CustomAdapter
from combee.clients.model.proxy import Visit
from combee.clients.sandbox.gepa_host import Hosts
from combee.tasks.adapter import asked_of, candidate_of, recording_said
from combee.tasks.traces import Recording
from combee.work.programs import ProgramRunner, Rollout


@dataclass(slots=True, kw_only=True)
class AdapterRunner(ProgramRunner):
    """Rolls out by an adapter, one example at a time. ``image``: the worker's that holds it, if named."""

    adapter: CustomAdapter
    hosts: Hosts
    image: str = ""
    noted: bool = False
    """whether the user was told that the adapter makes no reflective dataset of an example."""

    @property
    def concurrency(self) -> int:
        return self.adapter.concurrency

    @property
    def attempts(self) -> int:
        return 2

    async def identity(self, rollout: Rollout) -> dict[str, Any]:
        await self.hosts.ready()
        return {
            "kind": "adapter",
            "factory": [self.hosts.factory, self.hosts.code, self.image],
            "candidate": candidate_of(rollout.shown),
            "reflected": rollout.reflected,
        }

    async def attempt(self, rollout: Rollout, visits: list[Visit]) -> tuple[Mapping[str, Any], float]:
        request = asked_of(rollout.example, rollout.shown, reflected=rollout.reflected)
        async with self.hosts.host() as host:
            started = time.monotonic()
            with self.proxy.admit(rollout.ordinal, host.key, sampling=rollout.sampling) as visit:
                visits.append(visit)
                reply = await host.ask(request, self.hosts.seconds, visit.fatal)
                if visit.fatal.done():
                    raise visit.fatal.result()
            return reply, time.monotonic() - started

    def recording(self, rollout: Rollout, end: Mapping[str, Any]) -> Recording:
        recording = recording_said(rollout.example, end, self.hosts.factory)
        raised = end.get("unreflected", "")
        if raised and not self.noted:
            self.noted = True
            self.accounts.progress.note(
                f"make_reflective_dataset raised {raised}: nothing is learned of such an example"
            )
        return recording
