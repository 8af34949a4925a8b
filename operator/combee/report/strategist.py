"""The strategist's report: ten sections in a fixed order, each filled from what was measured. Pure.

What nothing measured or stated is "not shown", never guessed. Source: the OUTPUT FORMAT of the strategist's
brief, whose headings these are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from combee.report import words
from combee.report.audit import SURVIVED, Audit
from combee.report.durations import lengths
from combee.report.parts import DiagnosisRecord
from combee.report.result import Result
from combee.report.shape import lines as shape_lines
from combee.report.tables_cost import NOT_SHOWN, elsewhere, measured_serial, measured_where
from combee.report.tables_happened import joined
from combee.report.text import amount, count, duration, score, signed

HEADINGS = (
    "Task & Baseline",
    "Convergence Diagnosis",
    "Parallelism Shape",
    "Dynamic Batching Policy",
    "Rollout Diversity Controls",
    "Evaluator Spec",
    "Stopping Rule & Final Selection",
    "Production Canary",
    "Cost Report",
    "Risks & Honest Limits",
)
NO_BASELINE = f"{NOT_SHOWN}: no serial baseline was stated or measured"
BY_ITERATION = "by iteration, in the table below"
NO_EVALUATOR = "none needed: no model scores"
NO_DIAGNOSIS = f"{NOT_SHOWN}: no diagnosis was made before this run"
NO_SHAPE = f"{NOT_SHOWN}: an earlier version measured no utilisation, or no data was counted"
_SAVING = """\
before each iteration:
    law   = the delay law that fits the observed iterations best (AICc; T_iter = c0 + c1 b without enough)
    sizes = sizes to be tried, while trials have taken less than a fifth of the epoch
    b     = next of sizes, else the largest b at which growing further could still save over the share
    b     = min(b, bounds, what the budget pays for beside the closing evaluation, examples left)
    freeze (b, seed, shards, tree) as the iteration's plan; on a resume obey the frozen plan"""
_FIXED = """\
before each iteration:
    b = min(size, what the budget pays for beside the closing evaluation, examples left)
    freeze (b, seed, shards, tree) as the iteration's plan; on a resume obey the frozen plan"""

_IN_STEP = """
within a step, by server:
    a call goes, in order of arrival, while fewer than limit are in flight and its tokens have room
    over a tenth of a window refused or late: limit *= share answered; else it grows by an eighth, then slowly
    calls wait there at two looks at its metrics: limit = 2 * what it runs; none waits: limit doubles
    its KV cache is half full or more: tokens in flight <= 1.25 * those that would fill it"""


@dataclass(frozen=True, slots=True)
class Section:
    """One section: lines of (what, value), a block of pseudocode, and the tables and figures under it."""

    title: str
    lines: tuple[tuple[str, str], ...]
    code: str = ""
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()


def sections(result: Result, audit: Audit | None = None) -> tuple[Section, ...]:
    """Return the ten sections; the last has the stamps of ``audit``."""
    of_result = (_task, _convergence, _shape, _batching, _diversity, _evaluator, _stopping, _canary, _cost)
    makers: tuple[Callable[[Result, str], Section], ...] = (*of_result, partial(_risks, audit=audit))
    return tuple(maker(result, title) for maker, title in zip(makers, HEADINGS, strict=True))


def _task(result: Result, title: str) -> Section:
    setup, data = result.setup, result.data
    held = data.held_out if data else None
    rows = NOT_SHOWN
    if data:
        rows = f"{count(data.train.rows, 'row')} to learn from"
        if held:
            rows += f"; heldOut {held.rows:,}, of which {held.select:,} select and {held.gate:,} gate"
    tuned = "used for tuning before" if setup.used_for_tuning else "that it was used for tuning is not stated"
    start = result.held_out.baseline if result.held_out else None
    return Section(
        title,
        (
            ("task", f"{setup.task or NOT_SHOWN}, scored by {setup.metric}"),
            ("input and output shape", lengths(result) or NOT_SHOWN),
            ("data", rows),
            ("heldOut", f"kept by {setup.steward or 'nobody who is named'}, {tuned}" if held else NOT_SHOWN),
            ("untouched prompt, on select", score(start.select) if start else NOT_SHOWN),
            ("untouched prompt, on gate", score(result.gate.baseline) if result.gate else NOT_SHOWN),
            ("serial method", _serial_method(result)),
            ("its converged held-out score", _converged(result)),
            ("its rollouts to converge", _rollouts_to_converge(result)),
            ("hardware", setup.hardware or NOT_SHOWN),
            ("waived", words.waived(result)),
            ("a wrong answer costs", setup.failure_cost or NOT_SHOWN),
        ),
        tables=("data",),
    )


