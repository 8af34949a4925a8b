"""The operator's work: it reconciles PromptLearningRuns until it is told to stop, or cleans up at an
uninstall.

``program`` starts it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, fields, replace
from typing import Any

from combee import __version__
from combee.assembly.logs import to_stderr
from combee.assembly.probes import serve
from combee.clients.kubernetes.kube import Kube
from combee.errors import CombeeError, UserError
from combee.names import API_VERSION, KUEUE, PLAYBOOK_KIND, RUN_KIND, SANDBOXES
from combee.objects.types import Settings
from combee.observe.complaints import Complaints
from combee.observe.nodes import Nodes
from combee.observe.playbooks import PlaybookObserver
from combee.observe.runs import Observer
from combee.operator.apply import Executor
from combee.operator.census import Census
from combee.operator.cleanup import clean_up
from combee.operator.gateway import GatewayKeeper
from combee.operator.lease import Fence
from combee.operator.metrics import Metrics
from combee.operator.playbooks.apply import PlaybookExecutor
from combee.operator.playbooks.datawatch import DataWatch
from combee.operator.playbooks.history import History
from combee.operator.playbooks.judges import Judges
from combee.operator.playbooks.restore import Restorer
from combee.operator.playbooks.tick import PlaybookTicker
from combee.operator.queue import DueQueue
from combee.operator.sweeper import Sweeper
from combee.operator.tell import Teller
from combee.operator.tick import Key, Ticker
from combee.operator.versions import Versions
from combee.plan.cluster.accept import Policy
from combee.settings import CleanupSettings, OperatorSettings, read_settings

WORKLOADS, CLAIMS = (KUEUE, "workloads"), (SANDBOXES, "sandboxclaims")
log = logging.getLogger(__name__)
RUNS = "promptlearningruns"
GATEWAY_PAUSE_SECONDS = 0.3
"""One look at a namespace's gateway serves all events of so long: each look lists the namespace's
Playbooks."""
STOP_SECONDS = 10.0
"""Ticks under way may end within it."""


def run(*, clean: bool) -> None:
    """Operate, or ``clean`` up; the process ends with an error's exit code."""
    try:
        if clean:
            last = read_settings(CleanupSettings, "combee-operator cleanup")
            to_stderr(last.log_level)
            asyncio.run(clean_up(last))
            return
        settings = read_settings(OperatorSettings, "combee-operator")
        to_stderr(settings.log_level)
        asyncio.run(operate(settings))
    except CombeeError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2 if isinstance(error, UserError) else 1)


@dataclass(slots=True)
class Parts:
    """The operator, put together."""

    kube: Kube
    fence: Fence
    metrics: Metrics
    queue: DueQueue[Key]
    playbooks: DueQueue[Key]
    gateways: DueQueue[Key]
    """of namespaces; names are empty."""

    def wake_gateway(self, namespace: str) -> None:
        """Have the gateway of a namespace looked at, once for all that happens now."""
        self.gateways.wake((namespace, ""), GATEWAY_PAUSE_SECONDS)

    def wake_playbook(self, key: Key) -> None:
        """Have a Playbook looked at, and the gateway that serves it."""
        self.playbooks.wake(key)
        self.wake_gateway(key[0])

    def census(self, settings: OperatorSettings) -> Census:
        """Return what finds the runs and Playbooks of which no event told."""
        wakes = {RUN_KIND: self.queue.wake, PLAYBOOK_KIND: self.wake_playbook}
        return Census(self.kube, settings.namespaces, wakes)


def assemble(settings: OperatorSettings, kube: Kube) -> Parts:
    """Everything but kopf and the signals."""
    metrics = Metrics(resync_seconds=settings.resync_seconds)
    fence = Fence(kube, settings.pod_namespace, settings.pod_name)
    writing, chosen = kube.fenced(fence.check), object_settings(settings)
    nodes = Nodes(writing, settings.read_nodes)
    teller = Teller(writing, settings.pod_name)
    ticker = Ticker(
        kube=writing,
        observer=Observer(writing, Complaints(writing), settings.agent_sandbox),
        executor=Executor(writing, made=lambda kind: metrics.made.labels(kind).inc()),
        teller=teller,
        versions=Versions(writing),
        nodes=nodes,
        settings=chosen,
        policy=Policy(settings.allow_custom_tasks, settings.secret_policy, settings.discipline),
        seen=metrics.saw,
    )
    playbook_ticker = PlaybookTicker(
        kube=writing,
        observer=PlaybookObserver(writing),
        executor=PlaybookExecutor(writing),
        teller=teller,
        judges=Judges(writing, chosen),
        data=DataWatch(writing, chosen),
        nodes=nodes,
        history=History(writing),
        restorer=Restorer(writing, chosen),
        allow_waived=settings.allow_waived_canary,
        discipline=settings.discipline,
        happened=lambda reason: metrics.versions.labels(reason).inc(),
    )
    keeper = GatewayKeeper(writing, chosen, teller, Sweeper(writing, chosen))
    ticks = (ticker.tick, playbook_ticker.tick, keeper.tick)
    return Parts(kube, fence, metrics, *(_queue(tick, metrics, settings) for tick in ticks))


