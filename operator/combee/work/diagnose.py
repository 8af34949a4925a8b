"""diagnose: whether serial learning converges, before anything is learned in parallel.

First the headroom test: train rows answered wrong are answered again, with a lesson made from their own
answer and with one of another row. Then the learner itself, one example at a time, scored on rows of select,
until it is level or has taken what it may. Gate decides later and stays unseen.

It leaves ``diagnosis`` (the curve and the counts), the call graph ``calls`` and ``record``. What serial
learning leaves on its way is in a folder of its own, so that a step which was killed goes on there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from combee.algo.calibration import PROXY, read_figures
from combee.algo.convergence import Headroom, Point, Reading, paired_error, promising, read_curve
from combee.errors import TransientError, VerdictError
from combee.methods.protocol import Rendered
from combee.methods.verification import Known
from combee.plan.diagnosis import (
    GUESS,
    LEAST_REFUSED,
    NO_HEADROOM,
    Shape,
    due_of,
    serial_plan,
    shape_of,
    worth_of,
)
from combee.plan.state import scorer
from combee.plan.types import IterationPlan, RoleUsage, Step, StepSummary, add_usage
from combee.records import Example
from combee.steps import DIAGNOSE, FINISH, ITERATION, MAP, PROFILE, REDUCE
from combee.work.asker import Asker, Fate, decode_rows
from combee.work.callgraph import modelled_seconds
from combee.work.context import (
    WorkContext,
    held_out_split,
    put_json,
    read_receipt,
    require_receipts,
    write_receipt,
)
from combee.work.finish import run_finish
from combee.work.happened import happened
from combee.work.headroom import headroom_of
from combee.work.map import run_map
from combee.work.noted import decode_notes
from combee.work.reduce import run_reduce
from combee.work.rollouts import evaluate

FOLDER = "serial"
"""The folder of serial learning, in the run's."""
SERIAL = "serial learning"
"""The stage of its calls in the step's record."""
MAX_LOST_SHARE = 0.5


async def run_diagnose(context: WorkContext, step: Step) -> StepSummary:
    """Run the diagnosis. Raises TransientError when most of its examples were lost."""
    started = context.clock()
    (profile,) = await require_receipts(context, step.inputs[PROFILE.name], 1)
    counts = profile.counts
    closing_rows = counts["gate"] + counts.get("test", 0)
    artifact = context.method.from_json(await context.store.aget_blob(step.inputs["artifact"]))
    select, _ = await held_out_split(context)
    shape = shape_of(context.spec, counts["train"], counts["select"], closing_rows)
    scored_by = scorer(read_figures(profile.scores, PROXY))
    serial = _Serial(
        replace(context, prefix=f"{context.prefix}/{FOLDER}", progress=_Quiet()),
        step,
        context.asker(scored_by=scored_by),
        shape,
        counts.get("gateClusters") or counts["gate"],
        counts["train"],
        select[: shape.scored],
        profile.scores.get("tokenFactor", 1.0),
        artifact,
    )
    worth = worth_of(context.spec, serial.gate_units)
    headroom = await headroom_of(context, serial.asker, artifact, worth, serial.token_factor)
    await serial.begin(context, profile)
    if not headroom.none(worth):
        await serial.learn(context, headroom)
    return await _write(context, step, serial, headroom, started)


class _Quiet:
    """Listens to the steps of serial learning, of which there are many: the diagnosis counts examples."""

    def begin(self, stage: str, total: int) -> None: ...
    def advance(self, units: int = 1) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(slots=True)
