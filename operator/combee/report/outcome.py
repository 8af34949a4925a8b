"""From a finished (or stopped) session to ``Result``: the numbers of result.json and nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic.alias_generators import to_snake

from combee import __version__
from combee.algo.laws import Law, residuals
from combee.algo.stats import detectable_gain
from combee.api import evaluation
from combee.api.discipline import hardware, waivers
from combee.api.run import Batching, PromptLearningRun
from combee.methods.protocol import OVER_BUDGET, EntryView, Rendered
from combee.plan.batching import ITERATIONS, Delay, delay_of
from combee.plan.cluster.engines import shared_engines
from combee.plan.parallelism import parallelism_of
from combee.plan.state import DataFacts, RunState
from combee.plan.types import EXIT_CODES, IterationPlan, StepSummary
from combee.report.cost import (
    accepted,
    budget_lines,
    folded,
    serial_baseline,
    whole_cost,
    with_serial,
)
from combee.report.diagnosed import diagnosis_of
from combee.report.durations import call_seconds, durations, step_seconds, task_tokens
from combee.report.energy import energy_of, with_joules
from combee.report.entries import NO_BETTER, SHORT, entries_of, variants_of
from combee.report.result import (
    Baseline,
    Best,
    DataInfo,
    DelayFit,
    DelayModel,
    DiversityRecord,
    Faults,
    HeldOut,
    HeldOutInfo,
    IterationRecord,
    ModelInfo,
    Paired,
    PlaybookInfo,
    RefusalRecord,
    Result,
    Setup,
    ShapeRecord,
    SplitInfo,
    StepRecord,
    Usage,
)
from combee.report.rollouts import CallGraphs
from combee.report.session import Session
from combee.steps import DIAGNOSE, EVALUATE, PROFILE, kind_of
from combee.work.energy import intervals_of
from combee.work.happened import union
from combee.work.steps import load_artifact


@dataclass(frozen=True, slots=True)
class _Records:
    """The blobs that a report needs."""

    iterations: Mapping[int, dict[str, Any]] = field(default_factory=dict)
    evaluation: dict[str, Any] = field(default_factory=dict)
    around: Mapping[str, StepRecord] = field(default_factory=dict)
    """the records of profile and evaluate, as far as they were reached."""
    ledger: Any = None
    rendered: Rendered | None = None
    written: Any = None
    """what the run had at its end, which need not be what was best."""


async def result_of(session: Session, graphs: CallGraphs) -> Result:
    """Read the records of the finished steps and put the result together. ``graphs``: their calls."""
    records = await _records(session)
    shared = shared_engines(session.run.spec)
    intervals = {} if shared else await intervals_of(session.context.store, session.context.prefix)
    gate = records.evaluation.get("gate")
    paired = Paired(**gate) if gate else None
    iterations = tuple(_iterations(session, records))
    spec, store, step = session.run.spec, session.context.store, records.around.get(DIAGNOSE.name)
    gpus = session.gpu_seconds / session.wall_seconds if session.wall_seconds else 0.0
    diagnosis = await diagnosis_of(spec, session.state, session.summaries.values(), store, step, gpus)
    return Result(
        run=session.run.name,
        manifest_digest=session.manifest_digest,
        outcome=session.outcome.name,
        exit_code=EXIT_CODES[session.outcome.name],
        reason=session.outcome.reason,
        setup=_setup(session.run),
        models=dict(session.models),
        data=session.data,
        held_out=_held_out(session, paired),
        test=Paired(**records.evaluation["test"]) if records.evaluation.get("test") else None,
        iterations=iterations,
        usage={role: Usage.of(usage) for role, usage in session.state.usage.items()},
        rollouts=int(session.state.spend.rollouts),
        wall_seconds=round(session.wall_seconds, 3),
        faults=_all_faults(
            [*(one.faults for one in iterations), *(s.faults for s in records.around.values())]
        ),
        profile=records.around.get(PROFILE.name),
        diagnosis=diagnosis,
        evaluation=records.around.get(EVALUATE.name),
        shape=_shape(session),
        task_tokens=task_tokens(graphs),
        durations=durations(call_seconds(graphs), step_seconds(iterations, records.around)),
        energy=energy_of(intervals, session.summaries.values()),
        budget=budget_lines(session),
        cost_per_point=whole_cost(session, paired),
        accepted=with_joules(
            with_serial(accepted(session), diagnosis), intervals, session.summaries.values()
        ),
        serial_baseline=serial_baseline(spec, diagnosis),
        **_learned(session, records),
    )


async def _records(session: Session) -> _Records:
    store = session.context.store
    iterations: dict[int, dict[str, Any]] = {}
    evaluation: dict[str, Any] = {}
    around: dict[str, StepRecord] = {}
    for summary in (one for one in session.summaries.values() if "record" in one.outputs):
        record = json.loads(await store.aget_blob(summary.outputs["record"]))
        kind = kind_of(summary.kind)
        if kind.sums_up:
            iterations[int(summary.counts.get("iteration", -1))] = record
        if not kind.planned:
            around[kind.name] = _step(summary, record)
            evaluation = record if kind.looks_at_gate else evaluation
    if (best := session.state.best) is None:
        return _Records(iterations, evaluation, around)
    ledger = await load_artifact(session.context, best.artifact)
    spec = session.run.spec
    budget_tokens = spec.method.render_token_budget
    rendered = session.context.method.render(ledger, budget_tokens=budget_tokens, verify=spec.verify)
    last = session.state.artifact
    written = ledger if last in ("", best.artifact) else await load_artifact(session.context, last)
    return _Records(iterations, evaluation, around, ledger, rendered, written)


def _setup(run: PromptLearningRun) -> Setup:
    spec, aggregation, batching = run.spec, run.spec.aggregation, run.spec.batching
    fixed = batching.size
    roles = spec.roles_in_use()
    return Setup(
        task=run.spec.task.type,
        metric=run.spec.task.scored_by,
        method=run.spec.method.type,
        strategy=aggregation.strategy,
        merge=aggregation.merge,
        redundancy=aggregation.redundancy.mode,
        verify=run.spec.verify,
        batching=f"{batching.mode} {batching.size}"
        if batching.mode == "Fixed"
        else f"{batching.mode}, rule {batching.rule}",
        seed=run.spec.seed,
        scored_by="; ".join(evaluation.sentences(run.spec)),
        diversity=spec.method.diversity,
        epochs=spec.method.epochs,
        patience=spec.stopping.patience,
        target_score=spec.stopping.target_score,
        sizes=batching.sizes if fixed is None else (fixed,),
        batching_reason=batching.reason or "",
        concurrency=spec.workers.concurrency,
        pods=spec.workers.parallelism,
        max_input_tokens=aggregation.max_input_tokens,
        leaf_size=aggregation.leaf_size,
        max_fan_in=aggregation.max_fan_in,
        temperatures={role: model.sampling.temperature for role, model in roles.items()},
        engines={
            one.name: one.vllm.gpus_per_replica * one.vllm.replicas
            for one in spec.engines
            if one.vllm is not None
        },
        shared_engines=shared_engines(spec),
        shared_model="task" in roles
        and roles["task"].engine_ref == roles["proposer"].engine_ref
        and roles["task"].endpoint == roles["proposer"].endpoint,
        hardware=hardware(spec),
        waivers=waivers(spec),
        playbook=spec.playbook_ref.name if spec.playbook_ref is not None else "",
        release=__version__,
        **asdict(run.spec.task.stakes),
    )


def _shape(session: Session) -> ShapeRecord | None:
    one = parallelism_of(session.run.spec, session.state)
    return None if one is None else ShapeRecord(**dict(one))


def _held_out(session: Session, gate: Paired | None) -> HeldOut | None:
    facts, best = session.state.facts, session.state.best
    if facts is None or best is None or not facts.held_out_rows:
        return None
    return HeldOut(
        baseline=Baseline(select=session.state.baseline_select),
        best=Best(select=best.select, iteration=best.iteration + 1),
        gate=gate,
        smallest_detectable_gain=min(1.0, detectable_gain(facts.gate_units)) if facts.gate_rows else None,
    )


def _iterations(session: Session, records: _Records) -> Iterator[IterationRecord]:
    """Yield a record of each finished iteration, with the fit and the counts that its own decisions saw."""
    spec, best = session.run.spec, session.state.best
    for plan, summary, before, after in folded(session):
        record, delay = records.iterations[plan.iteration], delay_of(spec, before)
        row = _iteration(delay, spec.batching, after, plan, summary, record)
        yield row.model_copy(update={"best": best is not None and best.iteration == plan.iteration})


_RECORDED = (
    *("wallSeconds", "modelledSeconds", "calls", "tokens", "rollouts", "retention", "verification"),
    "proposals",
    *("failed", "stepSeconds", "stages"),
)
"""the fields that an iteration's record shares with the result; an older record lacks some of them."""


