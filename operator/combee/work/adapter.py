"""A rollout by an adapter of the gepa package: who is asked, and what is made of the answer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from combee.api.tasks import CustomAdapter
from combee.clients.model.proxy import Visit
from combee.clients.sandbox.gepa_host import Hosts
from combee.tasks.adapter import asked_of, candidate_of, recording_said
from combee.tasks.traces import Recording
from combee.work.programs import ProgramRunner, Wanted

ATTEMPTS = 2
"""How often a rollout is tried whose process dies."""


@dataclass(slots=True, kw_only=True)
class AdapterRunner(ProgramRunner):
    """Rolls out by an adapter, each example by itself. ``image``: the worker's that holds it, where one is named."""

    adapter: CustomAdapter
    hosts: Hosts
    image: str = ""
    noted: bool = False
    """whether it was told that the adapter has nothing to say of an example"""

    @property
    def concurrency(self) -> int:
        return self.adapter.concurrency

    async def identity(self, wanted: Wanted) -> dict[str, Any]:
        await self.hosts.ready()
        return {
            "v": 1,
            "kind": "adapter",
            "factory": [self.hosts.factory, self.hosts.code, self.image],
            "model": self.model_identity,
            "example": [wanted.example.id, wanted.example.digest],
            "candidate": candidate_of(wanted.shown),
            "ordinal": wanted.ordinal,
            "reflected": wanted.reflected,
        }

    @property
    def attempts(self) -> int:
        return ATTEMPTS

    async def once(self, wanted: Wanted, used: list[Visit]) -> tuple[Recording, float]:
        request = asked_of(wanted.example, wanted.shown, reflected=wanted.reflected)
        async with self.hosts.host() as host:
            began = time.monotonic()
            with self.proxy.admit(wanted.ordinal, host.key) as visit:
                used.append(visit)
                reply = await host.ask(request, self.hosts.seconds, visit.fatal)
                if visit.fatal.done():
                    raise visit.fatal.result()
            seconds = time.monotonic() - began
        if visit.lost is not None:
            raise visit.lost
        recording = recording_said(wanted.example, reply, self.hosts.factory)
        self._note(str(reply.get("unreflected", "")))
        return recording, seconds

    def _note(self, raised: str) -> None:
        if raised and not self.noted:
            self.noted = True
            self.progress.note(
                f"make_reflective_dataset raised {raised}: nothing is learned of such an example"
            )
