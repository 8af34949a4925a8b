"""``combee run`` without its screen: check everything first, then work, then write what is left.

Order matters. Manifest, flags, data and endpoints are all checked before DIR is touched, so that a
mistake (exit 2) leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from combee.algo.tokens import estimate_tokens
from combee.api.digests import manifest_digest
from combee.api.load import config_maps_in
from combee.api.local import check_local, check_readable
from combee.api.run import PromptLearningRun
from combee.assembly.context import (
    Share,
    energy_meter,
    keep_libraries_quiet,
    open_models,
    run_prefix,
    work_context,
)
from combee.assembly.decided import given_plans, read_plans
from combee.assembly.folder import RunFolder, changed
from combee.assembly.guard import BudgetGuard
from combee.assembly.identity import RunIdentity, holds
from combee.assembly.manifest import read_manifest_text, run_in
from combee.assembly.rollouts import Place, check_adapter, rolling_out, sandbox_of, with_agent
from combee.assembly.splits import data_facts, refuse_too_small
from combee.clients.model.chat import ChatClient, ChatRequest, ConnectionPool, Endpoint
from combee.clients.model.embedding import PROBE
from combee.clients.model.forms import EMBEDDER
from combee.clients.model.limits import RunLimits
from combee.clients.model.memo import Memo
from combee.clients.sandbox.sandbox import Sandbox
from combee.clients.store.store import Store
from combee.errors import DataError, UserError
from combee.jsonread import read_json
from combee.local.clock import RunClock
from combee.local.executor import LocalExecutor
from combee.local.meter import Listener, Meter, Silent
from combee.local.sources import (
    HeldData,
    StandIns,
    check_keys,
    endpoints,
    read_initial_playbook,
    read_splits,
    uncounted,
    with_config_maps,
    with_engine_models,
)
from combee.methods.registry import method_of
from combee.plan.decide import Identity, given_are_done
from combee.plan.preview import DataShape, Preview, preview
from combee.plan.state import DataFacts
from combee.plan.types import IterationPlan, Outcome
from combee.records import Example
from combee.report.bundle import RESULT_FILE, texts
from combee.report.outcome import data_info, model_info
from combee.report.result import DataInfo, ModelInfo, Result, read_result
from combee.report.session import Session
from combee.tasks.dataset import Dataset
from combee.tasks.registry import task_of
from combee.work.context import Accounts, WorkContext


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run whose every input was read and found good. Nothing is written yet."""

    run: PromptLearningRun
    splits: Mapping[str, Dataset]
    endpoints: Mapping[str, Endpoint]
    initial_playbook: str
    plans: Mapping[int, IterationPlan] = field(default_factory=dict)
    sandbox: Sandbox | None = None
    """what rolls out, for a task in a container."""
    recorded: bool = False
    """whether no model is asked, and the memo has every answer."""
    earlier: Store | None = None
    """the store of another run, whose answers are taken over."""

    @property
    def facts(self) -> DataFacts:
        """Counts and digests of the data."""
        return data_facts(self.splits, self.run.spec.task.repeats)

    @property
    def data(self) -> DataInfo:
        """The same for the result."""
        return data_info(self.facts, [text for split in self.splits.values() for text in split.warnings])


def prepare(
    path: Path,
    given: StandIns,
    plans: Path | None = None,
    *,
    for_preview: bool = False,
    recorded: bool = False,
) -> Prepared:
    """Read and check all inputs. Raises UserErrors only. ``for_preview`` asks for no endpoint, ``recorded``
    for the address of none."""
    text, where = read_manifest_text(path), str(path)
    run, base = run_in(text, where), path.resolve().parent
    given = with_config_maps(given, run, config_maps_in(text, where))
    return prepare_run(run, base, given, plans, for_preview=for_preview, recorded=recorded)


def prepare_run(
    run: PromptLearningRun,
    base: Path,
    given: StandIns,
    plans: Path | None = None,
    *,
    for_preview: bool = False,
    recorded: bool = False,
) -> Prepared:
    """The same for a run that is read already; its paths are relative to ``base``."""
    sandbox, run = None, with_engine_models(run, given)
    if not recorded:
        check_keys(given)
    if for_preview or recorded:
        check_readable(run, given.names())
    else:
        check_local(run, given.names())
    if not for_preview:
        sandbox = sandbox_of(run, given.task_user, base)
    splits = read_splits(run, task_of(run.spec.task), given, base)
    prepared = Prepared(
        run=run,
        splits=splits,
        endpoints={} if for_preview else endpoints(run, given, recorded=recorded),
        initial_playbook=read_initial_playbook(run, given, base),
        plans=given_plans(plans) if plans else {},
        sandbox=sandbox,
        recorded=recorded,
    )
    if not for_preview:
        refuse_too_small(splits)
    return prepared


