"""``combee replay`` without its output: a run's record is worked through again, and nobody is asked.

The executor is that of ``combee run``. Its folder is the record: a plan that it freezes is compared with the
recorded one, and so is what each step leaves; the recorded one counts, as it does when a run is resumed. So
what a clock measured is taken from the record. Its store answers from the record's memo, and from nothing
else.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from combee.algo.budget import Limits
from combee.assembly.guard import BudgetGuard
from combee.clients.model.recorded import Recorded
from combee.clients.store.store import Store
from combee.local.executor import LocalExecutor
from combee.local.meter import Meter, Silent
from combee.local.record import Record
from combee.local.session import Prepared, contexts
from combee.names import LESSONS_FILE
from combee.plan.types import Clocks, IterationPlan, Outcome, Step, StepSummary
from combee.report.build import lessons_markdown
from combee.report.bundle import prompt_files
from combee.report.entries import kept_text
from combee.report.outcome import result_of
from combee.report.rollouts import read_graphs
from combee.report.session import Session
from combee.steps import kind_of
from combee.work.context import OBSERVED, context_tokens, decoded_receipt, read_receipt, receipt_path
from combee.work.noted import errors_of
from combee.work.private import kept_anew

_COMPARED = ("outcome", "reason", "held_out", "test", "playbook", "entries", "variants", "refusals")
"""Fields of the result that follow from answers and decisions alone."""
FILES = "files"
"""What stands for the texts in the folder where a difference names its step."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that came out otherwise than it was recorded."""

    step: str
    """the step, ``plan of iteration 3``, ``result`` or ``files``."""
    field: str
    recorded: str
    now: str


@dataclass(slots=True)
class Replayed:
    """What a replay did and found."""

    run: str
    plans: int = 0
    steps: int = 0
    answers: int = 0
    """calls that the memo answered."""
    taken: frozenset[str] = frozenset()
    """where in the store these answers are, each once."""
    end: str = ""
    """the outcome, or where the record ends."""
    ended_early: bool = False
    """whether the record ends before the run does."""
    differences: list[Difference] = field(default_factory=list)


class _EndError(Exception):
    """The record ends here."""


@dataclass(slots=True)
class _RecordFolder:
    """Implements ``executor.Folder``: the record is compared with, and counts."""

    record: Record
    replayed: Replayed
    made: dict[str, StepSummary] = field(default_factory=dict)
    """the summaries of the replay's own steps."""
    lossy: bool = False
    """whether the step lost calls: what these used is charged in the record, and not asked again here."""

    def summaries(self) -> dict[str, StepSummary]:
        return {}

    def plans(self) -> dict[int, IterationPlan]:
        return {}

    def freeze(self, plan: IterationPlan) -> IterationPlan:
        recorded = self.record.plans.get(plan.iteration)
        if recorded is None:
            if self.record.stopped_at(plan.iteration):
                stop, now = {"batch_size": "none: learning stopped"}, {"batch_size": plan.batch_size}
                self.differ(f"plan of iteration {plan.iteration + 1}", stop, now)
            raise _EndError(f"before the plan of iteration {plan.iteration + 1}")
        self.replayed.plans += 1
        self.differ(f"plan of iteration {plan.iteration + 1}", asdict(recorded), asdict(plan))
        return recorded

    def clocks(self, iteration: int, now: Clocks) -> Clocks:
        """Return the recorded clocks. On a cluster an iteration that a budget ended leaves none: it was
        planned. An earlier version recorded none at all: the wall clock counted when learning stopped, which
        its folder says, and GPUs are not known."""
        if (recorded := self.record.clocks.get(iteration)) is not None:
            return recorded
        planned = iteration in self.record.plans or bool(self.record.clocks)
        return Clocks(0.0 if planned else self.record.stop_seconds)

    def keep(self, summary: StepSummary) -> StepSummary:
        recorded = self.record.summaries[summary.step]
        self.made[summary.step] = summary
        self.replayed.steps += 1
        self.differ(summary.step, self._compared(recorded), self._compared(summary))
        return recorded

    def _compared(self, summary: StepSummary) -> dict[str, Any]:
        counts, usage = dict(summary.counts), dict[str, Any]()
        for role, used in summary.usage.items():
            # A memo hit depends on who asked first, and what a failed call may have used is no answer's.
            numbers = asdict(replace(used, hits=0, lost_tokens=0))
            usage |= {role: numbers} if any(numbers.values()) else {}
        if self.lossy:
            counts.pop("rollouts", None)
        outputs = {name: digest for name, digest in summary.outputs.items() if name not in OBSERVED}
        return {"outputs": outputs, "counts": counts, "scores": dict(summary.scores), "usage": usage}

    def differ(self, step: str, recorded: Any, now: Any) -> None:
        """Keep what differs, by field."""
        self.replayed.differences += [
            Difference(step, name, *values) for name, *values in _differing(recorded, now)
        ]


