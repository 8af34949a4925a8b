"""Calibration: whether the evaluator may score this run, known before anything is learned.

Its scores are compared with those of people, where rows of train carry labels, else with those of a referee:
another model that is shown exactly the same. What follows from it is decided in ``plan/calibrated.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from combee.algo.calibration import Calibration, calibration, sample_sizes
from combee.errors import CombeeError, EndpointError, ManifestError, VerdictError
from combee.records import Example, Labelled, Shown, Trajectory
from combee.work.asker import LOSSES, Asker
from combee.work.context import WorkContext
from combee.work.evaluator import REFEREE, ROLE, no_verdict, verdict_on
from combee.work.pool import pooled
from combee.work.rollouts import MAX_LOST_SHARE, rollout

STAGE = "calibrate"
Answered = tuple[Example, Trajectory]
_Pair = tuple[float, float]


async def check_opinion(context: WorkContext) -> None:
    """Raise ManifestError where the evaluator would score, and nothing is there to compare it with."""
    spec = context.spec
    if spec.task.is_evaluated and spec.models.referee is None and not (await context.data.train()).labelled:
        raise ManifestError(
            "there is nothing to calibrate the evaluator with",
            where="spec.models.referee",
            fix="Name a referee, another model; or, with type Reply, give train rows an answer and a "
            "label, a person's score from 0 to 1",
        )


async def calibrated(
    context: WorkContext, asker: Asker, answered: Sequence[Answered], shown: Shown
) -> Calibration | None:
    """Return what the comparison shows; None where no evaluator scores.

    ``answered`` are the rollouts of the start on select, and more are made on train where they are too few.
    Raises EndpointError where most verdicts came to nothing: what is left of them says nothing.
    """
    if not context.spec.task.is_evaluated:
        return None
    train = await context.data.train()
    rows = len(train.examples) + len(answered)
    available = len(train.labelled) or rows
    compared: Calibration | None = None
    verdicts: list[_Pair | CombeeError] = []
    done = 0
    for size in sample_sizes(rows, available):
        context.progress.begin(STAGE, size - done)
        if train.labelled:
            verdicts += await _with_labels(context, asker, train.labelled[done:size], done)
        else:
            more = await _answers(context, asker, answered, train.examples, shown, done, size)
            verdicts += await with_another(context, asker, more, REFEREE, STAGE, done)
        done = size
        pairs = pairs_of(verdicts, ROLE if train.labelled else REFEREE)
        compared = calibration([score for score, _ in pairs], [other for _, other in pairs])
        if compared.verdict != "Inconclusive":
            break
    compared = compared or calibration([], [])
    against = "people's labels" if train.labelled else "the referee"
    if compared.verdict == "Inconclusive":
        context.progress.note(f"It is not shown that the evaluator orders answers as {against}. {compared}")
    return compared


async def _with_labels(
    context: WorkContext, asker: Asker, labelled: Sequence[Labelled], first: int
) -> list[_Pair | CombeeError]:
    async def one(numbered: tuple[int, Labelled]) -> _Pair | CombeeError:
        chain, given = numbered
        answer = context.task.parse_answer(given.answer)
        try:
            verdict = await verdict_on(context, asker, given.example, answer, stage=STAGE, chain=chain)
        except LOSSES as error:
            return error
        finally:
            context.progress.advance()
        return verdict.score, given.label

    return await pooled(list(enumerate(labelled, first)), one, width=context.concurrency)


def pairs_of(made: Sequence[_Pair | CombeeError], role: str) -> list[_Pair]:
    """Return the pairs. Raises EndpointError where most are lost, VerdictError where no verdict was in what
    was answered: more rows would not mend either."""
    lost = [one for one in made if isinstance(one, CombeeError)]
    if len(lost) > MAX_LOST_SHARE * len(made):
        without = [one for one in lost if isinstance(one, VerdictError)]
        if 2 * len(without) > len(lost):
            share = f"{len(without)} of {len(made)} answers in the calibration cannot be used"
            raise no_verdict(role, f"{share}: {without[0].what}")
        raise EndpointError(
            f"{len(lost)} of {len(made)} verdicts of the calibration came to nothing: {lost[0].what}",
            where=f"spec.models.{role}",
            fix="See whether the endpoint is healthy, then start it again: what was answered is kept",
        )
    return [one for one in made if not isinstance(one, CombeeError)]


async def _answers(
    context: WorkContext,
    asker: Asker,
    answered: Sequence[Answered],
    train: Sequence[Example],
    shown: Shown,
    start: int,
    end: int,
) -> list[Answered]:
    """Return the answers from ``start`` to ``end``: first those on select, then of train, which are made."""
    here = len(answered)
    extra = list(enumerate(train[max(0, start - here) : max(0, end - here)], max(start, here)))

    async def one(numbered: tuple[int, Example]) -> Answered:
        chain, example = numbered
        stage = f"{STAGE} answers"
        made = await rollout(context, asker, example, shown, stage=stage, chain=chain, split="train")
        return example, made

    return [*answered[start:end], *await pooled(extra, one, width=context.concurrency)]


async def with_another(
    context: WorkContext, asker: Asker, answers: Sequence[Answered], role: str, stage: str, first: int = 0
) -> list[_Pair | CombeeError]:
    """Return the scores of answers beside those that another model gives them, in order, or why it gave none;
    answers that were lost are left out."""

    async def one(numbered: tuple[int, Answered]) -> _Pair | CombeeError:
        chain, (example, trajectory) = numbered
        try:
            verdict = await verdict_on(
                context, asker, example, trajectory.answer, stage=stage, chain=chain, role=role
            )
        except LOSSES as error:
            return error
        finally:
            context.progress.advance()
        return trajectory.score, verdict.score

    usable = [(chain, pair) for chain, pair in enumerate(answers, first) if not pair[1].error]
    return await pooled(usable, one, width=context.concurrency)