def _convergence(result: Result, title: str) -> Section:
    serial, diagnosis = result.serial_baseline, result.diagnosis
    looks = [one.select for one in result.iterations if one.select is not None]
    start = result.held_out.baseline if result.held_out else None
    own = NOT_SHOWN
    if looks and start:
        own = (
            f"from {score(start.select)} on select to at most {score(max(looks))} in "
            f"{count(len(looks), 'evaluation')}; it ended because: {result.reason}"
        )
    return Section(
        title,
        (
            ("serial curve", _serial_curve(result)),
            ("plateau", _plateau(diagnosis) if diagnosis else NOT_SHOWN if serial else NO_BASELINE),
            (
                "go or no-go",
                f"{'go' if diagnosis.go else 'no-go'}: {diagnosis.words}" if diagnosis else NO_DIAGNOSIS,
            ),
            ("alternative if no-go", "as above" if diagnosis and not diagnosis.go else NOT_SHOWN),
            ("this run's own curve", own),
        ),
        tables=("diagnosis" if diagnosis else "serial", "held_out"),
        figures=("score-iterations", "score-tokens"),
    )


def _serial_method(result: Result) -> str:
    if result.serial_baseline:
        return f"{result.serial_baseline.method}, stated"
    return f"{result.setup.method}, measured" if result.diagnosis else NO_BASELINE


def _converged(result: Result) -> str:
    if result.diagnosis:
        return _plateau(result.diagnosis)
    return score(result.serial_baseline.converged) if result.serial_baseline else NO_BASELINE


def _rollouts_to_converge(result: Result) -> str:
    diagnosis, serial = result.diagnosis, result.serial_baseline
    if diagnosis and diagnosis.measured and diagnosis.plateau_rollouts is not None:
        return f"{diagnosis.plateau_rollouts:,}"
    examples = count(serial.examples_to_converge, "example") if serial else ""
    if serial:
        return f"{NOT_SHOWN}; {examples} learned from"
    return NOT_SHOWN if diagnosis else NO_BASELINE


def _serial_curve(result: Result) -> str:
    diagnosis = result.diagnosis
    if diagnosis is None or not diagnosis.measured:
        serial = result.serial_baseline
        return f"{count(len(serial.curve), 'point')}, stated" if serial else NO_BASELINE
    return f"{count(len(diagnosis.points), 'point')}, measured on {count(diagnosis.examples, 'example')}"


def _plateau(diagnosis: DiagnosisRecord) -> str:
    level = f"{score(diagnosis.level)} ({score(diagnosis.low)} to {score(diagnosis.high)})"
    if diagnosis.plateau_rollouts is None:
        return f"none was seen; the later half of the curve is at {level}"
    return f"{level}, after {count(diagnosis.plateau_rollouts, 'rollout')}"


def _shape(result: Result, title: str) -> Section:
    setup, serial = result.setup, result.serial_baseline
    width = f", {count(setup.concurrency, 'call')} at once" if setup.concurrency else ""
    pods = f" in {count(setup.pods, 'shard')}" if setup.pods else ""
    last = result.accepted[-1] if result.accepted else None
    speed = NOT_SHOWN if result.diagnosis else NO_BASELINE
    if away := elsewhere(result):
        speed = away
    elif serial and last and last.serial_seconds is not None and last.wall_seconds > 0:
        speed = (
            f"{last.serial_seconds / last.wall_seconds:.1f}x to select {score(last.select)}: "
            f"{duration(last.serial_seconds)} serial (stated), {duration(last.wall_seconds)} here; "
            f"{measured_where(result)}"
        )
    elif result.diagnosis and result.diagnosis.speed_up:
        speed = f"{result.diagnosis.speed_up:.1f}x an example, modelled time of learning alone"
    elif serial:
        speed = f"{NOT_SHOWN}: the serial curve does not reach this run's score"
    path = sum(one.critical_path_seconds or 0.0 for one in result.iterations)
    wall = sum(one.wall_seconds for one in result.iterations)
    took = NOT_SHOWN
    if path and wall < path:
        took = f"{NOT_SHOWN}: answers came from memory, so the time of the iterations says nothing"
    elif path:
        took = (
            f"the iterations took {duration(wall)}, their recorded calls on these slots at least "
            f"{duration(path)}: {wall / path:.2f} times as long"
        )
    return Section(
        title,
        (
            *(shape_lines(result.shape) if result.shape else [("shape", NO_SHAPE)]),
            ("within this run", f"the rollouts of a batch side by side{pods}{width}"),
            ("hardware", setup.hardware or NOT_SHOWN),
            ("speed-up against the serial baseline", speed),
            ("beside the time of its calls", took),
        ),
        figures=("path",),
    )