class _Serial:
    """The learner, one example at a time, and its curve so far."""

    context: WorkContext
    """that of its steps, with their folder."""
    step: Step
    asker: Asker
    """of headroom test and evaluations; the steps' calls are in their receipts."""
    shape: Shape
    gate_units: int
    """rows of gate, or clusters where rows have them."""
    train_rows: int
    select: list[Example]
    token_factor: float
    artifact: Any
    examples: int = 0
    lost: int = 0
    """of the examples those that got no answer; one that cannot be used is the model's own."""
    finished: list[StepSummary] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    start: dict[str, float] = field(default_factory=dict)
    latest: dict[str, Known] = field(default_factory=dict)
    """what each row of select scored last."""
    texts: list[str] = field(default_factory=list)
    """what agents were shown at each point."""
    headroom_rollouts: int = 0
    most_rollouts: int = GUESS
    """that an example took."""

    @property
    def spent(self) -> int:
        """Rollouts of the diagnosis so far."""
        return self.asker.rollouts() + sum(one.counts["rollouts"] for one in self.finished)

    @property
    def reading(self) -> Reading:
        """What the curve shows so far."""
        spec = self.context.spec
        due = due_of(spec, self.gate_units, self.train_rows, self.examples)
        few = self.texts[-1] == self.texts[0] and self.refused < LEAST_REFUSED
        return read_curve(self.points, spec.stopping.patience, 0.0 if few else due)

    @property
    def refused(self) -> int:
        """The rows answered wrong and learned from while no text differed from the start's; else 0."""
        if len(set(self.texts)) > 1:
            return 0
        counts = (one.counts for one in self.finished)
        return sum(one["examples"] > one["correct"] + one["failed"] for one in counts)

    async def begin(self, context: WorkContext, profile: StepSummary) -> None:
        """Put down the start of the curve, which profile scored; an earlier version left no scores."""
        self.headroom_rollouts = self.spent
        known: dict[str, float] = {}
        if digest := profile.outputs.get("scores"):
            known = json.loads(await context.store.aget_blob(digest))
        await self.score(context, known)

    async def learn(self, context: WorkContext, headroom: Headroom) -> None:
        """Learn and score in turns until the curve is level or another turn would take too much."""
        rows = (await context.data.train()).places
        cap = self.shape.no_go_rollouts
        while self.examples < rows:
            until = min(self.examples + self.shape.every, rows)
            before = self.examples
            context.progress.begin("serial", until - before)
            while self.examples < until and self._fits(cap):
                await self._one()
                context.progress.advance()
            if self.examples == before:
                return
            await self.score(context)
            if self.reading.verdict == "Plateau" or self.refused >= LEAST_REFUSED:
                return
            goes_on = promising(self.points, headroom)
            cap = self.shape.most_rollouts if goes_on else self.shape.no_go_rollouts

    def _fits(self, cap: int) -> bool:
        """Return whether an example more and the evaluation after it stay within ``cap``."""
        return self.spent + self.most_rollouts + len(self.select) <= cap

    async def score(self, context: WorkContext, known: Mapping[str, float] | None = None) -> None:
        """Add a point to the curve. ``known``: scores that are not asked for again, by row."""
        shown = context.rendered(self.artifact).shown
        stage = f"select after {self.examples}"
        if self.texts and shown.text == self.texts[-1]:
            kept = self.latest
        else:
            kept = {row.id: ((known or {})[row.id], None) for row in self.select if row.id in (known or {})}
        scored = await evaluate(context, self.asker, self.select, shown, stage=stage, known=kept)
        scores = scored.by_id
        self.latest = {name: (score, None) for name, score in scores.items()}
        self.start = self.start or scores
        self.texts.append(shown.text)
        score = sum(scores.values()) / len(scores)
        # Calls that were never sent cost nothing, and a curve goes on all the same.
        at = max(self.spent - self.headroom_rollouts, self.points[-1].at + 1) if self.points else 0
        differences = [scores[name] - self.start[name] for name in scores]
        error = 0.0 if shown.text == self.texts[0] else paired_error(differences)
        self.points.append(Point(at, score, len(scores), error if self.points else None))

    async def _one(self) -> None:
        """Learn from the next example, by the very steps of an iteration. A lost example teaches nothing, and
        leaves its receipts all the same: what it used, and which calls brought no answer."""
        number, work = self.examples, self.context
        self.examples += 1
        plan = serial_plan(work.spec, number, 1, self.token_factor, self.asker.scored_by)
        steps = {
            kind.name: Step(f"{self.step.name}-{number:05d}-{kind.name}", kind.name, number, plan.seed)
            for kind in ITERATION
        }
        inputs = {name: step.name for name, step in steps.items()}
        steps = {name: replace(step, inputs=inputs) for name, step in steps.items()}
        shown = work.method.working(
            self.artifact, budget_tokens=plan.render_token_budget, verify=plan.verify, variants=1
        )
        await self._map(steps[MAP.name], plan, shown)
        done = await read_receipt(work, steps[FINISH.name].name)
        if done is None:
            if await read_receipt(work, steps[REDUCE.name].name) is None:
                await run_reduce(work, steps[REDUCE.name], plan, shown)
            done = await run_finish(work, steps[FINISH.name], plan, self.artifact, shown)
        self.artifact = work.method.from_json(await work.store.aget_blob(done.outputs["artifact"]))
        self.finished.append(done)
        self.most_rollouts = max(self.most_rollouts, done.counts["rollouts"])

    async def _map(self, step: Step, plan: IterationPlan, shown: Sequence[Rendered]) -> None:
        """Roll the next example out and reflect. One more that got no answer than may leaves no receipt, so
        that it is asked again when the run is started again. Raises TransientError or VerdictError for it."""
        may_be_lost = self.lost + 1 <= MAX_LOST_SHARE * max(self.examples, self.shape.every)
        try:
            mapped = await run_map(self.context, step, plan, 0, shown, all_may_be_lost=may_be_lost)
        except (TransientError, VerdictError) as error:
            raise type(error)(
                f"{self.lost + 1} of {self.examples} examples of serial learning came to nothing",
                where=self.step.name,
                fix=error.fix,
            ) from None
        counts = mapped.counts
        self.lost += counts["failed"] and not any(counts.get(fate) for fate in (Fate.CUT, Fate.UNPARSABLE))

    @property
    def seconds(self) -> float:
        """Modelled seconds of learning, from all examples."""
        return sum(seconds for one in self.finished for _, seconds in one.observations)

    @property
    def seconds_per_example(self) -> float:
        """Modelled seconds of learning from one example that was answered; 0 before the first."""
        answered = [one for one in self.finished if not one.counts["failed"]]
        return sum(seconds for one in answered for _, seconds in one.observations) / max(1, len(answered))


