"""What rolls out where a task is a container or an adapter of the gepa package.

A container is on a laptop the manifest's command, in a sandbox, and on a cluster a pod. An adapter runs in
processes beside this one on both.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from starlette.routing import Route

from combee.api.run import PromptLearningRun, RunSpec
from combee.api.sampling import Sampling
from combee.api.tasks import CustomAdapter
from combee.api.texts import in_bytes
from combee.assembly.context import Models, Share
from combee.clients.model.agents import AGENT
from combee.clients.model.proxy import ModelProxy
from combee.clients.model.wire import Endpoint
from combee.clients.sandbox.gepa_host import Hosts, Served
from combee.clients.sandbox.sandbox import Limits, Run, Sandbox
from combee.clients.sandbox.users import FIRST, MOST, Users
from combee.errors import CombeeError, ManifestError, UserError
from combee.settings import program_path
from combee.tasks.container import Ended, Fault
from combee.work.adapter import AdapterRunner
from combee.work.container import ContainerRunner, Executor
from combee.work.context import Accounts, Runner
from combee.work.programs import ROLE

ME = "me"
_LAST_ID = 65_533
_WHY = {"timeout": Fault.TIMEOUT, "disk": Fault.WROTE_TOO_MUCH, "stopped": Fault.CRASHED}
_FIX = f"Run it as root, or give --task-user {ME} to run the task's command with your own rights"


def adapter_of(spec: RunSpec) -> CustomAdapter | None:
    """Return the adapter of the task, or None."""
    return spec.task.custom.adapter if spec.task.custom is not None else None


def with_agent(spec: RunSpec, endpoints: Mapping[str, Endpoint]) -> Mapping[str, Endpoint]:
    """``endpoints`` and, for a container or an adapter, that of the calls of its own: the task model's."""
    if (spec.task.container is None and adapter_of(spec) is None) or ROLE not in endpoints:
        return endpoints
    return {**endpoints, AGENT: endpoints[ROLE]}


def sandbox_of(run: PromptLearningRun, user: str, base: Path) -> Sandbox | None:
    """What rolls out on a laptop, with ``base`` as its working directory; None where a model's call does.

    ``user`` is the flag's word. UserErrors: nothing to start, nobody to start it as, a flag without use.
    """
    container = run.spec.task.container
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


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task's rollouts are run, and where the endpoint of their agents is served meanwhile."""

    runs: Executor[Run]
    host: str = "127.0.0.1"
    port: int = 0
    beside: tuple[Route, ...] = ()
    """what else is served there."""
    at_once: int = 0
    """rollouts at once; 0: as many as the manifest says."""


@dataclass(frozen=True, slots=True)
class _ContainerExecutor:
    """Implements ``work.container.Executor``."""

    runs: Executor[Run]

    async def run(
        self,
        files: Mapping[str, bytes],
        env: Mapping[str, str],
        left: Mapping[str, int],
        stop: asyncio.Future[CombeeError],
    ) -> Ended:
        done = await self.runs.run(files, env, left, stop)
        return Ended(done.code, done.seconds, _WHY.get(done.why), done.files, done.output)


@asynccontextmanager
async def rolling_out(
    spec: RunSpec, place: Place | None, models: Models, accounts: Accounts, share: Share
) -> AsyncIterator[Runner | None]:
    """The runner of a task in a container or an adapter, its proxy served meanwhile; None for any other task.
    ``share``: which part of the run's rollouts is this process's."""
    container, adapter, client = spec.task.container, adapter_of(spec), models.clients.get(AGENT)
    if client is None or (adapter is None and (container is None or place is None)):
        yield None
        return
    sampling = spec.roles()[ROLE].sampling
    proxy = ModelProxy(client)
    common = _Common(
        endpoint=client.endpoint,
        sampling=sampling,
        proxy=proxy,
        accounts=accounts,
    )
    if adapter is not None:
        async with proxy.serve(), _hosts(adapter, Served(proxy.model, proxy.url)) as hosts:
            image = (spec.task.custom.image if spec.task.custom else None) or ""
            at_once = share.of(adapter.concurrency)
            yield AdapterRunner(adapter=adapter, image=image, hosts=hosts, at_once=at_once, **common)
    elif container is not None and place is not None:
        executor = _ContainerExecutor(place.runs)
        async with proxy.serve(place.host, place.port, place.beside):
            yield ContainerRunner(container=container, executor=executor, at_once=place.at_once, **common)


class _Common(TypedDict):
    """The fields that both runners have."""

    endpoint: Endpoint
    sampling: Sampling
    proxy: ModelProxy
    accounts: Accounts


async def check_adapter(spec: RunSpec, endpoints: Mapping[str, Endpoint]) -> None:
    """Make the adapter once, if the task has one, and drop it. Raises ManifestError where that fails.

    The adapter gets the task model's name, since clients cannot be made without one, and no URL: it must not
    ask yet.
    """
    adapter = adapter_of(spec)
    if adapter is not None:
        async with _hosts(adapter, Served(endpoints[ROLE].model)) as hosts:
            await hosts.ready()


@asynccontextmanager
async def _hosts(adapter: CustomAdapter, served: Served) -> AsyncIterator[Hosts]:
    hosts = Hosts(adapter.factory, float(adapter.timeout_seconds), served)
    try:
        yield hosts
    finally:
        await hosts.close()