def _iteration(
    delay: Delay,
    batching: Batching,
    after: RunState,
    plan: IterationPlan,
    summary: StepSummary,
    record: dict[str, Any],
) -> IterationRecord:
    """Return the record of a finished iteration. ``delay`` is what was believed before it."""
    return IterationRecord.of(
        plan,
        iteration=plan.iteration + 1,
        examples=after.examples_done,
        critical_path_seconds=record["modelledSeconds"],
        train_score=summary.scores.get("train"),
        select=summary.scores.get("select"),
        partial_train=summary.scores.get("partialTrain"),
        partial_select=summary.scores.get("partialSelect"),
        built_on=tuple(digest[:SHORT] for digest in record.get("builtOn", ())),
        diversity=DiversityRecord.of(plan.diversity, weights=dict(plan.diversity.weights))
        if plan.diversity
        else None,
        delay_fit=_fit(delay, batching),
        observations=tuple((float(o.batch_size), o.seconds) for o in delay.observations),
        prompt_tokens=summary.counts.get("promptTokens", 0),
        cached_tokens=summary.counts.get("cachedTokens", 0),
        faults=_faults(record),
        **{to_snake(name): record[name] for name in _RECORDED if name in record},
    )


def _step(summary: StepSummary, record: Mapping[str, Any]) -> StepRecord:
    return StepRecord(
        wall_seconds=summary.seconds["wall"],
        scheduled_seconds=summary.seconds["modelled"],
        stages=record.get("stages", ()),
        faults=_faults(record),
        start=record.get("start", ""),
        calibration=record.get("calibration", ""),
        scorer=record.get("scorer", ""),
    )


