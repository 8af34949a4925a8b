"""The product and the simulated model in one process: the real steps, plans, prompts and parsers, without
HTTP, disk or waiting, so that a whole epoch takes a second.

Only the wire is replaced. ``Direct.ask`` stands where ``clients.model.chat.ChatClient.ask`` stands: it builds
the very body that would be sent and hands it to ``combee.sim``'s pure response function, context limit and
output limit included. Faults, retries and rate limits belong to the wire and are not here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from combee.algo import text
from combee.api.digests import manifest_digest
from combee.api.load import parse_run
from combee.api.run import PromptLearningRun
from combee.assembly.guard import BudgetGuard
from combee.clients.data.rows import read_lines
from combee.clients.model.body import request_body
from combee.clients.model.wire import Answered, ChatRequest, Completion
from combee.clients.store.store import Store
from combee.compare.launch import FINISHED_OUTCOMES
from combee.errors import BugError, ContextLengthError
from combee.local.executor import LocalExecutor
from combee.local.meter import Meter
from combee.methods.ace import AceMethod, ledger
from combee.plan.decide import Identity
from combee.plan.state import DataFacts
from combee.plan.types import Clocks, IterationPlan, StepSummary
from combee.sim import keyfile, params, prompts, wire
from combee.sim.model import Model
from combee.sim.params import Law, SimConfig, TaskLaw
from combee.tasks.dataset import MAX_ROW_BYTES, Dataset
from combee.tasks.registry import task_for
from combee.work.context import WorkContext
from combee.work.rollouts import evaluate

ROOT = Path(__file__).absolute().parents[1]
FORMULA = ROOT / "examples" / "data" / "formula"
MODEL = "openai/gpt-oss-120b"
SLOTS = 64
T = TypeVar("T")


TASKS = {"formula": "Formula", "finer": "FiNER"}
"""The task of each folder of rows."""
_FILES = ("train.jsonl", "heldout.jsonl")


@cache
def splits_of(name: str) -> tuple[Dataset, Dataset]:
    """(train, heldOut) of the real rows of a folder."""
    task, folder = task_for(TASKS[name]), FORMULA.parent / name
    train, held_out = (
        task.read_rows(read_lines(str(folder / file), max_bytes=MAX_ROW_BYTES), file) for file in _FILES
    )
    return train, held_out


def formula_splits() -> tuple[Dataset, Dataset]:
    """(train, heldOut) of the real Formula rows."""
    return splits_of("formula")


@cache
def _key_of(name: str) -> dict[str, Any]:
    return keyfile.build(name, [(file, (FORMULA.parent / name / file).read_bytes()) for file in _FILES])


def formula_key() -> dict[str, Any]:
    """What ``combee sim key`` writes for these rows."""
    return _key_of("formula")


def simulated(seed: int, law: Law, task: str = "formula") -> Model:
    """The simulated model of one (seed, law)."""
    return Model([_key_of(task)], seed=seed, law=law)


@contextmanager
def task_law(law: TaskLaw) -> Iterator[None]:
    """Have the simulated model answer Formula by ``law`` for a while: all rows of this process ask it."""
    before = params.TASK_LAWS["formula"]
    params.TASK_LAWS["formula"] = law
    try:
        yield
    finally:
        params.TASK_LAWS["formula"] = before


@dataclass
class Direct:
    """A ChatClient's ``ask`` on a model in this process. Equal requests are answered once, as by the memo."""

    model: Model
    role: str
    known: dict[bytes, Completion]
    """answers by body; share it between roles and runs of one model, which is a pure function."""
    context_tokens: int = SimConfig().max_model_len

    async def ask(self, request: ChatRequest, *_: object) -> Answered:
        """The model's answer. ContextLengthError for a prompt beyond its context."""
        body = request_body(MODEL, request, frozenset())
        done = self.known.get(body)
        hit = done is not None
        if done is None:
            made = self._made(body, request.prompt.max_output_tokens)
            done = self.known[body] = await self.served(request, made)
        return Answered(done, hit=hit)

    async def served(self, request: ChatRequest, made: Completion) -> Completion:
        """What the client records of an answer: here, that it came at once."""
        return made

    def _made(self, body: bytes, limit: int) -> Completion:
        reply = self.model.respond(json.loads(body))
        count = reply.prompt.tokens
        if count + limit > self.context_tokens:
            raise ContextLengthError(f"{count} + {limit} tokens", where=self.role)
        said, finish = wire.shortened(reply.text, limit)
        return Completion(said, count, max(1, prompts.tokens(said)), 0, 1.0, finish, 1)


