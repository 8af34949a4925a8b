"""``combee run`` without its screen: check everything first, then work, then write what is left.

Order matters. Manifest, flags, data and endpoints are all checked before DIR is touched, so that a
mistake (exit 2) leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from combee.adapters.chat import ChatClient, ConnectionPool, Endpoint
from combee.adapters.limits import RunLimits
from combee.adapters.memo import Memo
from combee.adapters.store import Store
from combee.algo.tokens import estimate_tokens
from combee.api.run import PromptLearningRun, manifest_digest
from combee.plan.decide import Identity, limits_of
from combee.plan.preview import DataShape, preview
from combee.plan.state import DataFacts
from combee.plan.types import IterationPlan, Outcome
from combee.runtime.assembly import Models, keep_libraries_quiet, open_models, work_context
from combee.runtime.bundle import texts
from combee.runtime.folder import RunFolder, RunIdentity, given_plans
from combee.runtime.guard import BudgetGuard
from combee.runtime.local import LocalExecutor
from combee.runtime.manifest import read_run
from combee.runtime.meter import Listener, Meter
from combee.runtime.outcome import Session, data_info, model_info
from combee.runtime.progress import ProgressState
from combee.runtime.report.result import DataInfo, ModelInfo, Result
from combee.runtime.sources import StandIns, check_stand_ins, endpoints, read_initial_playbook, read_splits
from combee.runtime.splits import data_facts, refuse_too_small
from combee.tasks.dataset import Dataset
from combee.tasks.registry import task_for
from combee.work.context import WorkContext


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run whose every input was read and found good. Nothing is written yet."""

    run: PromptLearningRun
    splits: Mapping[str, Dataset]
    endpoints: Mapping[str, Endpoint]
    initial_playbook: str
    plans: Mapping[int, IterationPlan] = field(default_factory=dict)

    @property
    def facts(self) -> DataFacts:
        """Counts and digests of the data."""
        return data_facts(self.splits)

    @property
    def data(self) -> DataInfo:
        """The same for the result."""
        return data_info(self.splits, self.facts.select_rows, self.facts.gate_rows)


def prepare(path: Path, given: StandIns, plans: Path | None = None, *, for_preview: bool = False) -> Prepared:
    """Read and check all inputs. Raises UserErrors only. ``for_preview`` asks for no endpoint."""
    return prepare_run(read_run(path), path.resolve().parent, given, plans, for_preview=for_preview)


def prepare_run(
    run: PromptLearningRun,
    base: Path,
    given: StandIns,
    plans: Path | None = None,
    *,
    for_preview: bool = False,
) -> Prepared:
    """The same for a run that is read already; its paths are relative to ``base``."""
    if not for_preview:
        check_stand_ins(run, given)
    splits = read_splits(run, task_for(run.spec.task.type), given, base)
    prepared = Prepared(
        run=run,
        splits=splits,
        endpoints={} if for_preview else endpoints(run, given),
        initial_playbook=read_initial_playbook(run, given, base),
        plans=given_plans(plans) if plans else {},
    )
    if not for_preview:
        refuse_too_small(splits)
    return prepared


class _HeldData:
    """Splits that are in memory already."""

    def __init__(self, splits: Mapping[str, Dataset]) -> None:
        self._splits = splits

    async def train(self) -> Dataset:
        return self._splits["train"]

    async def held_out(self) -> Dataset:
        return self._splits["heldOut"]

    async def test(self) -> Dataset | None:
        return self._splits.get("test")


async def check_endpoints(prepared: Prepared) -> dict[str, ModelInfo]:
    """Ask every endpoint in use whether it is there, takes the key and serves the model."""
    keep_libraries_quiet()
    pool = ConnectionPool()
    limits = RunLimits(4)
    info: dict[str, ModelInfo] = {}
    nowhere = Memo(Store.open("memory://preflight"))
    try:
        for role, endpoint in prepared.endpoints.items():
            served = await ChatClient(endpoint, role, nowhere, limits, pool=pool).check()
            info[role] = model_info(endpoint.model, endpoint.host, served.owned_by)
    finally:
        await pool.aclose()
    return info


def _models(prepared: Prepared, store: Store, meter: Meter, guard: BudgetGuard) -> Models:
    models = open_models(
        prepared.run.spec.workers, prepared.endpoints, store, on_call=meter.on_call, budget=guard
    )
    meter.limits = models.limits
    return models