def _faults(record: Mapping[str, Any]) -> Faults:
    """Return the faults in the record of a step or an iteration; a record of an old version has none."""
    return Faults(
        asked_again=record.get("faults", {}),
        rollouts=record.get("rolloutFaults", {}),
        repaired=record.get("repaired", 0),
        hedges=record.get("hedges", 0),
        lost=record.get("lost", 0),
        cut=record.get("cut", 0),
        unparsable=record.get("unparsable", 0),
        limits=record.get("limits", ()),
    )


def _all_faults(parts: Sequence[Faults]) -> Faults:
    return Faults(
        asked_again=union(part.asked_again for part in parts),
        rollouts=union(part.rollouts for part in parts),
        repaired=sum(part.repaired for part in parts),
        hedges=sum(part.hedges for part in parts),
        lost=sum(part.lost for part in parts),
        cut=sum(part.cut for part in parts),
        unparsable=sum(part.unparsable for part in parts),
        limits=tuple(change for part in parts for change in part.limits),
    )


def _fit(delay: Delay, batching: Batching) -> DelayFit | None:
    """Return the fit as the report shows it, None where times were only expected; a law borrowed from before
    a change has no line of its own."""
    if delay.source != ITERATIONS:
        return None
    law, laws = delay.law(batching), delay.today.laws
    line = laws.line if laws is not None else None
    b_half = line.b_half if line is not None else law.b_half
    return DelayFit(
        c0=line.c0 if line is not None else law.a,
        c1=line.c1 if line is not None else law.f,
        b_half=b_half if math.isfinite(b_half) else None,
        n=len(delay.observations),
        rmse=line.rmse if line is not None and line.n > 2 else None,
        model=_model(law),
        models=tuple(_model(one) for one in laws.models) if laws is not None else (),
        residuals=tuple(round(value, 6) for value in residuals(law, delay.observations)),
        source=delay.source,
        changed_by=delay.today.factor,
    )


def _model(law: Law) -> DelayModel:
    return DelayModel.of(law, relative_error=law.error)


def _learned(session: Session, records: _Records) -> dict[str, Any]:
    """Return the result's fields on what was learned and refused; none where there is no playbook."""
    ledger, rendered, method = records.ledger, records.rendered, session.context.method
    if rendered is None:
        return {}
    playbook = PlaybookInfo(
        digest=ledger.digest,
        tokens=rendered.tokens,
        entries=len(rendered.included),
        left_out=len(rendered.left_out),
        text=rendered.shown.text,
        components=dict(rendered.components),
        over_budget=sum(left.reason == OVER_BUDGET for left in rendered.left_out),
    )
    return {
        "playbook": playbook,
        "entries": entries_of(_views(session, records, rendered)),
        "variants": variants_of(method.variants(ledger, rendered)),
        "refusals": tuple(RefusalRecord.of(refusal) for refusal in method.refusals(records.written)),
    }


def _views(session: Session, records: _Records, rendered: Rendered) -> list[EntryView]:
    """Return the entries of the playbook and, where none was better than the start, those that were tried."""
    spec, method, written = session.run.spec, session.context.method, records.written
    views = method.views(records.ledger, rendered, verify=spec.verify)
    if session.outcome.name != "NothingBetter" or written is records.ledger:
        return views
    known, budget_tokens = {view.digest for view in views}, spec.method.render_token_budget
    shown = method.render(written, budget_tokens=budget_tokens, verify=spec.verify)
    tried = [one for one in method.views(written, shown, verify=spec.verify) if one.digest not in known]
    return [*views, *(replace(one, rendered=False, left_out=one.left_out or NO_BETTER) for one in tried)]


def data_info(facts: DataFacts | None, warnings: Iterable[str] = ()) -> DataInfo:
    """Return the pinned data by size and digest. ``facts``: what is known of it; None before it was read."""
    if facts is None:
        return DataInfo(train=SplitInfo(rows=0, digest=""))
    digests = facts.digests
    return DataInfo(
        train=SplitInfo(rows=facts.train_rows, digest=digests.get("train", "")),
        held_out=HeldOutInfo(
            rows=facts.held_out_rows,
            digest=digests.get("heldOut", ""),
            select=facts.select_rows,
            gate=facts.gate_rows,
        )
        if facts.held_out_rows
        else None,
        test=SplitInfo(rows=facts.test_rows, digest=digests["test"]) if "test" in digests else None,
        warnings=tuple(warnings),
    )


def model_info(model: str, host: str, words: str) -> ModelInfo:
    """Return the facts of a role's model. ``words``: what its server says about itself."""
    return ModelInfo(
        model=model, endpoint_host=host, simulated="simulated" in words.casefold(), served_by=words
    )
