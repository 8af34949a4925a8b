"""Whether serial learning converges, asked before anything is learned in parallel: what asking may take, what
it found in words, and what follows from it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast, get_args

from combee.algo.convergence import TRIED_WRONG, Headroom, Point, Reading, Verdict, due_by, read_curve
from combee.algo.stats import detectable_gain
from combee.api.baseline import CurvePoint
from combee.api.run import RunSpec
from combee.plan.frozen import frozen
from combee.plan.types import IterationPlan, Outcome, Scorer, StepSummary
from combee.strategies import redundancy_of

EVALUATIONS = 10
"""How often serial learning is scored, if it goes as far as it may."""
NO_GO_SHARE = 0.10
"""The share of the run's rollouts, profile's among them, by which serial learning has to have risen."""
GO_SHARE = 0.25
"""The share that it may take once it has: a whole run takes four times what it takes to its plateau."""
BUDGET_FACTOR = 4
TARGET_GAIN = 0.01
"""How far above the serial plateau a run aims."""
TRIED_ROWS = 48
"""Train rows that the headroom test answers."""
HEADROOM_ROLLOUTS = TRIED_ROWS + 2 * TRIED_WRONG
"""What it takes where up to a third of them is wrong; three for each row where nearly all are."""
WORTH = 0.10
"""A gain that is worth learning for, where gate shows a smaller one, too: of less a few rows say nothing."""
LEAST_REFUSED = 20
"""Rows answered wrong and learned from, after which a text that is still the start's takes nothing in: where
one in seven changed it, that many in a row would change nothing in fewer than 5 of 100 runs."""
LEAST_SCORED, LEAST_EVERY = 20, 5
GUESS = 4
"""Rollouts that an example of serial learning takes, before it is known: its own, and three replays."""


NO_HEADROOM = "NoHeadroom"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a diagnosis may take. Rollouts are its own: profile's are not among them."""

    no_go_rollouts: int
    most_rollouts: int
    scored: int
    """rows of select at each evaluation."""
    every: int
    """examples between two evaluations."""
    over_share: bool
    """whether it may take more than NO_GO_SHARE, since it would show nothing otherwise."""