async def _write(
    context: WorkContext, step: Step, serial: _Serial, headroom: Headroom, started: float
) -> StepSummary:
    no_headroom = headroom.none(worth_of(context.spec, serial.gate_units))
    whole, own_seconds = await _calls(serial), modelled_seconds(serial.asker.rows, context.slots)
    reading = serial.reading
    counted = await _counted(context, serial)
    record = happened({DIAGNOSE.name: whole.rows}, context.slots) | counted
    for stage in record["stages"]:
        if stage["stage"] == SERIAL:
            stage["scheduledSeconds"] = round(serial.seconds, 6)
    measured = {
        "points": [asdict(point) for point in serial.points],
        "headroom": asdict(headroom),
        "examples": serial.examples,
        "scored": len(serial.select),
    }
    usage: list[dict[str, RoleUsage]] = [dict(one.usage) for one in serial.finished]
    summary = StepSummary(
        step=step.name,
        kind=step.kind,
        outputs={
            "verdict": NO_HEADROOM if no_headroom else reading.verdict,
            "diagnosis": await put_json(context, measured),
            "record": await put_json(context, record),
            "calls": await context.store.aput_blob(whole.encode()),
        },
        counts={
            **counted,
            "at": reading.at,
            "examples": serial.examples,
            "scored": len(serial.select),
            "refused": serial.refused,
            **{f"headroom{name.title()}": value for name, value in asdict(headroom).items()},
        },
        scores={
            **{name: round(getattr(reading, name), 6) for name in ("start", "level", "low", "high")},
            "gainLow": round(reading.gain_low, 6),
        },
        usage=add_usage(serial.asker.usage(), *usage),
        seconds={
            "wall": round(context.clock() - started, 6),
            "modelled": round(own_seconds + serial.seconds, 6),
            "serialExample": round(serial.seconds_per_example, 6),
        },
    )
    return await write_receipt(context, summary)


async def _counted(context: WorkContext, serial: _Serial) -> dict[str, int]:
    """Return what is counted of all asks, those of serial learning's steps included."""
    counted = serial.asker.counts() | {"rollouts": serial.spent}
    for one in serial.finished:
        learned = json.loads(await context.store.aget_blob(one.outputs["record"]))
        for name in ("repaired", "lost", Fate.CUT, Fate.UNPARSABLE):
            if number := learned.get(name, 0):
                counted[name] = counted.get(name, 0) + number
    return counted


async def _calls(serial: _Serial) -> Asker:
    """Return the call graph of the whole diagnosis: that of serial learning is one chain."""
    work = serial.context
    whole = work.asker()
    whole.take_in(serial.asker, 0)
    for done in serial.finished:
        for kind in ITERATION:
            receipt = await read_receipt(work, done.step.removesuffix(FINISH.name) + kind.name)
            if receipt is not None:
                data = await work.store.aget_blob(receipt.outputs["calls"])
                whole.notes.take_in(decode_notes(data), 0)
                for row in decode_rows(data):
                    whole.begin(SERIAL)
                    whole.rows.append(replace(row, stage=SERIAL, chain=0, after=()))
    return whole
