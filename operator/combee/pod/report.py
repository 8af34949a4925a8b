"""``combee-worker report``: what ``combee run`` would have written, printed for whoever asked for it.

It only reads: the run, its frozen plans, the records that its steps left in the store, and what the
operator remembered (in the step's parameters). The files go to stdout as ``report.bundle`` packs them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from combee.api.digests import manifest_digest
from combee.assembly.context import keep_libraries_quiet, open_models, run_prefix, work_context
from combee.assembly.decided import clocks_file, read_clocks, read_plans
from combee.assembly.endpoints import role_endpoints
from combee.assembly.guard import BudgetGuard
from combee.clients.model.memo import MEMO, Memo
from combee.clients.model.wire import Endpoint
from combee.clients.store.store import DIGEST, Store, blob_path
from combee.errors import UserError
from combee.objects.results import CALLS, STORE
from combee.plan.cluster.engines import gpu_seconds
from combee.plan.cluster.hardware import with_hardware
from combee.plan.cluster.memory import Memory
from combee.plan.decide import Identity
from combee.plan.types import Clocks, IterationPlan, Outcome, Step, StepSummary
from combee.pod.data import PodData
from combee.pod.environment import Pod, open_store
from combee.pod.log import LogProgress, PodLog
from combee.pod.served import served_models
from combee.report.bundle import GATE_FILE, RESULT_FILE, calls_file, packed, store_file, texts
from combee.report.outcome import data_info
from combee.report.result import DataInfo
from combee.report.session import Session
from combee.steps import kind_of
from combee.tasks.traces import TracesTask
from combee.work.context import Accounts, WorkContext, decoded_receipt, read_receipt
from combee.work.pool import pooled
from combee.work.steps import rolled_up

PLANS_FOLDER = "/etc/combee/plans"
MAX_STORE_BYTES = 128 << 20
"""The most of a store that is printed: about 100,000 answers."""
_AT_ONCE = 16
"""Objects that are read at a time: so many more than what is printed are held in memory at most."""
UNFINISHED = Outcome("Stopped", "not over yet: this is what was finished when the report was made")


def run(pod: Pod, log: PodLog) -> int:
    """Print the files; return the exit code. Nothing is raised."""
    keep_libraries_quiet()
    return log.guarded(lambda: _print(pod, log))


def _print(pod: Pod, log: PodLog) -> None:
    for line in packed(asyncio.run(_files(pod, log))):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _files(pod: Pod, log: PodLog) -> dict[str, bytes]:
    memory = Memory.from_status(pod.step.params.get("state"))
    store = open_store(pod.settings, pod.settings.store)
    guard, prefix = BudgetGuard.of(pod.spec, lambda: 0.0), run_prefix(pod.name, pod.uid)
    accounts = Accounts(store, prefix, lambda record: None, guard, LogProgress(log), Memo(store))
    models = open_models(pod.spec.workers, {}, accounts)
    # The task is asked nothing here: reading a result does not run its task's code.
    context = work_context(pod.spec, accounts, models, PodData(pod), task=TracesTask())
    try:
        session = await _session(pod, memory, context, store)
        _, files = await texts(session)
        if pod.step.params.get(CALLS):
            files |= await _recorded(context, session)
        if pod.step.params.get(STORE):
            files |= await _stored(context)
    finally:
        await models.pool.aclose()
        store.close()
    result = files.pop(RESULT_FILE)
    plans = {f"plans/i{n:03d}.json": plan.to_json() for n, plan in sorted(session.plans.items())}
    clocks = {clocks_file(n): one.to_json() for n, one in sorted(_clocks(pod, memory).items())}
    steps = {f"steps/{name}.json": s.encode() for name, s in sorted(session.summaries.items())}
    return {**plans, **clocks, **steps, **files, RESULT_FILE: result}


def _clocks(pod: Pod, memory: Memory) -> dict[int, Clocks]:
    """Return what the clocks showed at each decision, that of stopping included."""
    frozen = read_clocks(pod.settings.path(PLANS_FOLDER))
    done = {number: clocks for number, clocks in frozen.items() if number < memory.run.iteration}
    return done if memory.stopped is None else {**done, memory.run.iteration: memory.stopped}


async def _recorded(context: WorkContext, session: Session) -> dict[str, bytes]:
    """Return the recorded calls of each step, and the scores of the look at gate where there was one."""
    files: dict[str, bytes] = {}
    for name, summary in sorted(session.summaries.items()):
        files[calls_file(name)] = b""
        for path in sorted(await context.store.alist(f"{context.prefix}/steps/{name}")):
            if path.endswith(".manifest.json"):
                left = decoded_receipt(await context.store.aget(path) or b"", path)
                if left is not None and (digest := left.outputs.get("calls")):
                    files[calls_file(name)] += await context.store.aget_blob(digest)
        if kind_of(summary.kind).looks_at_gate:
            record = json.loads(await context.store.aget_blob(summary.outputs["record"]))
            if digest := record["scores"].get("gate"):
                files[GATE_FILE] = await context.store.aget_blob(digest)
    return files


async def _stored(context: WorkContext) -> dict[str, bytes]:
    """Return what an audit and a replay read of the store: the run's folder, the blobs that its receipts
    name, and the answers of models: those of all runs on this store, since they bear no run's name.

    Raises UserError where that is more than a log should carry.
    """
    files: dict[str, bytes] = {}
    room = MAX_STORE_BYTES

    async def one(path: str) -> bytes | None:
        nonlocal room
        data = await context.store.aget(path)
        room -= len(data or b"")
        if room < 0:
            raise UserError(
                f"the run's record and the memo are over {MAX_STORE_BYTES >> 20} MiB, too much for a log",
                where=context.store.uri,
                fix="Give the store, or a copy of it, with --store",
            )
        return data

    async def read(paths: Sequence[str]) -> None:
        objects = await pooled(paths, one, width=_AT_ONCE)
        pairs = zip(paths, objects, strict=True)
        files.update({store_file(path): data for path, data in pairs if data is not None})

    await read(await context.store.alist(context.prefix))
    receipts = [
        decoded_receipt(data, path) for path, data in files.items() if path.endswith(".manifest.json")
    ]
    named = {value for one in receipts if one is not None for value in one.outputs.values()}
    await read([blob_path(value) for value in sorted(named) if DIGEST.fullmatch(value)])
    await read(await context.store.alist(MEMO))
    return files


async def _session(pod: Pod, memory: Memory, context: WorkContext, store: Store) -> Session:
    """Return from the store what a laptop's session holds when it ends."""
    done = memory.run.iteration
    frozen = read_plans(pod.settings.path(PLANS_FOLDER))
    plans = {number: plan for number, plan in frozen.items() if number < done}
    missing = [number for number in range(done) if number not in plans]
    if missing:
        raise UserError(
            f"the plans of {len(missing)} iterations are gone, "
            f"the first is that of iteration {missing[0] + 1}",
            where=f"ConfigMaps of {pod.name}",
            fix="They are deleted with the run only: was it deleted and applied again?",
        )
    over = memory.run.outcome is not None
    summaries = await summaries_in(context, plans, over=over)
    state = memory.run if over else replace(memory.run, outcome=UNFINISHED)
    infos, unknown = await served_models(store, context.prefix, _endpoints(pod))
    return Session(
        run=pod.run.model_copy(update={"spec": with_hardware(pod.spec, memory.nodes)}),
        who=Identity(pod.name, pod.uid[:8]),
        manifest_digest=manifest_digest(pod.run),
        context=context,
        state=state,
        outcome=state.outcome or UNFINISHED,
        plans=plans,
        summaries=summaries,
        models=infos,
        wall_seconds=memory.elapsed(memory.ended or time.time()),
        data=_with_unknown(data_info(memory.run.facts), unknown),
        gpu_seconds=gpu_seconds(pod.spec, memory, memory.ended or time.time()),
    )