async def check_endpoints(prepared: Prepared) -> dict[str, ModelInfo]:
    """Ask every endpoint in use whether it takes the key and serves the model, and an embedder to embed."""
    keep_libraries_quiet()
    pool, limits = ConnectionPool(), RunLimits(4)
    info: dict[str, ModelInfo] = {}
    # A name of its own: what one endpoint answered here must not stand in for another of the same process.
    nowhere = Memo(Store.open(f"memory://preflight-{uuid4().hex}"))
    try:
        for role, endpoint in prepared.endpoints.items():
            client = ChatClient(endpoint, role, nowhere, limits, pool=pool)
            served = await client.check()
            if role == EMBEDDER:
                await client.ask(ChatRequest(PROBE))
            info[role] = model_info(endpoint.model, endpoint.host, served.owned_by)
    finally:
        await pool.aclose()
    return info


SERVERS = "memo/servers.json"
"""What the servers said of themselves whose answers are in the memo, by model."""


def recorded_models(prepared: Prepared, store: Store) -> dict[str, ModelInfo]:
    """Return what is known of models that nobody asks: what was put down when they were asked.

    Raises UserError where nothing was: numbers of a simulated model must say so.
    """
    served, info = _servers(store), {}
    for role, one in prepared.endpoints.items():
        if one.model not in served:
            raise UserError(
                f"the memo does not say what served {one.model}",
                where="--recorded",
                fix="Name a folder with -o in which combee run asked that model, or a copy of its store/memo",
            )
        info[role] = model_info(one.model, "", f"{served[one.model]} (recorded)")
    return info


def remember_servers(store: Store, info: Mapping[str, ModelInfo]) -> None:
    """Put down beside the answers what served them. One simulated server makes all of a model's simulated."""
    served = _servers(store)
    served |= {
        one.model: one.served_by for one in info.values() if "simulated" not in served.get(one.model, "")
    }
    store.put(SERVERS, json.dumps(served, sort_keys=True).encode())


def _servers(store: Store) -> dict[str, str]:
    with suppress(ValueError, TypeError):  # damaged: it is put down again
        return {str(model): str(by) for model, by in dict(read_json(store.get(SERVERS) or b"{}")).items()}
    return {}


async def _not_recorded() -> None:
    raise UserError(
        "the memo has no answer to a call of this run",
        where="--recorded",
        fix="Leave --recorded out, or take the manifest, data and version of the recording. "
        "A call that was lost then has no answer either",
    )


async def run_session(prepared: Prepared, out: Path, listener: Listener) -> Result:
    """Work until there is an outcome, then write result, playbook and reports into ``out``.

    Raises UserErrors (before any work, or a store that stops taking writes). Cancelled, it writes
    what there is with outcome Stopped and returns. Of a run that is over it only reads the result.
    """
    run, digest = prepared.run, manifest_digest(prepared.run)
    identity = RunIdentity(run.name, digest, prepared.facts.digests)
    over, edited = finished(out, identity, prepared.plans), changed(out)
    if over is not None and not edited:
        listener.started(run.name, str(out), resumed=True, over=True)
        return over
    if prepared.recorded:
        info = recorded_models(prepared, Store.open(str(out / "store")))
    elif over is not None and RESULT_FILE not in edited:
        info = {str(role): one for role, one in over.models.items()}  # only its files are written again
    else:
        info = await check_endpoints(prepared)
    if prepared.sandbox is not None:
        await prepared.sandbox.check()
    await check_adapter(run.spec, prepared.endpoints)
    folder = RunFolder.open(out, identity)
    try:
        return await _work(prepared, folder, Identity(run.name, identity.uid), digest, info, listener)
    finally:
        folder.close()


OVER = ("Learned", "Unsure", "NothingBetter", "BudgetExhausted")
"""The outcomes that the same manifest on the same data keeps; after the others the same command goes on."""


def finished(out: Path, identity: RunIdentity, plans: Mapping[int, IterationPlan]) -> Result | None:
    """Return the result of a run that is over, None where there is more to do, or the result is damaged.

    ``plans``: those of ``--plans``; a run with other iterations than they name is not over, nor is one that
    obeyed plans and is now to choose for itself. Raises UserError for another run, DataError for other data.
    """
    kept = read_plans(out / "plans") if holds(out, identity) else {}
    if plans and plans.keys() != kept.keys():
        return None
    try:
        result = read_result(Store.open(str(out)).get(RESULT_FILE) or b"")
    except DataError:
        return None
    goes_on = not plans and result.reason.endswith(given_are_done(len(kept)))
    return result if result.outcome in OVER and not goes_on else None