def _queue(
    tick: Callable[[Key], Awaitable[float | None]], metrics: Metrics, settings: OperatorSettings
) -> DueQueue[Key]:
    """A queue whose ticks are counted and timed."""

    async def timed(key: Key) -> float | None:
        started = time.monotonic()
        try:
            return await tick(key)
        except Exception:
            metrics.failures.inc()
            raise
        finally:
            metrics.ticked(time.monotonic() - started)

    observe = metrics.reaction_seconds.observe
    return DueQueue(timed, resync_seconds=settings.resync_seconds, reacted=observe)


def object_settings(settings: OperatorSettings) -> Settings:
    """What objects follow of the operator's settings; where they say nothing, the objects' own defaults."""
    values: dict[str, Any] = {stated.name: getattr(settings, stated.name, "") for stated in fields(Settings)}
    return Settings(**{name: value for name, value in values.items() if value not in ("", (), {})})


async def operate(settings: OperatorSettings) -> None:
    """Until SIGTERM or SIGINT: then ticks under way end, and the Lease is given up."""
    kube = await _connected()
    settings = replace(settings, agent_sandbox=await _warm_pools(settings, kube))
    parts = assemble(settings, kube)
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    threading.Thread(
        target=serve,
        args=(parts.metrics, settings.metrics_port),
        kwargs={
            "alive": lambda: parts.metrics.alive(len(parts.queue) + len(parts.playbooks)),
            "ready": lambda: parts.fence.held,
        },
        daemon=True,
    ).start()
    log.info("waiting for the Lease", extra={"version": __version__, "holder": settings.pod_name})
    work: list[asyncio.Task[None]] = []
    try:
        if not await _unless(stop, runs_served(parts.kube)) or not await _unless(stop, parts.fence.acquire()):
            return
        log.info("at work", extra={"namespaces": ",".join(settings.namespaces) or "all"})
        work = [
            asyncio.create_task(task)
            for task in (
                parts.fence.keep(),
                parts.queue.run(),
                parts.playbooks.run(),
                parts.gateways.run(),
                parts.census(settings).keep(settings.resync_seconds),
            )
        ]
        watching = asyncio.create_task(_watch(parts, settings, stop))
        await asyncio.wait({watching, *work}, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await asyncio.wait({watching}, timeout=STOP_SECONDS)
        for task in (watching, *work):
            if task.done() and not task.cancelled() and task.exception() is not None:
                log.error("stopped by an error", extra={"error": str(task.exception())})
                raise SystemExit(1)
    finally:
        await _end(parts, work)


async def _connected() -> Kube:
    """UserError where we would act as another: kopf, which watches, cannot."""
    kube = await Kube.connect()
    if kube.identity.user:
        await kube.aclose()
        raise UserError(
            f"the operator does not act as another ({kube.identity.user})",
            where="KUBECONFIG",
            fix="Choose a context whose user has no `as`",
        )
    return kube


async def _warm_pools(settings: OperatorSettings, kube: Kube) -> bool:
    """Return whether rollouts are made by warm pools of agent-sandbox: where they may be, and it is there."""
    if not settings.agent_sandbox or await served(kube, *CLAIMS):
        return settings.agent_sandbox
    log.warning("agent-sandbox is not installed: rollouts are made by Jobs", extra={"missing": SANDBOXES})
    return False


async def _watch(parts: Parts, settings: OperatorSettings, stop: asyncio.Event) -> None:
    """kopf, until ``stop``: events wake what they are about."""
    import kopf

    from combee.operator.watch import registry
    from combee.operator.watch import settings as kopf_settings

    wakes = (parts.queue.wake, parts.wake_playbook, parts.wake_gateway)
    children = [WORKLOADS] if await served(parts.kube, *WORKLOADS) else []
    children += [CLAIMS] if settings.agent_sandbox else []
    await kopf.operator(
        registry=registry(*wakes, children=children),
        settings=kopf_settings(),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        stop_flag=stop,
    )


async def runs_served(kube: Kube, *, every_seconds: float = 1.0) -> None:
    """Return when the API server serves runs. kopf looks for their definition only once, when it starts:
    started earlier it would never hear of a run."""
    warned = False
    while True:
        if await served(kube, API_VERSION, RUNS):
            return
        if not warned:
            log.warning("waiting for the CustomResourceDefinitions", extra={"missing": RUNS})
            warned = True
        await asyncio.sleep(every_seconds)


async def served(kube: Kube, api: str, plural: str) -> bool:
    """Return whether the API server serves a kind. Where it does not, nothing of it can be watched."""
    answer = await kube.request("GET", f"/apis/{api}", quiet=(404,))
    return answer.status == 200 and any(one["name"] == plural for one in answer.body["resources"])


async def _unless(stop: asyncio.Event, wait: Coroutine[Any, Any, None]) -> bool:
    """Whether ``wait`` came to its end; False when we are told to stop before."""
    waiting = asyncio.create_task(wait)
    stopped = asyncio.create_task(stop.wait())
    done, pending = await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    if waiting in done:
        waiting.result()
        return True
    return False


async def _end(parts: Parts, work: list[asyncio.Task[None]]) -> None:
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    try:
        await parts.fence.release()
    except CombeeError as error:
        log.warning("the Lease could not be given up", extra={"error": str(error)})
    await parts.kube.aclose()
