"""``combee-operator``: reconciles PromptLearningRuns until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

from combee import __version__
from combee.adapters.kube import Kube
from combee.errors import CombeeError, UserError
from combee.manifests.types import Settings
from combee.names import API_VERSION
from combee.plan.cluster.accept import Policy
from combee.runtime.operator.apply import Executor
from combee.runtime.operator.lease import Fence
from combee.runtime.operator.logs import to_stderr
from combee.runtime.operator.metrics import Metrics, serve
from combee.runtime.operator.observe import Observer
from combee.runtime.operator.queue import DueQueue
from combee.runtime.operator.tell import Teller
from combee.runtime.operator.tick import Key, Ticker
from combee.settings import OperatorSettings, operator_settings

log = logging.getLogger(__name__)
RUNS = "promptlearningruns"
STOP_SECONDS = 10.0
"""Ticks under way may end within it."""


def main() -> None:
    """The console script."""
    if sys.argv[1:] in (["--version"], ["version"]):
        sys.stdout.write(f"combee-operator {__version__}\n")
        return
    try:
        settings = operator_settings()
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


def assemble(settings: OperatorSettings, kube: Kube) -> Parts:
    """Everything but kopf and the signals."""
    metrics = Metrics()
    fence = Fence(kube, settings.pod_namespace, settings.pod_name)
    ticker = Ticker(
        kube=kube,
        observer=Observer(kube),
        executor=Executor(
            kube, fence.check, settings.make_accounts, made=lambda kind: metrics.made.labels(kind).inc()
        ),
        teller=Teller(kube, settings.pod_name, fence.check),
        settings=manifest_settings(settings),
        policy=Policy(settings.allow_custom_tasks, settings.secret_policy),
        fence=fence.check,
        seen=metrics.saw,
    )

    async def timed(key: Key) -> float | None:
        started = time.monotonic()
        try:
            return await ticker.tick(key)
        except Exception:
            metrics.failures.inc()
            raise
        finally:
            metrics.ticked(time.monotonic() - started)

    queue = DueQueue(timed, resync_seconds=settings.resync_seconds, reacted=metrics.reaction_seconds.observe)
    return Parts(kube, fence, metrics, queue)


def manifest_settings(settings: OperatorSettings) -> Settings:
    """What manifests follow of the operator's settings."""
    chosen = Settings(
        worker_image=settings.worker_image,
        vllm_image=settings.vllm_image,
        engine_images=settings.engine_images,
        image_pull_policy=settings.image_pull_policy,
        image_pull_secrets=settings.image_pull_secrets,
        worker_account=settings.worker_account,
        publish_account=settings.publish_account,
    )
    if not settings.worker_resources:
        return chosen
    try:
        resources = json.loads(settings.worker_resources)
    except ValueError:
        raise UserError(
            "not JSON", where="COMBEE_WORKER_RESOURCES", fix='Write {"requests": {...}, "limits": {...}}'
        ) from None
    return replace(chosen, worker_resources=resources)


async def operate(settings: OperatorSettings) -> None:
    """Until SIGTERM or SIGINT: then ticks under way end, and the Lease is given up."""
    import kopf

    from combee.runtime.operator.watch import registry
    from combee.runtime.operator.watch import settings as kopf_settings

    parts = assemble(settings, await Kube.connect())
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    threading.Thread(
        target=serve,
        args=(parts.metrics, settings.metrics_port),
        kwargs={"alive": lambda: parts.metrics.alive(len(parts.queue)), "ready": lambda: parts.fence.held},
        daemon=True,
    ).start()
    log.info("waiting for the Lease", extra={"version": __version__, "holder": settings.pod_name})
    work: list[asyncio.Task[None]] = []
    try:
        if not await _unless(stop, runs_served(parts.kube)) or not await _unless(stop, parts.fence.acquire()):
            return
        log.info("at work", extra={"namespaces": ",".join(settings.namespaces) or "all"})
        work = [asyncio.create_task(parts.fence.keep()), asyncio.create_task(parts.queue.run())]
        watching = asyncio.create_task(
            kopf.operator(
                registry=registry(parts.queue.wake),
                settings=kopf_settings(),
                standalone=True,
                clusterwide=not settings.namespaces,
                namespaces=settings.namespaces,
                stop_flag=stop,
            )
        )
        await asyncio.wait({watching, *work}, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await asyncio.wait({watching}, timeout=STOP_SECONDS)
        for task in (watching, *work):
            if task.done() and not task.cancelled() and task.exception() is not None:
                log.error("stopped by an error", extra={"error": str(task.exception())})
                raise SystemExit(1)
    finally:
        await _end(parts, work)


async def runs_served(kube: Kube, *, every_seconds: float = 1.0) -> None:
    """Return when the API server serves runs. kopf looks for their definition only once, when it starts:
    started earlier it would never hear of a run."""
    warned = False
    while True:
        answer = await kube.request("GET", f"/apis/{API_VERSION}", quiet=(404,))
        if answer.status == 200 and any(r["name"] == RUNS for r in answer.body["resources"]):
            return
        if not warned:
            log.warning("waiting for the CustomResourceDefinitions", extra={"missing": RUNS})
            warned = True
        await asyncio.sleep(every_seconds)


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


if __name__ == "__main__":
    main()
