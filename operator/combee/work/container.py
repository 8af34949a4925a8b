"""Rollouts by the user's own container (on a laptop a command): the files it gets, and those it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from combee.api.tasks import CustomContainer
from combee.clients.model.proxy import Visit
from combee.errors import CombeeError
from combee.tasks.container import LEFT, Ended, given_files, recording_left
from combee.tasks.traces import Recording
from combee.work.programs import ProgramRunner, Rollout

End = TypeVar("End", covariant=True)


class Executor(Protocol[End]):
    """Runs one rollout's command in isolation: in a sandbox, or in a pod that fetches it from a desk."""

    async def run(
        self,
        files: Mapping[str, bytes],
        env: Mapping[str, str],
        left: Mapping[str, int],
        stop: asyncio.Future[CombeeError],
    ) -> End:
        """Run it; return how it ended with its files of ``left`` (name -> most bytes). ``stop`` ends it."""
        ...


@dataclass(slots=True, kw_only=True)
class ContainerRunner(ProgramRunner):
    """Rolls out in a container."""

    container: CustomContainer
    executor: Executor[Ended]

    @property
    def concurrency(self) -> int:
        return self.container.concurrency

    @property
    def attempts(self) -> int:
        return self.container.attempts

    async def identity(self, rollout: Rollout) -> dict[str, Any]:
        return {
            "kind": "container",
            "image": self.container.image,
            "command": [*self.container.command, *self.container.args],
            "localCommand": list(self.container.local_command),
            "artifact": rollout.shown.text,
        }

    async def attempt(self, rollout: Rollout, visits: list[Visit]) -> tuple[Ended, float]:
        files = given_files(rollout.example, rollout.shown.text)
        with self.proxy.admit(rollout.ordinal, sampling=rollout.sampling) as visit:
            visits.append(visit)
            env = {
                "OPENAI_BASE_URL": self.proxy.url,
                "OPENAI_API_KEY": visit.key,
                "OPENAI_MODEL": self.proxy.model,
                "COMBEE_ORDINAL": str(visit.ordinal),
            }
            ended = await self.executor.run(files, env, LEFT, visit.fatal)
            if visit.fatal.done():
                raise visit.fatal.result()
        return ended, ended.seconds

    def recording(self, rollout: Rollout, end: Ended) -> Recording:
        return recording_left(end)
