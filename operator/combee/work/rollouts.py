"""Rollouts: one example, one playbook, one answer, one score. Used by map, replay and evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from combee.algo.clusters import by_cluster
from combee.algo.stats import pass_hat_k
from combee.algo.tokens import estimate_tokens
from combee.api.metric import PassK
from combee.errors import (
    CombeeError,
    ContextLengthError,
    ProxyVerdictError,
    RolloutError,
    TransientError,
    VerdictError,
)
from combee.methods.protocol import CutError, ParseError, RolloutReply
from combee.methods.verification import Known
from combee.records import Example, Shown, Trajectory, trajectory_id
from combee.tasks.container import remedy
from combee.tasks.traces import trajectories
from combee.work.asker import LOSSES, Asker
from combee.work.context import WorkContext
from combee.work.evaluator import PROXY, ROLE, no_verdict, score_of
from combee.work.pool import pooled

__all__ = [
    "LOSSES",
    "Scores",
    "closing_scores",
    "evaluate",
    "lost",
    "mean",
    "mean_partial",
    "rollout",
    "scored",
    "without_work",
]


async def rollout(
    context: WorkContext,
    asker: Asker,
    example: Example,
    shown: Shown,
    *,
    stage: str,
    chain: int,
    split: str,
    epoch: int = 0,
    least_temperature: float = 0.0,
) -> Trajectory:
    """Make one trajectory, and note it. It never raises for what only concerns this example (``LOSSES``).
    ``shown``: the artifact, of which the agent sees what is chosen for the example; ``split``: where that is
    from."""
    model_input = context.task.model_input(example)
    try:
        trajectory = await _rolled_out(
            context,
            asker,
            example,
            model_input,
            context.shown_for(shown, example),
            stage,
            chain,
            epoch,
            least_temperature,
        )
    except LOSSES as error:
        trajectory = lost(example, model_input, epoch, error)
    asker.notes.rolled_out(trajectory, shown, split=split, stage=stage, chain=chain)
    return trajectory


async def _rolled_out(
    context: WorkContext,
    asker: Asker,
    example: Example,
    model_input: str,
    shown: Shown,
    stage: str,
    chain: int,
    epoch: int,
    least_temperature: float,
) -> Trajectory:
    """Make one trajectory by the runner, or by one call where there is none. Raises ``LOSSES``."""
    if context.runner is not None:
        ran = await context.runner.run(
            asker,
            example,
            shown,
            stage=stage,
            chain=chain,
            ordinal=epoch,
            least_temperature=least_temperature,
        )
        return without_work(next(trajectories(example, ran, epoch)))
    reply = await asker.ask(
        "task",
        context.method.rollout_prompt(context.task.instructions, shown.text, model_input),
        context.method.parse_rollout,
        stage=stage,
        chain=chain,
        ordinal=epoch,
        least_temperature=least_temperature,
    )
    return await scored(context, asker, example, epoch, reply, stage=stage, chain=chain)


MAX_LOST_SHARE = 0.5
"""A step of which a larger share got no answer has a bad day and says nothing: it fails."""
_OF_THE_MODEL = (ParseError.code, CutError.code)
"""Answers that cannot be used are the model's own, and count as wrong: a weak model is no bad day."""
_WITHOUT_VERDICT = {VerdictError.code: ROLE, ProxyVerdictError.code: PROXY}
_ADVICE = {
    TransientError.code: "See whether the endpoint is healthy",
    ContextLengthError.code: "Make room in the context: lower method.renderTokenBudget, "
    "aggregation.maxInputTokens or sampling.maxTokens, or serve the model with a longer one",
}


def refuse_a_bad_day(errors: Sequence[str], what: str, where: str) -> None:
    """Raise TransientError when most of ``errors``, the error code of each of the step's ``what`` (or empty),
    are not the model's own, with the advice for the most frequent of them; VerdictError where that is an
    answer of whoever scores without a verdict, which another try would bring again."""
    lost = [code for code in errors if code and code not in _OF_THE_MODEL]
    if len(lost) > MAX_LOST_SHARE * len(errors):
        code = max(lost, key=lost.count)
        if (role := _WITHOUT_VERDICT.get(code)) is not None:
            share = f"{where}: {lost.count(code)} of {len(errors)} {what} have no score"
            raise no_verdict(role, f"{share}: the {role} gave no verdict")
        fix = remedy(code) or _ADVICE.get(code, _ADVICE[TransientError.code])
        raise TransientError(
            f"{len(lost)} of {len(errors)} {what} got no answer ({code})",
            where=where,
            fix=f"{fix}, then start it again: what was answered is kept",
        )


def without_work(part: Trajectory) -> Trajectory:
    """Return the trajectory of a recording as it is kept: only the reflection is told what was done."""
    return replace(part, output="", recorded=None, records=None)