async def _work(
    prepared: Prepared,
    folder: RunFolder,
    who: Identity,
    digest: str,
    info: dict[str, ModelInfo],
    listener: Listener,
) -> Result:
    run, spec = prepared.run, prepared.run.spec
    clock = RunClock(folder)
    store = Store.open(str(folder.path / "store"))
    guard = BudgetGuard.of(spec, clock)
    meter = Meter(run.name, spec, prepared.facts, listener, guard)
    if not prepared.recorded:
        remember_servers(store, info)
    meter.simulated = any(model.simulated for model in info.values())
    listener.started(run.name, str(folder.path), resumed=bool(folder.plans() or folder.summaries()))
    for warning in preview_here(prepared).all_warnings:
        listener.note(warning)
    tickers = [asyncio.create_task(meter.tick()), asyncio.create_task(clock.beat())]
    try:
        async with contexts(prepared, who, store, meter) as context:
            executor = LocalExecutor(context, who, folder, meter, guard, given=prepared.plans)
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
            wall_seconds=clock(),
            data=prepared.data,
        )
        return await _write(session, folder, listener)
    finally:
        for ticker in tickers:
            ticker.cancel()
        clock.stop()
        store.close()


@asynccontextmanager
async def contexts(
    prepared: Prepared, who: Identity, store: Store, meter: Meter, memo: Memo | None = None
) -> AsyncIterator[WorkContext]:
    """The context of a session, its models and runner open. ``memo``: the store's own if none is given."""
    spec, data, start = prepared.run.spec, HeldData(prepared.splits), prepared.initial_playbook
    prefix, memo = run_prefix(who.name, who.uid), memo or Memo(store, earlier=prepared.earlier)
    accounts = Accounts(store, prefix, meter.on_call, meter.guard, meter, memo)
    models = open_models(spec.workers, with_agent(spec, prepared.endpoints), accounts)
    meter.limits = models.limits
    if prepared.recorded:
        for client in models.clients.values():
            client.ready = _not_recorded
    place = None if prepared.sandbox is None else Place(prepared.sandbox)
    try:
        async with rolling_out(spec, place, models, accounts, Share()) as runner:
            energy = None if prepared.recorded else energy_meter(spec, {})
            yield work_context(
                spec, accounts, models, data, initial_playbook=start, runner=runner, energy=energy
            )
    finally:
        await models.pool.aclose()


def preview_here(prepared: Prepared) -> Preview:
    """What the run would do on a laptop."""
    spec, shape = prepared.run.spec, data_shape(prepared)
    return preview(spec, replace(shape, warnings=(*shape.warnings, *uncounted(spec))))


def data_shape(prepared: Prepared) -> DataShape:
    """What a preview needs to know of the data."""
    spec, train = prepared.run.spec, prepared.splits["train"]
    task = task_of(spec.task)
    warnings = tuple(warning for split in prepared.splits.values() for warning in split.warnings)
    method, text, budget_tokens = method_of(spec), prepared.initial_playbook, spec.method.render_token_budget
    start = method.started(text, train=train.digest) if text else method.empty()
    parts = method.render(start, budget_tokens=budget_tokens, verify=spec.verify)

    def prompt_tokens(one: Example) -> int:
        prompt = method.rollout_prompt(task.instructions, "", task.model_input(one))
        return sum(estimate_tokens(message.content) for message in prompt.messages)

    tokens = sum(one.tokens or prompt_tokens(one) for one in train.examples) / max(1, len(train.examples))
    components, start_tokens = max(1, len(parts.components)), estimate_tokens(parts.text)
    return DataShape(prepared.facts, tokens, warnings, components, start_tokens, len(train.labelled))


async def _until_outcome(executor: LocalExecutor) -> Outcome:
    try:
        return await executor.run()
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        return executor.stopped()


async def _write(session: Session, folder: RunFolder, listener: Listener) -> Result:
    """result.json last: where it is, the rest is."""
    result, files = await texts(session)
    for name in await asyncio.to_thread(folder.leave, files):
        listener.note(f"{folder.path / name} was changed; it is written again, what was there is {name}.orig")
    return result


@asynccontextmanager
async def context_on(prepared: Prepared, out: Path) -> AsyncIterator[WorkContext]:
    """A context on the store of a finished run's folder, to ask its models one more thing."""
    who = Identity(prepared.run.name, manifest_digest(prepared.run)[:8])
    store = Store.open(str(out / "store"))
    guard = BudgetGuard.of(prepared.run.spec, lambda: 0.0)
    meter = Meter(prepared.run.name, prepared.run.spec, prepared.facts, Silent(), guard)
    try:
        async with contexts(prepared, who, store, meter) as context:
            yield context
    finally:
        store.close()
