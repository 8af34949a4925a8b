"""Rollouts of a task in a container: on a laptop they run the manifest's command in a sandbox, on a cluster a
pod."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from starlette.routing import Route

from combee.api.run import PromptLearningRun, RunSpec
from combee.api.tasks import CustomContainer
from combee.api.texts import in_bytes
from combee.assembly.adapters import Accounts, adapter_of, rolling_out_by_adapter
from combee.assembly.context import Models, Share
from combee.clients.model.agents import AGENT
from combee.clients.model.proxy import ModelProxy
from combee.clients.model.wire import Budget, Endpoint, OnCall
from combee.clients.sandbox.sandbox import Limits, Run, Sandbox
from combee.clients.sandbox.users import FIRST, MOST, Users
from combee.clients.store.store import Store
from combee.errors import CombeeError, ManifestError, UserError
from combee.settings import program_path
from combee.tasks.container import Ended, Fault
from combee.work.container import ROLE, ContainerRunner
from combee.work.context import Progress, Runner

ME = "me"
_LAST_ID = 65_533
_WHY = {"timeout": Fault.TIMEOUT, "disk": Fault.WROTE_TOO_MUCH, "stopped": Fault.CRASHED}
_FIX = f"Run it as root, or give --task-user {ME} to run the task's command with your own rights"


def container_of(spec: RunSpec) -> CustomContainer | None:
    """Return the container of the task, or None."""
    return spec.task.container


def with_agent(spec: RunSpec, endpoints: Mapping[str, Endpoint]) -> Mapping[str, Endpoint]:
    """Return ``endpoints``, with the task model's also for the calls of an agent (in a container or an
    adapter)."""
    if (container_of(spec) is None and adapter_of(spec) is None) or ROLE not in endpoints:
        return endpoints
    return {**endpoints, AGENT: endpoints[ROLE]}


def sandbox_of(run: PromptLearningRun, user: str, base: Path) -> Sandbox | None:
    """Return the sandbox of a container's rollouts on a laptop, with ``base`` as its working directory; None
    for any other task.

    ``user`` is the value of --task-user. Raises UserError when there is no command or no user to run it as,
    or when the flag has no use.
    """
    container = container_of(run.spec)
    if container is None:
        if user:
            raise UserError(
                "there is no task in a container here", where="--task-user", fix="Leave the flag out"
            )
        return None
    command = container.local_command or (*container.command, *container.args)
    if not command:
        raise ManifestError(
            "an image is run on a cluster, and this runs on a laptop",
            where="spec.task.custom.container.localCommand",
            fix="Give the command that stands for it, such as [python3, solve.py]",
        )
    return Sandbox(
        command=command,
        folder=base,
        limits=Limits(
            seconds=container.timeout_seconds,
            memory_bytes=in_bytes(container.memory),
            scratch_bytes=in_bytes(container.scratch),
            processes=container.processes,
        ),
        users=_users(user),
        path=program_path(),
        shown="spec.task.custom.container",
    )


def _users(user: str) -> Users | None:
    if user == ME:
        return None
    if os.geteuid() != 0:
        raise UserError(
            "only root can run a task's command as another user, which keeps it from what is yours",
            where="--task-user" if user else "spec.task.custom.container",
            fix=_FIX,
        )
    if not user:
        return Users()
    if not (user.isascii() and user.isdigit()) or not FIRST // 64 <= int(user) <= _LAST_ID - MOST:
        raise UserError(
            "neither a user id nor the word me",
            where="--task-user",
            fix=f"Give the first of {MOST} unused ids, from {FIRST // 64} to {_LAST_ID - MOST}, or {ME}",
        )
    return Users(int(user))


class Runs(Protocol):
    """A sandbox, or a desk where pods fetch rollouts."""

    async def run(
        self,
        files: Mapping[str, bytes],
        env: Mapping[str, str],
        outputs: Mapping[str, int],
        stop: asyncio.Future[Any],
    ) -> Run:
        """Return how the rollout ended, with those of ``outputs`` (name -> most bytes) that it wrote."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task's rollouts run, and where the endpoint of their agents is served."""

    runs: Runs
    host: str = "127.0.0.1"
    port: int = 0
    beside: tuple[Route, ...] = ()
    """Further routes that are served there."""
    at_once: int = 0
    """How many rollouts run at once; 0: as many as the manifest says."""


@dataclass(frozen=True, slots=True)
class _Executor:
    """Implements ``work.container.Executor``."""

    runs: Runs

    async def run(
        self,
        files: Mapping[str, bytes],
        env: Mapping[str, str],
        left: Mapping[str, int],
        stop: asyncio.Future[CombeeError],
    ) -> Ended:
        run = await self.runs.run(files, env, left, stop)
        return Ended(run.code, run.seconds, _WHY.get(run.why), run.files, run.said)


@asynccontextmanager
async def rolling_out(
    spec: RunSpec,
    place: Place | None,
    models: Models,
    store: Store,
    prefix: str,
    *,
    on_call: OnCall,
    budget: Budget,
    progress: Progress,
    share: Share,
) -> AsyncIterator[Runner | None]:
    """Yield the runner of a task in a container or an adapter while its proxy is served; None for any other
    task. ``share``: the part of the run's rollouts that belongs to this process."""
    if adapter_of(spec) is not None:
        accounts = Accounts(store, prefix, on_call, budget, progress)
        async with rolling_out_by_adapter(spec, models, accounts, share) as runner:
            yield runner
        return
    container = container_of(spec)
    if container is None or place is None or AGENT not in models.clients:
        yield None
        return
    model = spec.roles()[ROLE]
    sampling = (model.sampling.temperature, model.sampling.top_p)
    client = models.clients[AGENT]
    proxy = ModelProxy(client, temperature=sampling[0], top_p=sampling[1])
    async with proxy.serve(place.host, place.port, place.beside):
        yield ContainerRunner(
            container=container,
            endpoint=client.endpoint,
            sampling=sampling,
            executor=_Executor(place.runs),
            proxy=proxy,
            store=store,
            prefix=prefix,
            budget=budget,
            on_call=on_call,
            progress=progress,
            at_once=place.at_once,
        )