def _batching(result: Result, title: str) -> Section:
    setup = result.setup
    sizes = Counter(one.batch_size for one in result.iterations)
    spread = ", ".join(f"{size:,} ({count(times, 'iteration')})" for size, times in sorted(sizes.items()))
    fixed = setup.batching.startswith("Fixed")
    code = "" if not setup.batching else (_FIXED if fixed else _SAVING) + _IN_STEP
    reason = f"; fixed because: {setup.batching_reason}" if setup.batching_reason else ""
    return Section(
        title,
        (
            ("policy", f"{setup.batching or NOT_SHOWN}{reason}"),
            ("trigger", "a batch is planned and frozen before each iteration, and starts at once"),
            (
                "other triggers",
                "none in a step: a wait of 200 ms was measured and won nothing (modelled time)"
                + ("" if fixed else "; reward variance caps the planned size"),
            ),
            (
                "shape",
                "shards balanced by expected tokens; an aggregator call takes at most "
                f"{amount(setup.max_input_tokens)} tokens and {setup.max_fan_in:,} inputs"
                if setup.max_fan_in
                else NOT_SHOWN,
            ),
            (
                "pre-emption",
                "drain: what is in flight is finished; what a stopped run had answered is kept",
            ),
            ("batch sizes of this run", spread or NOT_SHOWN),
            ("calls in flight when one went", joined(result) or NOT_SHOWN),
        ),
        code,
        ("batch", "in_flight", "delay"),
        ("batch-size", "delay"),
    )


def _diversity(result: Result, title: str) -> Section:
    warmth = ", ".join(f"{role} {value:g}" for role, value in result.setup.temperatures.items())
    kept = [one.retention for one in result.iterations if one.retention is not None]
    lessons = [f"{one.distinct:,}" for one in kept]
    pool, diverse = bool(result.variants), result.setup.diversity
    return Section(
        title,
        (
            ("operators and weights", BY_ITERATION if diverse else NOT_SHOWN),
            (
                "temperature",
                BY_ITERATION if diverse else f"constant over the run: {warmth}" if warmth else NOT_SHOWN,
            ),
            ("anti-collapse rule", "copies of the parent or the leader are refused" if pool else NOT_SHOWN),
            ("re-seeding", BY_ITERATION if diverse else NOT_SHOWN),
            ("distinct lessons by iteration", ", ".join(lessons) or NOT_SHOWN),
            ("variants in the pool", f"{len(result.variants):,}" if result.variants else NOT_SHOWN),
        ),
        tables=(*(("diversity",) if diverse else ()), *(("variants",) if result.variants else ())),
        figures=("diversity",),
    )


def _evaluator(result: Result, title: str) -> Section:
    models = {role: info.model for role, info in result.models.items()}
    scored_by = models.get("evaluator") or f"none: the task computes {result.setup.metric} itself"
    usage = result.usage.values()
    calls, hits = sum(use.calls for use in usage), sum(use.hits for use in usage)
    again = f"; {result.setup.scored_by}" if "scored again" in result.setup.scored_by else ""
    compared, scorer = (result.profile.calibration, result.profile.scorer) if result.profile else ("", "")
    return Section(
        title,
        (
            ("proposer model", models.get("proposer", NOT_SHOWN)),
            ("task model, which serves", models.get("task", NOT_SHOWN)),
            ("evaluator model", scored_by),
            ("calibration", (compared or NOT_SHOWN) if "evaluator" in models else NO_EVALUATOR),
            (
                "proxy evaluation",
                f"{models['proxy']}: {scorer or NOT_SHOWN}"
                if "proxy" in models
                else "none: no ceiling is given",
            ),
            (
                "cache key",
                "sha256 of model, revision, engine arguments, decoding, messages, schema and repeat",
            ),
            ("re-evaluation", f"an equal request is answered from the memo and never asked again{again}"),
            ("answered from the memo", f"{hits:,} of {count(calls, 'call')}" if calls else NOT_SHOWN),
        ),
    )


