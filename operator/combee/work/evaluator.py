"""Scores of answers: by the task, or by the evaluator where the metric is a rubric.

The evaluator is shown what the task tells the model and asks of it, one answer, and the criteria; it sees no
playbook, version or name. Its calls are remembered like all others, by model, decoding and the whole prompt,
which is the scorer's version, too: an answer that comes again to the same question is not judged again,
unless the manifest says why (``evaluator.scoreAgain``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from combee.api.metric import Rubric
from combee.errors import BugError, ProxyVerdictError, VerdictError
from combee.methods.judging import Verdict, criteria_order, judge_prompt, parse_rubric, parse_verdict
from combee.methods.protocol import ParseError
from combee.records import Example, Score
from combee.work.asker import Asker
from combee.work.context import WorkContext

ROLE, PROXY, REFEREE = "evaluator", "proxy", "referee"
NO_VERDICT = "Use a model that fills in a JSON schema, or raise its sampling.maxTokens"
"""What to do about a VerdictError."""


async def score_of(
    context: WorkContext, asker: Asker, example: Example, answer: str, *, stage: str, chain: int
) -> Score:
    """Return the score of an answer, as the task has parsed it. Raises LOSSES where the model that scores
    gave none: that is nobody's wrong answer."""
    if not context.spec.task.is_evaluated:
        return context.task.score(answer, example)
    verdict = await verdict_on(
        context, asker, example, answer, stage=stage, chain=chain, role=asker.scored_by
    )
    correct = verdict.score >= context.spec.task.right_score
    return Score(verdict.score, correct, verdict.feedback(_rubric(context).criteria))


async def verdict_on(
    context: WorkContext,
    asker: Asker,
    example: Example,
    answer: str,
    *,
    stage: str,
    chain: int,
    role: str = ROLE,
) -> Verdict:
    """Return the verdict of the evaluator, its proxy or the referee. Raises VerdictError for a reply that
    holds none, and what asking raises."""
    parts = [("system", context.task.instructions), ("user", context.task.model_input(example))]
    request = {"messages": [{"role": name, "content": text} for name, text in parts if text]}
    try:
        return await ask_verdict(
            asker,
            role,
            request,
            {"content": answer},
            _rubric(context).criteria,
            stage=stage,
            chain=chain,
            anew=_why_anew(context) if role == ROLE else "",
        )
    except ParseError as error:
        raise no_verdict(role, f"the {role} gave no verdict: {error.what}") from error


def no_verdict(role: str, what: str) -> VerdictError:
    """Return the error of a model whose answers hold no verdict."""
    kind = ProxyVerdictError if role == PROXY else VerdictError
    return kind(what, where=f"spec.models.{role}", fix=NO_VERDICT)


async def ask_verdict(
    asker: Asker,
    role: str,
    request: Mapping[str, Any],
    answer: Mapping[str, Any],
    criteria: Sequence[str],
    *,
    stage: str,
    chain: int,
    anew: str = "",
) -> Verdict:
    """Ask for the verdict on one answer to a chat request: the one call by which a model judges, in map,
    replays, select and gate, in a calibration and in a canary alike. Without criteria it is a verdict in
    general.

    Raises ParseError for a reply that is no verdict, and what asking raises.
    """
    prompt = judge_prompt(request, answer, criteria)
    order = criteria_order(criteria, prompt.messages[-1].content)

    def read(text: str) -> Verdict:
        return parse_rubric(text, order) if criteria else parse_verdict(text)

    return await asker.ask(role, prompt, read, stage=stage, chain=chain, anew=anew)


def _why_anew(context: WorkContext) -> str:
    """Return why answers that were scored are scored again; empty where they are not."""
    evaluator = context.spec.models.evaluator
    return (evaluator.score_again or "") if evaluator is not None else ""


def _rubric(context: WorkContext) -> Rubric:
    if context.spec.task.rubric is None:
        raise BugError("metric rubric without a rubric passed admission")
    return context.spec.task.rubric