def shape_of(spec: RunSpec, train_rows: int, select_rows: int, closing_rows: int) -> Shape:
    """Return what a diagnosis of a run on so many rows may take. ``closing_rows``: of gate and the split that
    is scored once."""
    learning = train_rows * spec.method.epochs * GUESS + 2 * EVALUATIONS * select_rows
    rollouts = spec.budget.rollouts or learning + select_rows + 2 * spec.task.repeats * closing_rows
    least = HEADROOM_ROLLOUTS + 2 * (LEAST_SCORED + LEAST_EVERY * GUESS)
    allowed = int(NO_GO_SHARE * rollouts) - select_rows
    most = max(int(GO_SHARE * rollouts) - select_rows, least)
    a_round = (most - HEADROOM_ROLLOUTS) // EVALUATIONS
    scored = min(select_rows, max(LEAST_SCORED, a_round // 2))
    every = max(LEAST_EVERY, min((a_round - scored) // GUESS, train_rows // EVALUATIONS))
    return Shape(max(allowed, least), most, scored, every, allowed < least)


def worth_of(spec: RunSpec, gate_units: int) -> float:
    """Return the gain below which a run is not worth starting: what the manifest aims for, or what gate can
    show, if that is more; WORTH at most for a gate that shows only larger ones. ``gate_units``: rows of gate,
    or clusters where rows have them."""
    return max(spec.stopping.target_gain, min(WORTH, detectable_gain(gate_units)))


def due_of(spec: RunSpec, gate_units: int, train_rows: int, examples: int) -> float:
    """Return the gain that is due once so many examples are learned from, as of read_curve."""
    return due_by(worth_of(spec, gate_units), examples, train_rows * spec.method.epochs)


def serial_plan(
    spec: RunSpec, number: int, examples: int, token_factor: float, scored_by: Scorer = "evaluator"
) -> IterationPlan:
    """Return the plan of serial learning's iteration ``number``, on ``examples`` rows of the run's own order.
    What it learns is scored apart."""
    aggregation = spec.method.stated.aggregation(
        spec.aggregation.model_copy(update={"strategy": "Sequential"})
    )
    redundancy = redundancy_of(aggregation, 1, 1)
    return frozen(
        spec,
        aggregation,
        redundancy,
        iteration=number,
        epoch=0,
        offset=number,
        batch_size=examples,
        batch_reason="one example at a time",
        in_order=False,
        shards=1,
        evaluate=False,
        token_factor=token_factor,
        scored_by=scored_by,
    )


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, and what it took."""

    reading: Reading
    rows: int
    """held-out rows of an evaluation."""
    headroom: Headroom | None = None
    """None for a stated curve."""
    examples: int = 0
    """learned from, one at a time."""
    seconds_per_example: float = 0.0
    """modelled, of serial learning; 0 where it is not known."""
    rollouts: int = 0
    """what the diagnosis took; 0 for a stated curve."""
    wall_seconds: float = 0.0
    """likewise."""
    spent_rollouts: int = 0
    """what the run had spent when it was over."""
    unit_rollouts: int = 1
    """rollouts of one step along the curve."""
    no_headroom: bool = False
    """whether it is shown that no playbook helps."""
    refused: int = 0
    """rows answered wrong and learned from, none of which changed what agents are shown; 0 once one did."""

    @property
    def verdict(self) -> str:
        """NoHeadroom, or that of the curve."""
        return NO_HEADROOM if self.no_headroom else self.reading.verdict

    @property
    def go(self) -> bool:
        """Whether learning in parallel may start: it is not shown that no gain worth having can come."""
        return self.verdict in ("Plateau", "Rising", "Inconclusive")

    @property
    def plateau_rollouts(self) -> int | None:
        """What serial learning took to its plateau; None where it has none."""
        return self.reading.at * self.unit_rollouts if self.verdict == "Plateau" else None


def wanted(spec: RunSpec) -> bool:
    """Return whether a run says anything of its serial baseline that can be read."""
    baseline = spec.serial_baseline
    return baseline is not None and (baseline.measure or bool(baseline.curve))


def of_curve(spec: RunSpec, start: float, train_rows: int, select_rows: int, gate_units: int) -> Diagnosis:
    """Return what the stated curve shows. ``start``: the score of this run's start, where the curve has none
    at 0 examples. Its scores are taken to be of the rows of select."""
    curve = spec.serial_baseline.curve if spec.serial_baseline is not None else ()
    points = curve_points(curve, start, select_rows)
    seconds, examples = curve[-1].seconds, curve[-1].examples
    if curve[0].examples == 0:
        seconds -= curve[0].seconds
    due = due_of(spec, gate_units, train_rows, examples)
    return Diagnosis(
        read_curve(points, spec.stopping.patience, due),
        select_rows,
        examples=examples,
        seconds_per_example=seconds / examples if examples else 0.0,
        unit_rollouts=GUESS,
    )


def curve_points(curve: tuple[CurvePoint, ...], start: float, rows: int) -> list[Point]:
    """Return a stated curve as points by examples, with its start."""
    points = [Point(point.examples, point.score, rows) for point in curve]
    return points if points[0].at == 0 else [Point(0, start, rows), *points]


def of_summary(summary: StepSummary) -> Diagnosis:
    """Return what the step ``diagnose`` found."""
    counts, scores = summary.counts, summary.scores
    verdict = summary.outputs["verdict"]
    return Diagnosis(
        reading=Reading(
            cast(Verdict, verdict) if verdict in get_args(Verdict) else "NotAbove",
            counts["at"],
            *(scores[name] for name in ("start", "level", "low", "high", "gainLow")),
        ),
        rows=counts["scored"],
        headroom=Headroom(
            *(counts.get(f"headroom{name}", 0) for name in ("Rows", "Wrong", "Tried", "Own", "Other", "Both"))
        ),
        no_headroom=verdict == NO_HEADROOM,
        refused=counts.get("refused", 0),
        examples=counts["examples"],
        seconds_per_example=summary.seconds["serialExample"],
        rollouts=counts["rollouts"],
        wall_seconds=summary.seconds["wall"],
    )


def refusal(diagnosis: Diagnosis) -> Outcome:
    """Return how a run ends whose serial learning does not converge."""
    return Outcome("NothingBetter", f"NotConverging: {words(diagnosis)}")


def words(diagnosis: Diagnosis) -> str:
    """Return what was found in a sentence or two; of a no-go with the alternative."""
    reading, headroom = diagnosis.reading, diagnosis.headroom
    if headroom is not None and diagnosis.no_headroom:
        return _no_headroom(headroom)
    if diagnosis.verdict == "NotAbove" and diagnosis.refused:
        return _nothing_taken_in(diagnosis)
    after = f"after {diagnosis.examples:,} examples" + (f" and {reading.at:,} rollouts" if headroom else "")
    level = f"{reading.level:.3f} (95 % interval {reading.low:.3f} to {reading.high:.3f})"
    start = f"the start scores {reading.start:.3f} on the same {diagnosis.rows} rows"
    if headroom is None:
        start = f"the start scores {reading.start:.3f}"
    if diagnosis.verdict == "Plateau":
        taken = f"{diagnosis.plateau_rollouts or 0:,} rollouts" if headroom else f"{reading.at:,} examples"
        return f"serial learning is level at {level} from {taken} on; {start}"
    if diagnosis.verdict == "Rising":
        return f"serial learning has risen to {level} {after} and is not level yet; {start}"
    seen = f"{level} {after}; {start}"
    if diagnosis.verdict == "Inconclusive":
        return (
            "serial learning is not shown to rise in its share of the run, and not shown to be unable to: "
            f"{seen}. The run goes on; give more rows or a larger budget.rollouts to know beforehand"
        )
    return f"serial learning does not rise: {seen}. {_alternative(diagnosis)}"


def _nothing_taken_in(diagnosis: Diagnosis) -> str:
    return (
        f"of {diagnosis.examples:,} examples, {diagnosis.refused:,} of them answered wrong, none changed "
        f"what agents are shown: nothing is taken in. {_alternative(diagnosis)}"
    )


def _no_headroom(headroom: Headroom) -> str:
    if not headroom.wrong:
        return (
            f"all {headroom.rows} train rows that were tried are answered right without a playbook, so "
            "there is nothing to learn. Give harder rows, or a stricter metric"
        )
    return (
        f"of {headroom.rows} train rows {headroom.wrong} were answered wrong; of {headroom.tried} of these "
        f"{headroom.own} came right with a lesson made from their own answer and {headroom.other} with "
        f"another row's, so that lessons add {headroom.most:.3f} at most (at 5 %). Use another proposer or "
        "task model, or a metric that shows what a lesson changes"
    )


def _alternative(diagnosis: Diagnosis) -> str:
    headroom = diagnosis.headroom
    if headroom is not None and not headroom.tried:
        return "Use another proposer, more rows or a better metric"
    if headroom is None:
        return "State a curve of more heldOut rows, or use another proposer or a better metric"
    helped = f"{headroom.own} of {headroom.tried} wrong train rows came right with their own lesson"
    if headroom.own > headroom.other:
        return (
            f"A playbook can help ({helped}, {headroom.other} with another's): use another proposer, or give "
            "more rows or a larger budget.rollouts, of which the diagnosis takes a share"
        )
    return f"Few lessons helped ({helped}): use another proposer, more rows or a better metric"


def with_defaults(spec: RunSpec, diagnosis: Diagnosis | None, start: float, closing_rollouts: int) -> RunSpec:
    """Return ``spec`` with what a plateau gives where the manifest is silent: the rollouts of the whole run,
    which are four times those to the plateau beside what was spent by then and the closing evaluation, and
    the score to aim for, which is ``start`` (on all of select) with the serial gain and a point more."""
    if diagnosis is None or (taken := diagnosis.plateau_rollouts) is None:
        return spec
    stopping, budget = spec.stopping, spec.budget
    if stopping.target_score is None:
        aim = min(1.0, round(start + diagnosis.reading.gain + TARGET_GAIN, 6))
        stopping = stopping.model_copy(update={"target_score": aim})
    if budget.rollouts is None:
        limit = diagnosis.spent_rollouts + BUDGET_FACTOR * taken + closing_rollouts
        budget = budget.model_copy(update={"rollouts": limit})
    return spec.model_copy(update={"stopping": stopping, "budget": budget})


def charged(diagnosis: Diagnosis, spent_rollouts: int) -> Diagnosis:
    """Return the diagnosis with what the run had spent when it was over."""
    return replace(diagnosis, spent_rollouts=spent_rollouts)
