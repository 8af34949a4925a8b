"""Builds a step's context from a spec, endpoints, a store and data, equally on a laptop and in a pod."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from combee.algo.energy import Reading
from combee.algo.parallelism import share
from combee.api.run import RunSpec, Workers
from combee.clients.model.adaptive import AdaptiveLimit
from combee.clients.model.batcher import Batcher
from combee.clients.model.chat import ChatClient, ConnectionPool, Endpoint
from combee.clients.model.limits import RunLimits
from combee.clients.model.race import Hedger
from combee.clients.model.ready import Gate
from combee.methods.registry import method_of
from combee.plan.cluster.engines import shared_engines
from combee.tasks.protocol import Task
from combee.tasks.registry import task_of
from combee.work.context import Accounts, Data, Runner, WorkContext

_TALKATIVE = [
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
]


def keep_libraries_quiet() -> None:
    """Silence the libraries' logs, which may hold prompts: with OPENAI_LOG=debug a client would print all of
    them."""
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the run's limits that belongs to this process: all of them, or a shard's part.
    ``at_once``: the calls that the run may have in flight now, where it shares its engine with others."""

    parts: int = 1
    index: int = 0
    at_once: int | None = None

    def of(self, total: int) -> int:
        """Return this process's part of ``total``."""
        return share(total, self.parts, self.index)

    def concurrency(self, workers: Workers) -> int:
        """Return this process's part of the calls in flight."""
        whole = workers.concurrency
        return self.of(whole if self.at_once is None else min(whole, self.at_once))

    def rate(self, total: int | None) -> int | None:
        """Return this process's part of a limit; None where there is no limit."""
        return None if total is None else self.of(total)

    def limits(self, workers: Workers) -> RunLimits:
        """Return this process's part of the run's concurrency, requests and tokens a minute."""
        return RunLimits(
            self.concurrency(workers),
            self.rate(workers.requests_per_minute),
            self.rate(workers.tokens_per_minute),
        )


@dataclass(slots=True)
class Models:
    """Clients by role, with a shared pool, memo and limits."""

    clients: dict[str, ChatClient]
    pool: ConnectionPool
    limits: RunLimits


def open_models(
    workers: Workers,
    endpoints: Mapping[str, Endpoint],
    accounts: Accounts,
    *,
    share: Share = Share(),
    wait_seconds: float | None = None,
) -> Models:
    """Return a client for each role. ``wait_seconds``: how long the first call waits for an endpoint that
    does not answer yet; None: endpoints are not checked before the first call."""
    pool = ConnectionPool(looking=True)
    limits = share.limits(workers)
    hedger = Hedger(workers.hedge_budget)
    gates: dict[Endpoint, Gate] = {}
    most = share.concurrency(workers)
    batchers = {endpoint: Batcher(AdaptiveLimit(most)) for endpoint in endpoints.values()}
    clients = {}
    for role, endpoint in endpoints.items():
        client = ChatClient(
            endpoint,
            role,
            accounts.memo,
            limits,
            pool=pool,
            deadline_seconds=workers.call_deadline_seconds,
            on_call=accounts.on_call,
            budget=accounts.budget,
            hedger=hedger,
            batcher=batchers[endpoint],
            tells_looks=share.index == 0,
        )
        if wait_seconds is not None:
            client.ready = gates.setdefault(endpoint, Gate(client.check, wait_seconds))
        clients[role] = client
    return Models(clients, pool, limits)


def work_context(
    spec: RunSpec,
    accounts: Accounts,
    models: Models,
    data: Data,
    *,
    initial_playbook: str = "",
    share: Share = Share(),
    task: Task | None = None,
    runner: Runner | None = None,
    energy: Callable[[], Awaitable[Reading]] | None = None,
) -> WorkContext:
    """Return what a step of this run may use. ``runner`` rolls out where a call of the task model does not.
    ``task`` is the run's task where it is loaded already, or its stand-in where none is needed."""
    return WorkContext(
        spec=spec,
        prefix=accounts.prefix,
        store=accounts.store,
        clients=models.clients,
        task=task or task_of(spec.task),
        method=method_of(spec),
        data=data,
        concurrency=share.concurrency(spec.workers),
        slots=spec.workers.concurrency,
        clock=time.monotonic,
        progress=accounts.progress,
        initial_playbook=initial_playbook,
        runner=runner,
        energy=energy,
        memo=accounts.memo,
    )


def energy_meter(spec: RunSpec, engines: Mapping[str, str]) -> Callable[[], Awaitable[Reading]] | None:
    """Return what reads the counters of the GPUs; None where the run names no page of them, or shares an
    engine with other runs, whose joules cannot be told from its own. ``engines``: the addresses of the run's
    engines on a cluster, from which its pods are told from others."""
    if spec.energy is None or shared_engines(spec):
        return None
    from combee.clients.energy import EnergyMeter  # few runs have one

    own = [engine.name for engine in spec.engines if engine.vllm is not None and engine.name in engines]
    pods = [f"{(urlsplit(engines[name]).hostname or '').partition('.')[0]}-" for name in own]
    return EnergyMeter(spec.energy.url, pods).read


def run_prefix(name: str, uid: str) -> str:
    """Return the path of a run's folder in its store."""
    return f"runs/{name}-{uid[:8]}"
