"""A rollout by the user's own container (on a laptop a command): the files it gets, the files it leaves."""

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
from combee.work.programs import ROLE, ProgramRunner, Wanted

__all__ = ["ROLE", "ContainerRunner", "Executor"]


End = TypeVar("End", covariant=True)


class Executor(Protocol[End]):
    """Runs one rollout's command to its end, in isolation: in a sandbox, or in a pod that fetches it from a desk."""

    async def run(
        self,
        files: Mapping[str, bytes],
        env: Mapping[str, str],
        left: Mapping[str, int],
        stop: asyncio.Future[CombeeError],
    ) -> End:
        """How it ended and which of ``left`` (name -> most bytes) it left. It is ended when ``stop`` is done."""
        ...


@dataclass(slots=True, kw_only=True)
class ContainerRunner(ProgramRunner):
    """Rolls out in a container."""

    container: CustomContainer
    executor: Executor[Ended]

    @property
    def concurrency(self) -> int:
        return self.container.concurrency

    async def identity(self, wanted: Wanted) -> dict[str, Any]:
        container = self.container
        return {
            "v": 1,
            "kind": "container",
            "image": container.image,
            "command": [*container.command, *container.args],
            "localCommand": list(container.local_command),
            "model": self.model_identity,
            "example": [wanted.example.id, wanted.example.digest],
            "artifact": wanted.shown.text,
            "ordinal": wanted.ordinal,
        }

    @property
    def attempts(self) -> int:
        return self.container.attempts

    async def once(self, wanted: Wanted, used: list[Visit]) -> tuple[Recording, float]:
        files = given_files(wanted.example, wanted.shown.text)
        with self.proxy.admit(wanted.ordinal) as visit:
            used.append(visit)
            ended = await self.executor.run(files, self._env(visit), LEFT, visit.fatal)
            if visit.fatal.done():
                raise visit.fatal.result()
        if visit.lost is not None:
            raise visit.lost
        return recording_left(ended), ended.seconds

    def _env(self, visit: Visit) -> dict[str, str]:
        return {
            "OPENAI_BASE_URL": self.proxy.url,
            "OPENAI_API_KEY": visit.key,
            "OPENAI_MODEL": self.proxy.model,
            "COMBEE_ORDINAL": str(visit.ordinal),
        }