async def run_session(prepared: Prepared, out: Path, listener: Listener) -> Result:
    """Work until there is an outcome, then write result, playbook and reports into ``out``.

    Raises UserErrors (before any work, or a store that stops taking writes). Cancelled, it writes
    what there is with outcome Stopped and returns.
    """
    info = await check_endpoints(prepared)
    run = prepared.run
    digest = manifest_digest(run)
    identity = RunIdentity(run.name, digest, prepared.facts.digests)
    folder = RunFolder.open(out, identity)
    try:
        return await _work(prepared, folder, Identity(run.name, identity.uid), digest, info, listener)
    finally:
        folder.close()


async def _work(
    prepared: Prepared,
    folder: RunFolder,
    who: Identity,
    digest: str,
    info: dict[str, ModelInfo],
    listener: Listener,
) -> Result:
    run, started = prepared.run, time.monotonic()
    spec = run.spec
    store = Store.open(str(folder.path / "store"))
    guard = BudgetGuard(limits_of(spec), lambda: time.monotonic() - started)
    meter = Meter(run.name, spec, prepared.facts, listener, guard)
    meter.simulated = any(model.simulated for model in info.values())
    listener.started(run.name, str(folder.path), resumed=bool(folder.plans() or folder.summaries()))
    for warning in preview(spec, data_shape(prepared)).warnings:
        listener.note(warning)
    models = _models(prepared, store, meter, guard)
    context = _context(prepared, who, store, models, meter)
    executor = LocalExecutor(context, who, folder, meter, guard, given=prepared.plans)
    ticker = asyncio.create_task(meter.tick())
    try:
        outcome = await _until_outcome(executor)
        context.cache.clear()
        session = Session(
            run=run,
            who=who,
            manifest_digest=digest,
            context=context,
            state=executor.state,
            outcome=outcome,
            plans=executor.plans,
            summaries=executor.summaries,
            models=info,
            wall_seconds=executor.earlier_seconds + time.monotonic() - started,
            data=prepared.data,
        )
        return await _write(session, folder)
    finally:
        ticker.cancel()
        await models.pool.aclose()
        store.close()


def _context(prepared: Prepared, who: Identity, store: Store, models: Models, meter: Meter) -> WorkContext:
    return work_context(
        prepared.run.spec,
        name=who.name,
        uid=who.uid,
        store=store,
        models=models,
        data=_HeldData(prepared.splits),
        progress=meter,
        initial_playbook=prepared.initial_playbook,
    )


def data_shape(prepared: Prepared) -> DataShape:
    """What a preview needs to know of the data."""
    task = task_for(prepared.run.spec.task.type)
    train = prepared.splits["train"].examples
    tokens = sum(estimate_tokens(task.model_input(example)) for example in train) / max(1, len(train))
    warnings = tuple(warning for split in prepared.splits.values() for warning in split.warnings)
    return DataShape(prepared.facts, tokens + estimate_tokens(task.instructions), warnings)


async def _until_outcome(executor: LocalExecutor) -> Outcome:
    try:
        return await executor.run()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        return executor.stopped()


async def _write(session: Session, folder: RunFolder) -> Result:
    """result.json last: where it is, the rest is."""
    result, files = await texts(session)
    for name, data in files.items():
        await folder.store.aput(name, data)
    return result


class _Silent:
    """A listener for work that nobody watches."""

    def started(self, run: str, folder: str, *, resumed: bool = False) -> None:
        """Says nothing."""

    def plan(self, plan: IterationPlan) -> None:
        """Says nothing."""

    def progress(self, state: ProgressState) -> None:
        """Says nothing."""

    def iteration(self, state: ProgressState) -> None:
        """Says nothing."""

    def note(self, text: str) -> None:
        """Says nothing."""


@asynccontextmanager
async def context_on(prepared: Prepared, out: Path) -> AsyncIterator[WorkContext]:
    """A context on the store of a finished run's folder, to ask its models one more thing."""
    who = Identity(prepared.run.name, manifest_digest(prepared.run)[:8])
    store = Store.open(str(out / "store"))
    guard = BudgetGuard(limits_of(prepared.run.spec), lambda: 0.0)
    meter = Meter(prepared.run.name, prepared.run.spec, prepared.facts, _Silent(), guard)
    models = _models(prepared, store, meter, guard)
    try:
        yield _context(prepared, who, store, models, meter)
    finally:
        await models.pool.aclose()
        store.close()