def _differing(recorded: Any, now: Any, field_name: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (field, recorded, now) of each value that differs, inside mappings by their names."""
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        for name in sorted(recorded.keys() | now.keys()):
            below = f"{field_name}.{name}" if field_name else str(name)
            yield from _differing(recorded.get(name), now.get(name), below)
    elif recorded != now:
        yield field_name, _shown(recorded), _shown(now)


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text):,} characters)"


@dataclass(slots=True, kw_only=True)
class _Replay(LocalExecutor):
    """The executor on a record."""

    record: Record
    memo: Recorded
    kept: _RecordFolder

    async def _do(self, step: Step) -> None:
        """Do a step again, unless it failed at its budget, which is not held here. What follows a step that
        differs follows from it: the replay ends there."""
        recorded = self.record.summaries.get(step.name)
        if recorded is None:
            raise _EndError(f"in step {step.name}")
        if recorded.error:
            self.summaries[step.name] = recorded
            return
        paths = [receipt_path(self.context, step.name, shard) for shard in range(step.results)]
        lost = await self.record.lost(paths)
        self.memo.lost, self.kept.lossy = errors_of(lost), bool(lost)
        before = len(self.kept.replayed.differences)
        await LocalExecutor._do(self, step)
        done = self.summaries[step.name]
        if done.error:
            self.kept.differ(step.name, {"error": ""}, {"error": f"{done.error}: {done.message}"})
        elif kind_of(step.kind).sharded:
            await self._compare_shards(step, paths)
        if len(self.kept.replayed.differences) > before:
            raise _EndError(f"at step {step.name}, which differs")

    async def _compare_shards(self, step: Step, paths: list[str]) -> None:
        """Compare what each shard left, which the step's summary does not name."""
        for shard, path in enumerate(paths):
            data = await self.record.store.aget(path)
            now = await read_receipt(self.context, step.name, shard)
            recorded = None if data is None else decoded_receipt(data, path)
            if recorded is not None and now is not None:
                outputs = recorded.outputs
                named = {name: outputs.get(name) for name in now.outputs if name not in OBSERVED}
                named |= await self._kept_anew(outputs, now)
                made = {name: now.outputs[name] for name in named}
                self.kept.differ(f"{step.name} shard {shard}", {"outputs": named}, {"outputs": made})

    async def _kept_anew(self, recorded: Mapping[str, str], now: StepSummary) -> dict[str, str]:
        """Return the digest of trajectories that differ as they would be kept now: earlier releases kept
        their rows."""
        digest = recorded.get("trajectories")
        if digest is None or digest == now.outputs.get("trajectories"):
            return {}
        data = kept_anew(await self.record.store.aget_blob(digest))
        return {"trajectories": hashlib.sha256(data).hexdigest()}


async def replay(prepared: Prepared, record: Record, onto: Path | None = None) -> Replayed:
    """Work through a record again, and return what was done and what differs. ``onto``: an empty folder that
    is left with the store that was made.

    Raises UserError for a call that the record lacks, and DataError for a store that lacks what a step left.
    """
    replayed = Replayed(prepared.run.name)
    with tempfile.TemporaryDirectory(prefix="combee-replay-") as folder:
        memo, store = Recorded(record.store), Store.open(str(onto or folder))
        # The budget was held when the calls were made; what is left of it now decides nothing.
        guard = BudgetGuard(Limits(), lambda: 0.0)
        meter = Meter(prepared.run.name, prepared.run.spec, prepared.facts, Silent(), guard)
        try:
            async with contexts(prepared, record.who, store, meter, memo) as context:
                for role, client in context.clients.items():
                    client.recorded_context_tokens = await context_tokens(record.store, context.prefix, role)
                kept = _RecordFolder(record, replayed)
                executor = _Replay(
                    context,
                    record.who,
                    kept,
                    meter,
                    guard,
                    given=prepared.plans,
                    record=record,
                    memo=memo,
                    kept=kept,
                )
                outcome = await _until_the_end(executor, record, replayed)
                if not any(one.step.startswith(record.who.name) for one in replayed.differences):
                    await _compare_result(executor, record, prepared, outcome)
        finally:
            replayed.answers, replayed.taken = memo.answers, frozenset(memo.taken)
            store.close()
            await asyncio.to_thread(record.store.close)
    return replayed


async def _until_the_end(executor: _Replay, record: Record, replayed: Replayed) -> Outcome | None:
    """Return the outcome; where the record ends before there is one, the recorded one, None without any."""
    try:
        outcome = await executor.run()
        replayed.end = outcome.name
        return outcome
    except _EndError as end:
        replayed.end, replayed.ended_early = f"the record ends {end}", True
    result = record.result
    return None if result is None else Outcome(result.outcome, result.reason)


async def _compare_result(
    executor: _Replay, record: Record, prepared: Prepared, outcome: Outcome | None
) -> None:
    """Compare the result and the files that hold what was learned."""
    if record.result is None or outcome is None:
        return
    executor.context.cache.clear()
    session = Session(
        run=prepared.run,
        who=record.who,
        manifest_digest=record.result.manifest_digest,
        context=executor.context,
        state=executor.state,
        outcome=outcome,
        plans=executor.plans,
        summaries=executor.kept.made,
        models=dict(record.result.models.items()),
        wall_seconds=record.seconds,
        data=prepared.data,
    )
    result = await result_of(session, await read_graphs(session))
    # Earlier releases told the texts of entries that were refused for what they repeat.
    entries = tuple(
        entry.model_copy(update={"text": kept_text(entry.text, entry.left_out)})
        for entry in record.result.entries
    )
    recorded = record.result.model_copy(update={"entries": entries})
    fields = [one.model_dump(mode="json", include=set(_COMPARED)) for one in (recorded, result)]
    executor.kept.differ("result", *fields)
    files = {**prompt_files(result.playbook), LESSONS_FILE: lessons_markdown(result).encode()}
    executor.kept.differ(
        FILES, *({name: _text(data) for name, data in one.items()} for one in (record.files, files))
    )


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