def remember_texts() -> None:
    """Remember what the product's pure functions return for a text: a sweep sees the same lessons often."""
    for function, size in ((text.anchors, 50_000), (text.token_set, 50_000), (text._view, 20_000)):
        plain = getattr(function, "__wrapped__", function)
        kept = lru_cache(size)(plain)
        for name, module in list(sys.modules.items()):
            if name.startswith("combee.") and getattr(module, plain.__name__, None) is function:
                setattr(module, plain.__name__, kept)
    text._cached_anchors = text.anchors
    ledger._rows = _rows


def _rows(facts: Iterable[Any]) -> list[list[Any]]:
    """As the ledger's own, without its deep copies: a fact is flat."""
    return [[getattr(fact, name) for name in fact.__slots__] for fact in sorted(facts)]


class _Method(AceMethod):
    """The product's, but what was just written need not be parsed again: a ledger is an immutable value."""

    def from_json(self, data: bytes) -> Any:
        """As the method's, the last ones remembered."""
        return _ledger(data)


@lru_cache(4)
def _ledger(data: bytes) -> Any:
    return AceMethod().from_json(data)


class _Objects:
    """A store's back end in memory."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def put_new(self, path: str, data: bytes) -> bool:
        return self.held.setdefault(path, data) is data

    def put(self, path: str, data: bytes) -> None:
        self.held[path] = data

    def get(self, path: str) -> bytes | None:
        return self.held.get(path)

    def exists(self, path: str) -> bool:
        return path in self.held

    def list(self, prefix: str) -> list[str]:
        return sorted(path for path in self.held if path.startswith(prefix))

    def delete(self, path: str) -> None:
        self.held.pop(path, None)

    def sweep(self, older_than_seconds: float) -> int:
        return 0


class _Store(Store):
    """Nothing to wait for, so no threads."""

    async def _run(self, call: Callable[[], T]) -> T:
        return call()


@dataclass
class _Folder:
    """What the executor keeps in DIR."""

    frozen: dict[int, IterationPlan] = field(default_factory=dict)
    kept: dict[str, StepSummary] = field(default_factory=dict)

    def plans(self) -> dict[int, IterationPlan]:
        return dict(self.frozen)

    def clocks(self, iteration: int, now: Clocks) -> Clocks:
        return now

    def freeze(self, plan: IterationPlan) -> IterationPlan:
        return self.frozen.setdefault(plan.iteration, plan)

    def summaries(self) -> dict[str, StepSummary]:
        return dict(self.kept)

    def keep(self, summary: StepSummary) -> StepSummary:
        self.kept[summary.step] = summary
        return summary


@dataclass(frozen=True)
class _Data:
    train_rows: Dataset
    held_out_rows: Dataset

    async def train(self) -> Dataset:
        return self.train_rows

    async def held_out(self) -> Dataset:
        return self.held_out_rows

    async def test(self) -> Dataset | None:
        return None


class _Silent:
    """A screen that shows nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def formula_run(
    name: str, *, size: int, seed: int, aggregation: Mapping[str, Any], task: str = "formula"
) -> PromptLearningRun:
    """A manifest on the terms of ``combee compare``: no budget, no early stop, heldOut scored at the end."""
    model = {"engineRef": {"name": "main"}}
    splits = {"train": {"uri": "train.jsonl"}, "heldOut": {"uri": "heldout.jsonl"}}
    spec = {
        "task": {"type": TASKS[task], "data": splits},
        "method": {"type": "ACE", "epochs": 1, "ace": {"renderTokenBudget": 8000, "reflectionRounds": 1}},
        "engines": [{"name": "main", "vllm": {"model": MODEL}}],
        "models": {"task": model, "proposer": model},
        "aggregation": dict(aggregation),
        "batching": {"mode": "Fixed", "size": size, "reason": "a cell of the sensitivity sweep"},
        "stopping": {"patience": 1000, "evaluateEvery": 100_000},
        "workers": {"parallelism": 1, "concurrency": SLOTS},
        "seed": seed,
    }
    document = {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": name},
        "spec": spec,
    }
    return parse_run(document, name)


