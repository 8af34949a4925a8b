"""A run against a bad server on modelled time, and the server's own book of what it did for it.

The product's client, budget, executor and steps are real; only the wire, the disk and the clock are replaced.
The server's book is the harshest there is: a request that was not refused counts in full from the moment it
came in, whether or not its answer ever arrived."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
from bench import inprocess, virtual

from combee.api.load import parse_run
from combee.api.prices import ModelPrice
from combee.api.run import PromptLearningRun
from combee.assembly.guard import BudgetGuard
from combee.clients.model.adaptive import AdaptiveLimit
from combee.clients.model.batcher import Batcher
from combee.clients.model.chat import ChatClient, Endpoint
from combee.clients.model.failures import NoAnswerError, StatusError
from combee.clients.model.limits import RunLimits
from combee.clients.model.memo import Memo
from combee.clients.model.race import Hedger
from combee.local.clock import RunClock
from combee.local.executor import LocalExecutor
from combee.plan.decide import Plan
from combee.plan.spending import kept_for_look
from combee.plan.types import Clocks, Outcome
from combee.sim import faults, latency, prompts, roles, wire
from combee.sim.model import Model, request_digest
from combee.sim.params import Faults
from combee.tasks.dataset import Dataset, dataset_digest

MORE = 1.2
"""Tokens that this server counts for each that the client estimates: estimates are never right."""
DEADLINE_SECONDS = 20
GPUS = 2
ROLES = ("task", "proposer")
PRICE = ModelPrice.model_validate(
    {"name": inprocess.MODEL, "promptPerMillionTokens": 2.0, "completionPerMillionTokens": 8.0}
)
PRICES = {"currency": "EUR", "models": [PRICE.dump()]}


@dataclass
class Book:
    """What the server did, harshly counted. Times are seconds of the run's own clock."""

    tokens: int = 0
    rollouts: set[str] = field(default_factory=set)
    requests: Counter[str] = field(default_factory=Counter)
    last_request: float = 0.0
    largest: int = 0
    """the most tokens of one request."""
    money: float = 0.0
    dearest: float = 0.0


@dataclass
class Server(virtual.Wire):
    """Answers by the simulated model, with faults, in modelled time."""

    model: Model
    faults: Faults
    seed: int
    book: Book
    now: Callable[[], float]
    running: int = 0

    async def post(self, path: str, body: bytes) -> httpx2.Response:
        parsed = json.loads(body)
        digest = request_digest(parsed)
        fault = faults.draw(self.faults, self.seed, digest, self.book.requests[digest])
        self.book.requests[digest] += 1
        if fault.kind in ("error", "rate_limit"):
            status = 500 if fault.kind == "error" else 429
            raise StatusError(httpx2.Response(status, headers={"Retry-After": "1"}, json={}))
        reply = self.model.respond(parsed)
        text, finish = wire.shortened(faults.spoil(reply.text, fault.kind), parsed["max_tokens"])
        prompt, out = round(MORE * reply.prompt.tokens), max(1, prompts.tokens(text))
        book = self.book
        book.tokens += prompt + out
        book.largest = max(book.largest, prompt + out)
        cost = PRICE.of(prompt, out)
        book.money, book.dearest = book.money + cost, max(book.dearest, cost)
        book.last_request = max(book.last_request, self.now())
        if reply.role == roles.ROLLOUT:
            book.rollouts.add(digest)
        self.running += 1
        try:
            if fault.kind == "hang":
                await asyncio.sleep(10 * DEADLINE_SECONDS)
            await asyncio.sleep(latency.seconds(out * fault.slow, self.running, prompt))
        finally:
            self.running -= 1
        if fault.kind == "reset":
            raise NoAnswerError
        done = wire.Completion(digest[:24], parsed["model"], text, finish, prompt, 0, out)
        return httpx2.Response(200, content=json.dumps(done.whole()).encode())


@dataclass
class Disk:
    """What a run left, which a kill cannot take away: its store, and what the executor keeps in DIR."""

    objects: inprocess._Objects = field(default_factory=inprocess._Objects)
    folder: inprocess._Folder = field(default_factory=inprocess._Folder)
    clock: tuple[float, bool] = (0.0, True)

    def seconds(self) -> tuple[float, bool]:
        return self.clock

    def keep_seconds(self, seconds: float, *, ended: bool) -> None:
        self.clock = seconds, ended


