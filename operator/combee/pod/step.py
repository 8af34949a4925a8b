"""One shard of one step, in a pod: the same work as on a laptop, with files for flags.

Exit 0: the step did its work, or never will (its error is in the receipt and the summary), or yielded
its place. Exit 1: another try may help. Exit 70: a bug.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from combee.algo.budget import Limits
from combee.api.common import SecretKeyRef
from combee.api.texts import in_bytes
from combee.assembly.context import (
    Share,
    energy_meter,
    keep_libraries_quiet,
    open_models,
    run_prefix,
    work_context,
)
from combee.assembly.crash import bug_text
from combee.assembly.endpoints import role_endpoints
from combee.assembly.guard import BudgetGuard
from combee.assembly.splits import refuse_overlap, refuse_too_small
from combee.clients.model.memo import Memo
from combee.clients.model.wire import CallRecord, Endpoint, OnCall
from combee.clients.store.store import Store
from combee.errors import (
    BudgetExhaustedError,
    BugError,
    CombeeError,
    DamagedError,
    TransientError,
)
from combee.names import rollout_token, step_name
from combee.objects.rollout_layout import PORT
from combee.plan.state import limits_of
from combee.plan.types import DAMAGED_FILE, StepSummary, add_usage
from combee.pod.budget import gpus_by, kept_by, shared_limits, spent_before, with_budget, with_shards
from combee.pod.damage import answers_before, is_to_be_mended, mends, not_made_again, written_by
from combee.pod.data import PodData, initial_playbook
from combee.pod.environment import Pod, open_store, secret_key
from combee.pod.inputs import others_done, read_inputs
from combee.pod.log import BUG, DONE, FAILED, LogProgress, PodLog
from combee.pod.served import note_servers
from combee.pod.termination import permanent, tell
from combee.steps import KINDS, PROFILE
from combee.tasks.protocol import Task
from combee.tasks.registry import task_of
from combee.tasks.traces import TracesTask
from combee.work.context import Accounts, Runner, WorkContext, context_tokens, read_receipt, write_receipt
from combee.work.sharing import used_by_others
from combee.work.steps import help_map, run_shard

if TYPE_CHECKING:
    from combee.assembly.rollouts import Place

YIELDED = "Yielded"
READY_SECONDS = 30.0
"""How long to wait for an endpoint that is not an engine of the run before the first call."""
LOOK_SECONDS = 1.0
MAX_MESSAGE = 1000


def run(pod: Pod, log: PodLog) -> int:
    """Do the pod's shard; return the exit code. Nothing is raised."""
    keep_libraries_quiet()
    worker = _Worker(pod, log)
    try:
        return asyncio.run(worker.run())
    except CombeeError as error:
        return worker.failed(error)
    except Exception as error:
        worker.tell(worker.summary(BugError.code, bug_text(error)))
        log.say("ERROR", bug_text(error))
        return BUG