@dataclass(frozen=True)
class Learnt:
    """What one epoch left. ``scores``: every heldOut row with the *final* playbook, by id."""

    scores: dict[str, float]
    entries: int
    rendered: int
    playbook_tokens: int
    rollouts: int
    """of learning: map, replay and the drop-one check, without the scoring of select."""
    calls: int
    aggregator_calls: int

    @property
    def mean(self) -> float:
        """Held-out accuracy."""
        return sum(self.scores.values()) / len(self.scores)


@lru_cache(4)
def _leak_corpus_of(train: Dataset) -> dict[str, Any]:
    """What a process derives once from the train rows, for every run of this process."""
    return {}


def executor_of(
    run: PromptLearningRun,
    splits: tuple[Dataset, Dataset],
    clients: Mapping[str, Direct],
    clock: Callable[[], float] = lambda: 0.0,
) -> LocalExecutor:
    """What runs a manifest on these rows, whose wall seconds are of ``clock``."""
    train, held_out = splits
    spec, who = run.spec, Identity(run.name, manifest_digest(run)[:8])
    guard = BudgetGuard.of(spec, lambda: 0.0)
    meter = Meter(run.name, spec, DataFacts(len(train.examples), 0, 0, 0, {}), _Silent(), guard)
    context = WorkContext(
        spec=spec,
        prefix=f"runs/{who.name}-{who.uid}",
        store=_Store(_Objects(), "memory"),
        clients=dict(clients),
        task=task_for(spec.task.type),
        method=_Method(),
        data=_Data(train, held_out),
        concurrency=spec.workers.concurrency,
        slots=spec.workers.concurrency,
        clock=clock,
        progress=meter,
        cache=_leak_corpus_of(train),
    )
    return LocalExecutor(context, who, _Folder(), meter, guard)


async def learn(run: PromptLearningRun, splits: tuple[Dataset, Dataset], model: Model, known: dict) -> Learnt:
    """One run of the product to its end, then its final playbook on all of heldOut."""
    executor = executor_of(run, splits, {role: Direct(model, role, known) for role in ("task", "proposer")})
    outcome = await executor.run()
    if outcome.name not in FINISHED_OUTCOMES:
        raise BugError(f"{run.name} ended with {outcome.name}: {outcome.reason}")
    return await _looked_at(executor, splits[1])


async def _looked_at(executor: LocalExecutor, held_out: Dataset) -> Learnt:
    context, spec = executor.context, executor.context.spec
    learnt = context.method.from_json(await context.store.aget_blob(executor.state.artifact))
    budget, verify = spec.method.ace.render_token_budget, spec.verify
    shown = context.method.render(learnt, budget_tokens=budget, verify=verify)
    seen = await evaluate(
        context, context.asker(), list(held_out.examples), shown.shown, stage="all of heldOut"
    )
    finished = [
        json.loads(await context.store.aget_blob(s.outputs["record"]))
        for s in executor.summaries.values()
        if s.kind == "finish"
    ]
    evaluated = sum(
        stage["calls"]
        for record in finished
        for stage in record["stages"]
        if stage["stage"].startswith("select")
    )
    return Learnt(
        scores=getattr(seen, "by_id", seen),
        entries=len(context.method.views(learnt, shown, verify=verify)),
        rendered=len(shown.included),
        playbook_tokens=shown.tokens,
        rollouts=sum(record["rollouts"] for record in finished) - evaluated,
        calls=sum(record["calls"] for record in finished) - evaluated,
        aggregator_calls=sum(record["aggregatorCalls"] for record in finished),
    )
