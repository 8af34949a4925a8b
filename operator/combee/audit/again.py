"""What an audit asks models for: fresh answers to the closing look, and whole runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from combee.algo.budget import Limits
from combee.api.run import LimitName, PromptLearningRun
from combee.assembly.guard import BudgetGuard
from combee.audit.cost import at_most
from combee.clients.store.store import Store
from combee.errors import DataError, UserError
from combee.local.meter import Listener, Meter
from combee.local.record import Record
from combee.local.session import Prepared, contexts, run_session
from combee.plan.gatescores import gate_sides
from combee.plan.types import StepSummary
from combee.records import Example
from combee.report.audit import AuditedRun
from combee.report.result import Paired, Result
from combee.report.stamps import Scores, overruns, paired_of
from combee.steps import kind_of
from combee.work.context import WorkContext, held_out_split
from combee.work.rollouts import closing_scores

REPEAT = 1_000_003
"""The repeat ordinal of fresh answers. Runs number their repeats by epochs, from 0, and reach no such number,
so that neither a memo nor a server that takes the ordinal for a seed answers as before."""
STORE, MEMO = "store", "memo"


async def share_memo(record: Store, taken: Iterable[str], folder: Path) -> None:
    """Copy the answers that the run took from its store into the memo that the seeds share."""
    shared = Store.open(str(folder))
    try:
        kept = set(await shared.alist(MEMO))

        async def copy(path: str) -> None:
            if (data := await record.aget(path)) is not None:
                await shared.aput_new(path, data)

        await asyncio.gather(*(copy(path) for path in sorted(set(taken) - kept)))
    finally:
        shared.close()


def with_seed(run: PromptLearningRun, seed: int, audited: Result) -> PromptLearningRun:
    """Return the run with another seed. It may use twice the tokens and twice the money of the audited run,
    where its manifest does not allow less, so that the cost which was stated bounds the audit.

    Its other limits stay: a diagnosis takes its share of rollouts, and seconds tell of the hardware.
    """
    budget = run.spec.budget
    stated = [limit for limit in get_args(LimitName) if limit in budget.dump()]
    primary = budget.primary or (stated[0] if stated else "tokens")
    paid = next((line.spent for line in audited.budget if line.name == "money"), 0.0)
    tokens = round(at_most(audited.tokens, budget.tokens))
    caps: dict[str, Any] = {"tokens": tokens, "primary": primary}
    if paid:
        caps["money"] = at_most(paid, budget.money)
    budget = budget.model_copy(update=caps)
    spec = run.spec.model_copy(update={"seed": seed, "budget": budget})
    return run.model_copy(update={"spec": spec})


async def rescored(prepared: Prepared, record: Record, folder: Path, listener: Listener) -> Paired:
    """Score the delivered prompt and the untouched one again, on test where there is one, else on gate. Every
    question is asked anew. Raises TransientError on a bad day."""
    store = Store.open(str(folder / STORE))
    guard = BudgetGuard(Limits(), lambda: 0.0)
    meter = Meter(prepared.run.name, prepared.run.spec, prepared.facts, listener, guard)
    try:
        async with contexts(prepared, record.who, store, meter) as context:
            examples, split = await _rows(context)
            asker = context.asker()
            scores = list[dict[str, float]]()
            for name, digest in zip(("baseline", "best"), _artifacts(record), strict=True):
                artifact = context.method.from_json(await record.store.aget_blob(digest))
                shown = context.rendered(artifact).shown
                stage = f"{split} {name}"
                scored = await closing_scores(context, asker, examples, shown, stage=stage, repeat=REPEAT)
                scores.append(scored.by_cluster)
    finally:
        await asyncio.to_thread(store.close)
    before, after = scores
    return paired_of(before, after, prepared.run.spec.seed)


async def _rows(context: WorkContext) -> tuple[list[Example], str]:
    test = await context.data.test()
    if test is not None:
        return list(test.examples), "test"
    _, gate = await held_out_split(context)
    return gate, "gate"


def _artifacts(record: Record) -> tuple[str, str]:
    """Return the digests of the untouched artifact and of the delivered one. Raises DataError where a summary
    is missing."""
    best = record.result.held_out.best if record.result and record.result.held_out else None
    opened = (one for one in record.summaries.values() if kind_of(one.kind).opens and not one.error)
    made = (
        one
        for one in record.summaries.values()
        if kind_of(one.kind).sums_up and best and one.counts.get("iteration") == best.iteration - 1
    )
    start, delivered = next(opened, None), next(made, None)
    if start is None or delivered is None:
        raise DataError(
            "the summary of the step that made the playbook is missing",
            where="steps",
            fix="Audit the whole folder of the run",
        )
    return start.outputs["artifact"], delivered.outputs["artifact"]


class RunFailedError(UserError):
    """A run of an audit that failed."""


@dataclass(frozen=True, slots=True)
class Done:
    """A whole run of an audit. ``scores``: by row or cluster of gate; None where it did not look there."""

    run: AuditedRun
    scores: Scores | None
    result: Result


async def whole_run(prepared: Prepared, folder: Path, listener: Listener, memo: Path | None) -> Done:
    """Do the prepared run in a folder of its own, which a later call goes on with.

    ``memo``: one that is shared; None for a memo of its own. Raises RunFailedError for a run that failed;
    CancelledError once it was stopped, with what was done kept.
    """
    if memo is not None:
        await asyncio.to_thread(_linked, folder, memo)
    result = await run_session(prepared, folder, listener)
    if result.outcome == "Stopped":
        raise asyncio.CancelledError
    if result.outcome == "Failed":
        raise RunFailedError(
            f"a run of the audit failed: {result.reason}",
            where=str(folder),
            fix="Mend what it names and run the same command again: what is finished is kept",
        )
    diagnosis, setup = result.diagnosis, result.setup
    run = AuditedRun(
        seed=setup.seed or 0,
        outcome=result.outcome,
        gate=result.gate,
        speed_up=diagnosis.speed_up if diagnosis and diagnosis.measured else None,
        over_budget=overruns(result),
        simulated=result.simulated,
        rollouts=result.rollouts,
        tokens=result.tokens,
        wall_seconds=result.wall_seconds,
    )
    return Done(run, await asyncio.to_thread(_gate_scores, folder), result)


def _linked(folder: Path, memo: Path) -> None:
    """Let the store of a run take its answers from the shared memo."""
    place = folder / STORE / MEMO
    if not place.is_symlink():
        place.parent.mkdir(parents=True, exist_ok=True)
        memo.mkdir(parents=True, exist_ok=True)
        place.symlink_to(memo.absolute(), target_is_directory=True)


def _gate_scores(folder: Path) -> Scores | None:
    """Return what a run's folder has of its look at gate, by row or by cluster."""
    read = (StepSummary.decode(path.read_bytes()) for path in (folder / "steps").glob("*.json"))
    looked = next((one for one in read if one and not one.error and kind_of(one.kind).looks_at_gate), None)
    if looked is None:
        return None
    return gate_sides(looked.outputs["record"], Store.open(str(folder / STORE)).get_blob)