@dataclass(slots=True)
class _Worker:
    pod: Pod
    log: PodLog
    refusal: CombeeError | None = None
    """why its models or its task cannot be used, which is known before it can be written anywhere."""
    guard: BudgetGuard = field(default_factory=lambda: BudgetGuard(Limits(), lambda: 0.0))
    """what it spends; set once it can spend anything."""
    before: StepSummary | None = None
    """what its shard left already."""
    inputs: list[StepSummary] = field(default_factory=list)
    """what the earlier steps left, once it is there."""

    @property
    def joins(self) -> bool:
        """Whether it does a step together with other pods."""
        return KINDS[self.pod.step.kind].together and self.pod.step.shards > 1

    @property
    def assists(self) -> bool:
        """Whether it is not the one of them that tells why the step cannot be done."""
        return self.joins and self.pod.shard > 0

    @property
    def place(self) -> int:
        """Which of the step's receipts is its own."""
        return min(self.pod.shard, self.pod.step.results - 1)

    async def _receipt(self, context: WorkContext | Accounts) -> StepSummary | None:
        return await read_receipt(context, self.pod.step.name, self.place)

    async def run(self) -> int:
        """Do one shard, then help others; return the exit code. Raises errors that are no step's result."""
        pod = self.pod
        store = open_store(pod.settings, pod.settings.store)
        try:
            async with self._context(store) as (context, self.guard):
                self.log.say("INFO", "at work", startedSeconds=round(time.monotonic() - self.log.begun, 3))
                done = self.before
                mends = done is not None and is_to_be_mended(done, pod.step)
                if done is None or (mends and not self.assists):
                    done = await self._result(replace(context, before=done))
                if self.assists and (mends or done.error):
                    done = None if mends else await self._receipt(context)
                if done is None:
                    self.log.say("INFO", "what came of the step is told by another pod")
                    return DONE
                self.tell(done)
                self.log.say("INFO", "the result is kept")
                if pod.shard == 0:
                    await note_servers(context)
                if KINDS[pod.step.kind].sharded and not done.error and not self.again:
                    await self._help(context)
        finally:
            store.close()
        return DONE

    @property
    def again(self) -> bool:
        """Whether it makes again what its shard left, of which a file is damaged. Then nobody is asked."""
        before = self.before
        return before is not None and not before.error and is_to_be_mended(before, self.pod.step)

    async def _result(self, context: WorkContext) -> StepSummary:
        """Return the shard's summary. A permanent error is a result, and is written as one."""
        pod = self.pod
        try:
            return await self._worked_beside_others(context)
        except DamagedError as error:
            left = await written_by(context.store, context.prefix, error)
            level = "WARNING" if left else "ERROR"
            self.log.say(level, f"{error}{mends(left)}", error=error.code)
            failed = replace(self.summary(error.code, str(error)), outputs=left)
            if left and not KINDS[pod.step.kind].sharded:
                return failed
        except CombeeError as error:
            if not permanent(error):
                raise
            if self.again:
                error = not_made_again(context.store, str(pod.step.params[DAMAGED_FILE]), error)
            self.log.say("ERROR", str(error), error=error.code)
            failed = self.summary(error.code, str(error))
        if self.assists:
            return failed
        if self.joins and not self.again:
            others = await used_by_others(context, pod.step, pod.shard)
            failed = replace(failed, usage=add_usage(failed.usage, others))
        try:
            return await write_receipt(context, failed, self.place)
        except CombeeError as error:
            self.tell(failed)
            raise TransientError(f"the step's error cannot be kept: {error}", where=pod.step.name) from None

    async def _worked_beside_others(self, context: WorkContext) -> StepSummary:
        """Do the shard, unless another pod that does the same step is through first."""
        if not self.joins or context.before is not None:
            return await self._worked(context)
        working = asyncio.ensure_future(self._worked(context))
        try:
            while not working.done():
                await asyncio.wait({working}, timeout=LOOK_SECONDS)
                if not working.done() and (done := await self._receipt(context)) is not None:
                    return done
            return working.result()
        finally:
            working.cancel()
            await asyncio.wait({working})

    async def _worked(self, context: WorkContext) -> StepSummary:
        pod, step, plan = self.pod, self.pod.step, self.pod.plan
        began = time.monotonic()
        if self.refusal is not None:
            raise self.refusal
        for role, client in context.clients.items() if self.again else ():
            client.recorded_context_tokens = await context_tokens(context.store, context.prefix, role)
        if plan is not None and KINDS[step.kind].waits_for:
            read = await self._inputs(context)
            if read is None:
                self.log.say("INFO", "inputs are not there yet: the place is given up")
                return self.summary(YIELDED, "its inputs were not there in time")
            self.inputs = read
            if (broken := next((one for one in read if one.error), None)) is not None:
                passed_on = self.summary(broken.error, broken.message)
                if broken.error == DamagedError.code and broken.outputs:
                    return replace(passed_on, outputs=broken.outputs)
                return await write_receipt(context, passed_on, self.place)
            self.log.say("INFO", "the inputs are there")
        self._start_guard(began)
        if KINDS[step.kind].opens:
            await self._accept_data(context)
            context = replace(context, initial_playbook=await asyncio.to_thread(initial_playbook, pod))
        if KINDS[step.kind].sharded and plan is not None:
            context.progress.begin(step.kind, plan.batch_size // max(1, plan.shards))
        baseline = ""
        if KINDS[step.kind].looks_at_gate:
            baseline = str(step.params.get("baseline") or (await _profiled(context, pod)).get("artifact", ""))
        return await run_shard(context, step, plan, baseline, pod.shard)

    async def _inputs(self, context: WorkContext) -> list[StepSummary] | None:
        """Wait for the inputs, and read the data meanwhile."""
        step, plan = self.pod.step, self.pod.plan
        if plan is None:
            raise BugError("a step with inputs has a plan", where=step.name)
        ahead = asyncio.ensure_future(context.data.train()) if "train" in KINDS[step.kind].data else None
        waits = step.params.get("waitSeconds")
        try:
            return await read_inputs(
                context,
                step,
                plan,
                wait_seconds=None if waits is None else float(waits),
                sleep=asyncio.sleep,
            )
        finally:
            if ahead is not None and not ahead.done():
                ahead.cancel()
            if ahead is not None:
                with suppress(asyncio.CancelledError, CombeeError):
                    await ahead

    async def _accept_data(self, context: WorkContext) -> None:
        """Do the checks that ``combee run`` does before any work."""
        data = context.data
        if not isinstance(data, PodData):
            raise BugError("profile reads the pod's data")
        splits = await data.every()
        for split in splits.values():
            for warning in split.warnings:
                context.progress.note(warning)
        refuse_overlap(splits)
        refuse_too_small(splits)

    def _start_guard(self, began: float) -> None:
        """Guard what is left. What was spent is of when the pod was placed, so time counts from its start."""
        pod, guard = self.pod, self.guard
        guard.gpus = gpus_by(pod.spec, pod.step) / max(1, pod.step.shards)
        spent = spent_before(pod.spec, pod.step.params, self.inputs)
        # What the memo answers is charged already.
        limits = Limits() if self.again else limits_of(with_budget(pod.spec, pod.step.params))
        guard.limits = shared_limits(limits, spent, pod.step.shards, pod.shard)
        guard.elapsed_seconds = lambda: spent.wall_clock_seconds + time.monotonic() - began
        guard.start_step(spent, kept_by(pod.step.params, max(1, pod.step.shards)))

    async def _help(self, context: WorkContext) -> None:
        """Take work from shards that are still at it, until they are done. The owner meets whatever goes
        wrong here: this pod's result stands."""
        pod, plan = self.pod, self.pod.plan
        if plan is None or pod.step.shards < 2:
            return
        helping = asyncio.ensure_future(help_map(context, pod.step, plan, pod.shard))
        try:
            while not helping.done():
                await asyncio.wait({helping}, timeout=LOOK_SECONDS)
                if await others_done(context.store, context.prefix, pod.step.name, pod.step.shards):
                    helping.cancel()
                    break
            taken = await helping
            if taken:
                self.log.say("INFO", f"took {taken} examples of other shards", taken=taken)
        except asyncio.CancelledError:
            return
        except CombeeError as error:
            level = "INFO" if isinstance(error, BudgetExhaustedError) else "WARNING"
            self.log.say(level, f"stopped helping: {error}")

    @asynccontextmanager
    async def _context(self, store: Store) -> AsyncIterator[tuple[WorkContext, BudgetGuard]]:
        pod, data = self.pod, PodData(self.pod)
        part = part_of(pod)
        guard = BudgetGuard.of(pod.spec, lambda: 0.0)
        waits = float(pod.step.params.get("engineWaitSeconds") or READY_SECONDS)
        prefix = run_prefix(pod.name, pod.uid)
        accounts = Accounts(store, prefix, self._noticing(guard), guard, LogProgress(self.log), Memo(store))
        self.before = await self._receipt(accounts)
        if self.again and self.before is not None:
            accounts = replace(accounts, memo=await answers_before(store, self.before))
        task: Task = TracesTask()
        endpoints: Mapping[str, Endpoint] = {}
        rolling: AbstractAsyncContextManager[Runner | None] = nullcontext()
        try:
            endpoints, task = _endpoints(pod), task_of(pod.spec.task)
        except CombeeError as error:
            self.refusal = error
        if pod.spec.task.custom is not None:
            # With its server, it is an eighth of what a step would import.
            from combee.assembly.rollouts import rolling_out, with_agent

            endpoints = with_agent(pod.spec, endpoints)
        models = open_models(pod.spec.workers, endpoints, accounts, share=part, wait_seconds=waits)
        energy = energy_meter(pod.spec, pod.engines)
        context = work_context(pod.spec, accounts, models, data, share=part, task=task, energy=energy)
        if pod.spec.task.custom is not None:
            rolling = rolling_out(pod.spec, desk(pod, part), models, accounts, part)
        try:
            data.pinned = await _pinned(context, pod)
            async with rolling as runner:
                yield replace(context, runner=runner), guard
        finally:
            await models.pool.aclose()

    def _noticing(self, guard: BudgetGuard) -> OnCall:
        """Return a listener that tells the guard of each call, and the log of each kind of trouble once."""
        logged: set[tuple[str, str]] = set()

        def on_call(record: CallRecord) -> None:
            guard.settle(record)
            for why in (*record.retried_for, record.error):
                if why and why != "Cancelled" and (record.role, why) not in logged:
                    logged.add((record.role, why))
                    self.log.say("WARNING", f"a call was asked again or lost ({why})", modelRole=record.role)

        return on_call

    def failed(self, error: CombeeError) -> int:
        """Report an error that another try may mend, or a bug; return the exit code."""
        self.tell(self.summary(error.code, str(error)))
        self.log.say("ERROR", str(error), error=error.code)
        return BUG if isinstance(error, BugError) else FAILED

    def summary(self, error: str, message: str) -> StepSummary:
        """Return a summary of a step that did not do its work, with what it and its shards spent."""
        shown = message.encode()[:MAX_MESSAGE].decode(errors="ignore")
        return with_shards(self.guard.failed(self.pod.step, error, shown), self.inputs)

    def tell(self, summary: StepSummary) -> None:
        """Leave the summary where the kubelet reads it."""
        tell(self.pod, summary, self.log)


async def _profiled(context: WorkContext, pod: Pod) -> dict[str, str]:
    """Return what ``profile`` left: the digests of the splits and of the untouched artifact."""
    if KINDS[pod.step.kind].opens:
        return {}
    receipt = await read_receipt(context, step_name(pod.name, pod.uid, 0, PROFILE.name))
    return dict(receipt.outputs) if receipt is not None else {}


async def _pinned(context: WorkContext, pod: Pod) -> dict[str, str]:
    """Return split -> the digest it must have: the operator's word, else what profile found."""
    stated = pod.step.params.get("digests")
    digests = dict(stated) if stated else await _profiled(context, pod)
    return {name: str(digests[name]) for name in ("train", "heldOut", "test") if name in digests}


def _endpoints(pod: Pod) -> dict[str, Endpoint]:
    """Return the endpoints of the roles that this kind of step may use."""

    def engine_url(engine: str) -> tuple[str, str]:
        if engine not in pod.engines:
            raise BugError(f"no address of engine {engine}", where="COMBEE_ENGINES")
        return pod.engines[engine], f"engine {engine}"

    def key_of(role: str, ref: SecretKeyRef) -> tuple[str, str]:
        where = f"spec.models.{role}.endpoint.apiKeySecretRef"
        return secret_key(pod.settings, f"role-{role}", ref, where), f"{ref.key} of the Secret {ref.name}"

    roles = KINDS[pod.step.kind].roles
    return role_endpoints(pod.spec, engine_url=engine_url, key_of=key_of, balanced=True, only=roles)


def part_of(pod: Pod) -> Share:
    """Return this pod's part of the run's limits. The operator says how many calls the run may have in flight
    where it shares its engine; an earlier operator said nothing."""
    return Share(max(1, pod.step.shards), pod.shard, pod.step.params.get("concurrency"))


def desk(pod: Pod, share: Share) -> Place | None:
    """Return this pod's desk with its part of the run's rollouts at once; None where the step has none."""
    container = pod.spec.task.container
    if container is None or not pod.settings.address:
        return None
    from combee.assembly.rollouts import Place
    from combee.clients.sandbox.desk import RolloutDesk

    made = RolloutDesk(rollout_token(pod.uid), container.timeout_seconds, in_bytes(container.scratch))
    return Place(made, pod.settings.address, PORT, made.routes, share.of(container.concurrency))