def _stopping(result: Result, title: str) -> Section:
    setup, best = result.setup, result.held_out.best if result.held_out else None
    limits = [f"{one.name} {one.limit:,.12g}" for one in result.budget if one.limit is not None]
    chosen = f"iteration {best.iteration}, {score(best.select)}" if best else NOT_SHOWN
    patience = (
        f"{count(setup.patience, 'evaluation')} without a better score on select" if setup.patience else ""
    )
    return Section(
        title,
        (
            ("hard budget", ", ".join(limits) or "none was set"),
            ("soft target", score(setup.target_score) if setup.target_score is not None else "none was set"),
            ("patience", patience or NOT_SHOWN),
            ("ended because", result.reason),
            ("final selection", f"best on the select half of heldOut, then one look at gate: {chosen}"),
            ("tie-break", "fewer tokens, then the earlier one; the start is kept until one scores higher"),
        ),
        tables=("budget",),
    )


def _canary(result: Result, title: str) -> Section:
    name, gate = result.setup.playbook, result.gate
    held = NOT_SHOWN
    if gate is not None:
        held = f"gate {signed(gate.gain)} (95 % interval {signed(gate.low)} to {signed(gate.high)})"
    by = f"Playbook {name}" if name else "no Playbook: nothing was deployed"
    return Section(
        title,
        (
            ("deployed by", by),
            ("shadow protocol", f"{NOT_SHOWN}: spec.canary of {by}" if name else NOT_SHOWN),
            ("held-out part of the promotion", f"{held}; outcome {result.outcome}"),
            ("canary part of the promotion", NOT_SHOWN),
            (
                "roll-back",
                f"one field: kubectl combee playbook rollback {name}" if name else NOT_SHOWN,
            ),
            ("observability", "metrics and alerts of operator and gateway" if name else NOT_SHOWN),
        ),
    )


def _cost(result: Result, title: str) -> Section:
    serial, point = result.serial_baseline, result.cost_per_point
    compared = NOT_SHOWN if result.diagnosis else NO_BASELINE
    if result.diagnosis and result.diagnosis.measured:
        compared = measured_serial(result.diagnosis, result)
    elif away := elsewhere(result):
        compared = away
    elif serial and serial.seconds_per_point is not None and point and point.wall_seconds is not None:
        compared = (
            f"{duration(point.wall_seconds)} a point of gate here, {duration(serial.seconds_per_point)} one "
            f"in the stated curve; {measured_where(result)}"
        )
    tokens = [one.tokens for one in result.iterations]
    each = f"{amount(sum(tokens) / len(tokens))} tokens on average" if tokens else NOT_SHOWN
    headline = f"{words.cost_per_point(result)}" if point else f"{NOT_SHOWN}: {words.cost_per_point(result)}"
    return Section(
        title,
        (
            ("headline: a point of held-out gain costs", headline),
            ("an iteration", each),
            ("the whole run", words.cost(result)),
            ("energy of its GPUs", words.energy(result)),
            ("against the serial baseline", compared),
            ("hardware", result.setup.hardware or NOT_SHOWN),
            ("waived", words.waived(result)),
        ),
        tables=("accepted", "time", "durations", "usage"),
        figures=("gain",),
    )


def _risks(result: Result, title: str, audit: Audit | None) -> Section:
    risk, monitor = words.largest_risk(result)
    here = f" than {result.setup.hardware}" if result.setup.hardware else ""
    limits = [f"on another hardware class{here}, held-out slice or seed: this is one run"]
    if audit is not None:
        limits = [f"{one.claim}: {one.stamp}" for one in audit.stamps if one.stamp != SURVIVED]
        limits.append("beyond the seeds and the hardware of the audit")
    if result.serial_baseline is None and result.diagnosis is None:
        limits.append("there is no serial baseline, so no speed-up is claimed at all")
    if result.simulated:
        limits.append("its times are those of a simulated model")
    return Section(
        title,
        (
            ("largest failure mode", risk),
            ("cheapest monitor", monitor),
            ("where the speed-up does not hold", "; ".join(limits)),
            ("waived", words.waived(result)),
            ("warnings", "; ".join(words.warnings(result)) or "none"),
        ),
        tables=("audit",),
    )
