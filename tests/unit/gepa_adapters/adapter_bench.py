"""A runner of adapters in front of a task model, as the tests drive it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from combee.algo.budget import Limits
from combee.api.sampling import Sampling
from combee.api.tasks import CustomAdapter
from combee.assembly.guard import BudgetGuard
from combee.clients.model.agents import AGENT
from combee.clients.model.chat import ChatClient, ConnectionPool, Endpoint
from combee.clients.model.limits import RunLimits
from combee.clients.model.memo import Memo
from combee.clients.model.proxy import ModelProxy
from combee.clients.sandbox.gepa_host import Hosts, Served
from combee.clients.store.store import Store
from combee.records import Shown
from combee.tasks.adapter import AdapterTask
from combee.tasks.traces import Recording
from combee.work.adapter import AdapterRunner
from combee.work.asker import Asker
from combee.work.context import Accounts

CANDIDATE = Shown("", (("check", "Twice."), ("system_prompt", "weight=1")))
Drive = Callable[..., Any]


@dataclass
class Upstream:
    """A model that says one thing; ``status`` above 200 refuses."""

    url: str = ""
    status: int = 200
    said: str = "right"
    bodies: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Notes:
    told: list[str] = field(default_factory=list)

    def begin(self, stage: str, total: int) -> None: ...

    def advance(self, units: int = 1) -> None: ...

    def note(self, text: str) -> None:
        self.told.append(text)


@dataclass
class Bench:
    runner: AdapterRunner
    asker: Asker
    guard: BudgetGuard
    notes: Notes

    async def run(
        self, *, shown: Shown = CANDIDATE, ordinal: int = 0, reflected: bool = True, **row: Any
    ) -> Recording:
        """Roll out a row."""
        (example,) = AdapterTask().read_rows([json.dumps(row).encode()], "rows.jsonl").examples
        return await self.runner.run(
            self.asker, example, shown, stage="map", chain=0, ordinal=ordinal, reflected=reflected
        )


async def _never(seconds: float) -> None:
    return None


async def driven(
    folder: Path,
    url: str,
    factory: str,
    work: Callable[[Bench], Awaitable[Any]],
    *,
    rollouts: int | None = None,
    concurrency: int = 2,
) -> Any:
    """``work(bench)``, with the memo in ``folder`` and the model at ``url``."""
    store, pool = Store.open(str(folder)), ConnectionPool()
    guard, notes = BudgetGuard(Limits(rollouts=rollouts), lambda: 0.0), Notes()
    client = ChatClient(
        Endpoint(url, "the-model"),
        AGENT,
        Memo(store),
        RunLimits(4),
        pool=pool,
        budget=guard,
        on_call=guard.settle,
        max_attempts=2,
        sleep=_never,
    )
    proxy = ModelProxy(client)
    async with proxy.serve():
        hosts = Hosts(factory, 300, Served(proxy.model, proxy.url))
        runner = AdapterRunner(
            adapter=CustomAdapter.model_validate({"factory": factory, "concurrency": concurrency}),
            hosts=hosts,
            endpoint=client.endpoint,
            sampling=Sampling(),
            proxy=proxy,
            accounts=Accounts(store, "runs/r-1", guard.settle, guard, notes, Memo(store)),
        )
        try:
            return await work(Bench(runner, Asker({}, {}), guard, notes))
        finally:
            await hosts.close()
            await pool.aclose()


def drive_in(folder: Path, upstream: Upstream) -> Drive:
    """``drive(factory, work)`` for a test."""

    def drive(factory: str, work: Callable[[Bench], Awaitable[Any]], **how: Any) -> Any:
        return asyncio.run(driven(folder, upstream.url, factory, work, **how))

    return drive