async def summaries_in(
    context: WorkContext, plans: Mapping[int, IterationPlan], *, over: bool
) -> dict[str, StepSummary]:
    """Return the summaries of the finished steps of ``plans``' iterations, and of those around them."""
    shards: dict[str, list[int]] = defaultdict(list)
    for path in await context.store.alist(f"{context.prefix}/steps"):
        step, _, file = path.rpartition("/")
        shard, dot, rest = file.partition(".")
        if dot and rest == "manifest.json" and shard.isdigit():
            shards[step.rpartition("/")[2]].append(int(shard))
    summaries: dict[str, StepSummary] = {}
    for name, numbers in shards.items():
        receipts = [await read_receipt(context, name, number) for number in sorted(numbers)]
        parts = [receipt for receipt in receipts if receipt is not None]
        if not parts or any(part.error for part in parts):
            continue
        summary, iteration = parts[0], int(parts[0].counts.get("iteration", 0))
        kind = kind_of(summary.kind)
        if kind.sharded:
            plan = plans.get(iteration)
            if plan is not None and len(parts) == plan.shards:
                summaries[name] = rolled_up(Step(name, kind.name, iteration, plan.seed, plan.shards), parts)
        elif kind.phase == "Profiling" or (iteration in plans if kind.planned else over):
            summaries[name] = summary
    return summaries


def _endpoints(pod: Pod) -> dict[str, Endpoint]:
    return role_endpoints(
        pod.spec,
        engine_url=lambda engine: (pod.engines[engine], f"engine {engine}"),
        key_of=lambda role, ref: ("", ""),
    )


def _with_unknown(data: DataInfo, roles: list[str]) -> DataInfo:
    """Return ``data`` with a warning where it is not known who answered."""
    if not roles:
        return data
    names = " and ".join(roles)
    warning = f"which server answered as {names} was not noted: whether it is a real model is not known"
    return data.model_copy(update={"warnings": (*data.warnings, warning)})
