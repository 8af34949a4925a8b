"""Rollouts of a task that is an adapter of the gepa package: they run in processes beside this one, on a
laptop and in a pod."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from combee.api.run import RunSpec
from combee.api.tasks import CustomAdapter
from combee.assembly.context import Models, Share
from combee.clients.model.agents import AGENT
from combee.clients.model.proxy import ModelProxy
from combee.clients.model.wire import Budget, Endpoint, OnCall
from combee.clients.sandbox.gepa_host import Hosts, Served
from combee.clients.store.store import Store
from combee.work.adapter import AdapterRunner
from combee.work.context import Progress, Runner
from combee.work.programs import ROLE


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where rollouts are stored, counted and charged. ``prefix``: the run's folder in the store."""

    store: Store
    prefix: str
    on_call: OnCall
    budget: Budget
    progress: Progress


def adapter_of(spec: RunSpec) -> CustomAdapter | None:
    """Return the adapter of the task, or None."""
    return spec.task.custom.adapter if spec.task.custom is not None else None


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
async def rolling_out_by_adapter(
    spec: RunSpec, models: Models, accounts: Accounts, share: Share
) -> AsyncIterator[Runner | None]:
    """Yield the runner of an adapter while its proxy is served; None without an adapter or an agent's
    client."""
    adapter, client = adapter_of(spec), models.clients.get(AGENT)
    if adapter is None or client is None or spec.task.custom is None:
        yield None
        return
    sampling = spec.roles()[ROLE].sampling
    proxy = ModelProxy(client, temperature=sampling.temperature, top_p=sampling.top_p)
    async with proxy.serve(), _hosts(adapter, Served(proxy.model, proxy.url)) as hosts:
        yield AdapterRunner(
            adapter=adapter,
            image=spec.task.custom.image or "",
            hosts=hosts,
            at_once=share.of(adapter.concurrency),
            endpoint=client.endpoint,
            sampling=(sampling.temperature, sampling.top_p),
            proxy=proxy,
            store=accounts.store,
            prefix=accounts.prefix,
            budget=accounts.budget,
            on_call=accounts.on_call,
            progress=accounts.progress,
        )


@asynccontextmanager
async def _hosts(adapter: CustomAdapter, served: Served) -> AsyncIterator[Hosts]:
    hosts = Hosts(adapter.factory, float(adapter.timeout_seconds), served)
    try:
        yield hosts
    finally:
        await hosts.close()
