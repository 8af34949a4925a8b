"""From a spec, endpoints, a store and data to what a step works with: the same on a laptop and in a pod."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from combee.api.run import RunSpec, Workers
from combee.clients.model.adaptive import AdaptiveLimit
from combee.clients.model.chat import ChatClient, ConnectionPool, Endpoint
from combee.clients.model.hedge import Hedger
from combee.clients.model.limits import RunLimits
from combee.clients.model.memo import Memo
from combee.clients.model.ready import Gate
from combee.clients.model.wire import Budget, OnCall
from combee.clients.store.store import Store
from combee.methods.registry import method_of
from combee.tasks.protocol import Task
from combee.tasks.registry import task_of
from combee.work.context import Data, Progress, Runner, WorkContext

_TALKATIVE = (
    "openai",
    "httpx",
    "httpx2",
    "httpcore",
    "httpcore2",
    "asyncio",
    "botocore",
    "aiobotocore",
    "s3fs",
    "fsspec",
)


def keep_libraries_quiet() -> None:
    """No library's log may hold a prompt: with OPENAI_LOG=debug the client would print every one."""
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def share(total: int, parts: int, index: int) -> int:
    """What part ``index`` of ``parts`` gets of ``total``: all together are ``total``, none gets less than 1.

    >>> [share(64, 3, index) for index in range(3)], [share(2, 3, index) for index in range(3)]
    ([22, 21, 21], [1, 1, 1])
    """
    return max(1, total // parts + (index < total % parts))


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of the run's budgets is this process's: all of it, or a shard's."""

    parts: int = 1
    index: int = 0

    def of(self, total: int) -> int:
        """Its part of ``total``."""
        return share(total, self.parts, self.index)

    def rate(self, total: int | None) -> int | None:
        """The same of a limit that may be absent."""
        return None if total is None else self.of(total)

    def limits(self, workers: Workers) -> RunLimits:
        """Its part of the run's concurrency, requests and tokens a minute."""
        return RunLimits(
            self.of(workers.concurrency),
            self.rate(workers.requests_per_minute),
            self.rate(workers.tokens_per_minute),
        )


@dataclass(slots=True)
class Models:
    """Clients by role, over shared pool, memo and limits."""

    clients: dict[str, ChatClient]
    pool: ConnectionPool
    limits: RunLimits


def open_models(
    workers: Workers,
    endpoints: Mapping[str, Endpoint],
    store: Store,
    *,
    on_call: OnCall,
    budget: Budget,
    share: Share = Share(),
    wait_seconds: float | None = None,
) -> Models:
    """A client for each role. ``wait_seconds``: an endpoint that does not answer yet is waited for so
    long before the first call; None: nothing is asked beforehand."""
    pool, memo, limits = ConnectionPool(), Memo(store), share.limits(workers)
    hedger = Hedger(workers.hedge_budget)
    gates: dict[Endpoint, Gate] = {}
    clients = {}
    for role, endpoint in endpoints.items():
        client = ChatClient(
            endpoint,
            role,
            memo,
            limits,
            pool=pool,
            deadline_seconds=workers.call_deadline_seconds,
            on_call=on_call,
            budget=budget,
            hedger=hedger,
            adaptive=AdaptiveLimit(share.of(workers.concurrency)),
        )
        if wait_seconds is not None:
            client.ready = gates.setdefault(endpoint, Gate(client.check, wait_seconds))
        clients[role] = client
    return Models(clients, pool, limits)


def work_context(
    spec: RunSpec,
    *,
    name: str,
    uid: str,
    store: Store,
    models: Models,
    data: Data,
    progress: Progress,
    initial_playbook: str,
    share: Share = Share(),
    task: Task | None = None,
    runner: Runner | None = None,
) -> WorkContext:
    """What a step of this run may touch. ``runner``: what rolls out, where a call of the task model does not. ``task``: the run's, where it is loaded already, or what stands for
    it where none is asked."""
    return WorkContext(
        spec=spec,
        prefix=run_prefix(name, uid),
        store=store,
        clients=models.clients,
        task=task or task_of(spec.task),
        method=method_of(spec),
        data=data,
        concurrency=share.of(spec.workers.concurrency),
        slots=spec.workers.concurrency,
        clock=time.monotonic,
        progress=progress,
        initial_playbook=initial_playbook,
        runner=runner,
    )


def run_prefix(name: str, uid: str) -> str:
    """A run's folder in its store."""
    return f"runs/{name}-{uid[:8]}"