class _Mortal(inprocess._Store):
    """A store that takes nothing any more once its process is killed."""

    dead = False

    async def _run(self, call: Callable[[], Any]) -> Any:
        if self.dead:
            await asyncio.Event().wait()
        return call()


@dataclass(slots=True, kw_only=True)
class _Holding(LocalExecutor):
    """An executor whose run holds GPUs all the time, as the operator and its pods count them."""

    def _held(self) -> float:
        return self.guard.gpus * self.guard.elapsed_seconds()

    def _decide(self, clocks: Clocks) -> Plan:
        return LocalExecutor._decide(self, replace(clocks, gpu_seconds=self._held()))

    def _follow(self, plan: Plan) -> None:
        LocalExecutor._follow(self, plan)
        guard, held = self.guard, self._held()
        kept = kept_for_look(self.context.spec, self.state, gpus=guard.gpus, gpu_seconds=held)
        guard.start_step(replace(guard.before, gpu_seconds=held), kept)


@dataclass
class World:
    """One run: its manifest and rows, its server, its disk, and the seconds of all its sessions so far."""

    run: PromptLearningRun
    splits: tuple[Dataset, Dataset]
    server_faults: Faults
    seed: int
    model: Model
    book: Book = field(default_factory=Book)
    disk: Disk = field(default_factory=Disk)
    seconds: float = 0.0
    outcome: Outcome | None = None
    guard: BudgetGuard = field(init=False)
    """of the latest session."""

    def session(self, killed_after: float | None = None) -> Outcome | None:
        """Work until there is an outcome, or until the process is killed after so many modelled seconds."""
        loop = virtual.VirtualLoop()
        store = _Mortal(self.disk.objects, "memory")
        try:
            main = loop.create_task(self._work(loop, store))
            if killed_after is not None:
                loop.call_later(killed_after, loop.stop)
            try:
                self.outcome = loop.run_until_complete(main)
                return self.outcome
            except RuntimeError:
                if main.done():
                    raise
                return None
            finally:
                self.seconds += loop.time()
                store.dead = True
                loop.run_until_complete(_end_all())
        finally:
            loop.close()

    async def _work(self, loop: virtual.VirtualLoop, store: _Mortal) -> Outcome:
        spec = self.run.spec
        began = self.seconds
        made = inprocess.executor_of(self.run, self.splits, {}, loop.time)
        executor = _Holding(**{name: getattr(made, name) for name in LocalExecutor.__slots__})
        guard = executor.guard
        guard.gpus = GPUS
        clock = guard.elapsed_seconds = RunClock(self.disk, loop.time)
        beating = asyncio.ensure_future(clock.beat())
        limits = RunLimits(spec.workers.concurrency, clock=loop.time)
        memo, hedger = Memo(store), Hedger(spec.workers.hedge_budget)
        batcher = Batcher(AdaptiveLimit(spec.workers.concurrency))
        server = Server(self.model, self.server_faults, self.seed, self.book, lambda: began + loop.time())
        clients = {
            role: ChatClient(
                Endpoint(url="http://server/v1", model=inprocess.MODEL),
                role,
                memo,
                limits,
                pool=server,
                deadline_seconds=DEADLINE_SECONDS,
                on_call=executor.meter.on_call,
                budget=guard,
                hedger=hedger,
                batcher=batcher,
                clock=loop.time,
            )
            for role in ROLES
        }
        executor.context = replace(executor.context, store=store, clients=clients)
        executor.folder = self.disk.folder
        self.guard = guard
        outcome = await executor.run()
        beating.cancel()
        clock.stop()
        return outcome


async def _end_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def few(data: Dataset, rows: int) -> Dataset:
    examples = data.examples[:rows]
    return Dataset(examples, dataset_digest(examples))


def manifest(name: str, **spec: Any) -> PromptLearningRun:
    model = {"engineRef": {"name": "main"}}
    splits = {"train": {"uri": "train.jsonl"}, "heldOut": {"uri": "heldout.jsonl"}}
    document = {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": name},
        "spec": {
            "task": {"type": "Formula", "data": splits},
            "method": {"type": "ACE"},
            "engines": [{"name": "main", "vllm": {"model": inprocess.MODEL}}],
            "models": {"task": model, "proposer": model},
            "prices": PRICES,
            **spec,
        },
    }
    return parse_run(document, name)