async def scored(
    context: WorkContext,
    asker: Asker,
    example: Example,
    epoch: int,
    reply: RolloutReply,
    *,
    stage: str,
    chain: int,
) -> Trajectory:
    """Score a reply and return it as a trajectory. Raises LOSSES where an evaluator gave no score."""
    answer = context.task.parse_answer(reply.answer)
    score = await score_of(context, asker, example, answer, stage=stage, chain=chain)
    return Trajectory(
        id=trajectory_id(example.id, epoch),
        example_id=example.id,
        input=context.task.model_input(example),
        output=reply.reasoning,
        answer=answer,
        score=score.value,
        correct=score.correct,
        feedback=score.feedback,
        cited=reply.cited,
        partial=score.partial,
    )


def lost(example: Example, model_input: str, epoch: int, error: CombeeError) -> Trajectory:
    """Return the trajectory of a failed call: wrong, with the error's code and a container's last words."""
    return Trajectory(
        id=trajectory_id(example.id, epoch),
        example_id=example.id,
        input=model_input,
        output="",
        answer="",
        score=0.0,
        correct=False,
        feedback=str(error) if isinstance(error, RolloutError) else "no answer",
        error=error.code,
    )


@dataclass(frozen=True, slots=True)
class Scores:
    """What a playbook scored on some examples."""

    by_id: dict[str, float]
    """scores in [0, 1] by example id. A failed example scores 0 and is never left out."""
    partial: float | None
    """the mean partial credit; None where the task has none."""
    answered: list[Trajectory]
    """what was done on those that were asked, in order; those whose score was known are not among them."""
    clusters: dict[str, str] = field(default_factory=dict)
    """the clusters of the examples that have one, by example id."""

    @property
    def by_cluster(self) -> dict[str, float]:
        """The scores that a mean and an interval are over."""
        return by_cluster(self.by_id, self.clusters)


async def evaluate(
    context: WorkContext,
    asker: Asker,
    examples: list[Example],
    shown: Shown,
    *,
    stage: str,
    known: Mapping[str, Known] | None = None,
    repeat: int = 0,
    passes: PassK | None = None,
) -> Scores:
    """Score a playbook on the examples; those whose score is ``known`` are not asked. ``stage`` begins with
    the name of their split. ``repeat``: which repeat of the same questions it is, or the first of several
    where ``passes`` says so.

    Raises TransientError on a bad day: most of the scores would be those of no answer.
    """
    scores = dict(known or {})
    unknown = [example for example in examples if example.id not in scores]
    pairs = [(one, repeat + n) for n in range(passes.rollouts if passes else 1) for one in unknown]
    context.progress.begin(stage, len(pairs))

    async def answer(item: tuple[int, tuple[Example, int]]) -> Trajectory:
        chain, (example, number) = item
        trajectory = await rollout(
            context,
            asker,
            example,
            shown,
            stage=stage,
            chain=chain,
            split=stage.partition(" ")[0],
            epoch=number,
        )
        context.progress.advance()
        return trajectory

    lengths = [expected_tokens(example) for example, _ in pairs]
    answered = await pooled(list(enumerate(pairs)), answer, width=context.concurrency, lengths=lengths)
    refuse_a_bad_day([one.error for one in answered] + [""] * len(scores), f"rows of {stage}", stage)
    if passes is not None:
        answered = [_passed(answered[n :: len(unknown)], passes) for n in range(len(unknown))]
    scores |= {one.example_id: (one.score, one.partial) for one in answered}
    by_id = {example.id: scores[example.id][0] for example in examples}
    clusters = {example.id: example.cluster for example in examples if example.cluster}
    return Scores(by_id, mean_partial(scores[example_id][1] for example_id in by_id), answered, clusters)


async def closing_scores(
    context: WorkContext, asker: Asker, examples: list[Example], shown: Shown, *, stage: str, repeat: int = 0
) -> Scores:
    """Score a playbook as the closing look does: ``evaluate``, with the task's ``passK``."""
    passes = context.spec.task.pass_k
    return await evaluate(context, asker, examples, shown, stage=stage, repeat=repeat, passes=passes)


def _passed(rollouts: Sequence[Trajectory], passes: PassK) -> Trajectory:
    """Return the rollouts of an example as one: the first that went wrong, or the first, with the score of
    all."""
    right = sum(one.correct for one in rollouts)
    shown = next((one for one in rollouts if not one.correct), rollouts[0])
    return replace(
        shown,
        score=pass_hat_k(right, len(rollouts), passes.k),
        partial=mean_partial(one.partial for one in rollouts),
    )


def expected_tokens(example: Example) -> int:
    """Return the tokens of an example's input, by estimate where its data does not say."""
    return example.tokens or estimate_tokens(example.input)


def mean_partial(partials: Iterable[float | None]) -> float | None:
    """Return the mean partial credit, with 0 for each that failed; None where the task gives none at all.

    >>> mean_partial([0.5, None, 1.0]), mean_partial([None, None])
    (0.5, None)
    """
    values = list(partials)
    credits = [value for value in values if value is not None]
    return sum(credits) / len(values) if credits else None


def mean(scores: dict[str, float]) -> float:
    """Return the mean score; 0 where there are no scores."""
    return sum(scores.values()) / len(scores) if scores else 0.0
